"""All formats, listed by hand: the dialects of text lines, and the parsers of whole files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

from loganalyze.model import Batch
from loganalyze_parsers import (
    dcgm,
    deepspeed,
    deepspeed_csv,
    described_bars,
    detectron2,
    dmon,
    failures,
    fairseq,
    generic_pairs,
    golden_values,
    headed,
    history_document,
    history_json,
    history_parquet,
    huggingface,
    huggingface_table,
    internlm,
    keras,
    launcher,
    lightning_bar,
    lightning_csv,
    litgpt,
    megatron,
    memory_lines,
    mindformers,
    mlflow,
    mlflow_files,
    modded_nanogpt,
    nanogpt,
    nemo,
    nvidia_smi,
    paddle,
    rl_blocks,
    rl_trainers,
    small_consoles,
    small_trainers,
    swanlab,
    swanlab_log,
    tables,
    tables_chart,
    tables_long,
    tables_runs,
    tensorboard,
    torchtitan,
    torchtune,
    trackio,
    trainer_state,
    wandb,
)
from loganalyze_parsers.api import Dialect, Head, Parser
from loganalyze_parsers.blocks import open_bytes
from loganalyze_parsers.csv_table import sniffed_header
from loganalyze_parsers.history_json import first_object
from loganalyze_parsers.noise import ignore_rule
from loganalyze_parsers.text_files import parse_part, parse_text
from loganalyze_parsers.textlog import TextLog

#: Lines are offered in this order; the first dialect that takes numbers from a line owns them.
DIALECTS: tuple[Dialect, ...] = (
    failures.DIALECT,
    launcher.DIALECT,
    deepspeed.DIALECT,
    nemo.DIALECT,
    megatron.DIALECT,
    lightning_bar.DIALECT,
    described_bars.DIALECT,
    huggingface.DIALECT,
    huggingface_table.DIALECT,
    torchtitan.DIALECT,
    torchtune.DIALECT,
    litgpt.DIALECT,
    nanogpt.DIALECT,
    modded_nanogpt.DIALECT,
    modded_nanogpt.PEAK_DIALECT,
    keras.DIALECT,
    *small_trainers.DIALECTS,
    internlm.DIALECT,
    mindformers.DIALECT,
    paddle.DIALECT,
    detectron2.DIALECT,
    *small_consoles.DIALECTS,
    fairseq.DIALECT,
    rl_trainers.DIALECT,
    rl_blocks.DIALECT,
    headed.DIALECT,
    generic_pairs.DIALECT,
    memory_lines.DIALECT,
)


def _parse_text(path: Path, source: int) -> Iterator[Batch]:
    return parse_text(path, source, DIALECTS, ignore_rule)


def text_log(source: int) -> TextLog:
    """A reader of one text input that is fed block by block, as a log under watch grows."""
    return TextLog(DIALECTS, ignore_rule, source)


def _text_onward() -> Callable[[Path, int], Iterator[Batch]]:
    return partial(parse_part, TextLog(DIALECTS, ignore_rule, 0))


def _sniff_text(head: Head) -> float:
    """Anything that is mostly printable is worth a look; binary bytes are not."""
    if not head.data:
        return 0.0
    odd = sum(head.data.count(byte) for byte in (b"\x00", b"\x01", b"\x02", b"\x03"))
    return 0.1 if odd <= len(head.data) // 200 else 0.0


TEXT = Parser(name="text", sniff=_sniff_text, parse=_parse_text, onward=_text_onward)

#: The parser that is surest of an input reads it; ties go to the first.
PARSERS: tuple[Parser, ...] = (
    golden_values.PARSER,
    nvidia_smi.PARSER,
    dmon.PARSER,
    dcgm.PARSER,
    trainer_state.PARSER,
    trainer_state.RESULTS_PARSER,
    deepspeed_csv.PARSER,
    swanlab.PARSER,
    wandb.PARSER,
    tensorboard.PARSER,
    tables.PARSER,
    tables_chart.PARSER,
    tables_long.PARSER,
    tables_long.JSON_PARSER,
    tables_runs.PARSER,
    mlflow.PARSER,
    trackio.PARSER,
    history_json.PARSER,
    history_document.PARSER,
    history_parquet.PARSER,
    mlflow_files.FILE_PARSER,
    mlflow_files.META_PARSER,
    swanlab_log.PARSER,
    lightning_csv.PARSER,
    TEXT,
)

_HEAD_BYTES = 64 * 1024
_SURE = 0.5  # a parser that knows the make; below it is a guess


def head_of(path: Path) -> Head:
    """The beginning of an input, decompressed. Raises OSError where it cannot be read."""
    with open_bytes(path) as stream:
        data = stream.read(_HEAD_BYTES)
    return Head(path=path, data=data, size=path.stat().st_size)


def parser_for(head: Head, named: Collection[str] = ()) -> Parser | None:
    """The parser that is surest of the input; None if none wants it.

    named: columns that the user gave a meaning. A table that has one of them is read as such,
    although nothing else in it is known.
    """
    best = max(PARSERS, key=lambda parser: parser.sniff(head))
    sure = best.sniff(head)
    if named and sure < _SURE:
        header = sniffed_header(head)
        if header is not None and not set(named).isdisjoint(header.names):
            return tables.PARSER
        keys = [f"{key}." for key in first_object(head.data)]  # of nested ones the first part
        if any(f"{name}.".startswith(key) for name in named for key in keys):
            return history_json.PARSER
    return best if sure > 0 else None
