"""W&B's transaction log: framing in both dialects, damage, rows, system metrics, events."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from build_wandb import (
    BLOCK,
    HEADER,
    config,
    exit_record,
    field,
    history,
    item,
    metric,
    printed,
    stats,
    varint,
    wandb_log,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers.wandb import body_of, console, console_text
from loganalyze_parsers.wandb_history import History, row_numbers
from trackers import parsed, rows, rules

from loganalyze.model import Batch


def read(tmp_path: Path, data: bytes, name: str = "run-ab12cd34.wandb") -> Batch:
    """The one batch of a log with these bytes."""
    path = tmp_path / name
    path.write_bytes(data)
    (batch,) = parsed(path)
    return batch


def training(count: int, *, pad: int = 0) -> list[bytes]:
    """Rows as the Hugging Face Trainer logs them: step 5, 10, ...; the counter runs 0, 1, ..."""
    return [
        history(
            {
                "train/loss": 8.0 - 0.01 * at,
                "train/global_step": 5 * (at + 1),
                "_step": at,
                "_timestamp": 1.7e9 + at,
                "_runtime": float(at),
                "note": "x" * pad,
            }
        )
        for at in range(count)
    ]


@pytest.mark.parametrize("base", [0, 7])
def test_both_ways_of_counting_blocks(tmp_path: Path, base: int) -> None:
    """A log whose blocks count from the start or from behind the header is read whole."""
    batch = read(tmp_path, wandb_log([*training(300, pad=900), exit_record(0)], base=base))
    frame = rows(batch)
    assert frame["step"].to_list() == [5 * (at + 1) for at in range(300)]
    assert frame["loss"][299] == pytest.approx(8.0 - 2.99)
    assert frame["wall_s"][0] == 1.7e9
    assert rules(batch) == []
    assert batch.account.read == 301


def test_place_of_a_row_is_its_record(tmp_path: Path) -> None:
    """line counts records, offset and length span the chunks of the record."""
    data = wandb_log([config({"lr": 0.1}), *training(2), exit_record(0)])
    frame = rows(read(tmp_path, data))
    assert frame["line"].to_list() == [2, 3]
    start, length = frame["offset"][0], frame["length"][0]
    assert start + length == frame["offset"][1]
    assert data[start : start + length].count(b"train/loss") == 1


def test_bad_checksum_costs_one_block(tmp_path: Path) -> None:
    """Flipped bytes lose the rest of their 32 KiB block; reading goes on, and it is told."""
    data = bytearray(wandb_log([*training(300, pad=900), exit_record(0)]))
    data[3 * BLOCK + 200] ^= 0xFF
    batch = read(tmp_path, bytes(data))
    steps = rows(batch)["step"].to_list()
    assert 300 - BLOCK // 900 - 3 <= len(steps) < 300
    assert steps[-1] == 1500
    assert "damaged_log" in rules(batch)
    assert batch.account.unknown >= 1


def test_page_of_zeros_is_stepped_over(tmp_path: Path) -> None:
    """A lost block (zeros) costs its records only."""
    data = bytearray(wandb_log([*training(300, pad=900), exit_record(0)]))
    data[2 * BLOCK : 3 * BLOCK] = bytes(BLOCK)
    batch = read(tmp_path, bytes(data))
    assert rows(batch)["step"].max() == 1500
    assert "damaged_log" in rules(batch)


@pytest.mark.parametrize("cut", [1, 5, 9, 40])
def test_torn_tail(tmp_path: Path, cut: int) -> None:
    """A log cut inside its last record keeps the others and says that it breaks off."""
    data = wandb_log(training(20))
    batch = read(tmp_path, data[:-cut])
    assert len(rows(batch)) == 19
    assert rules(batch) == ["input_breaks_off", "no_exit_record"]


def test_empty_log_reads_the_files_beside_it(tmp_path: Path) -> None:
    """A log of 0 bytes falls back to the summary and the flat part of config.yaml."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "wandb-summary.json").write_text('{"train/loss": 2.5, "bad": NaN, "_step": 40}')
    (files / "config.yaml").write_text(
        "wandb_version: 1\n_wandb:\n  value:\n    cli_version: 1\nlr:\n  desc: null\n"
        "  value: 0.003\nnested:\n    value:\n        inner: 1\n"
    )
    batch = read(tmp_path, b"")
    assert batch.readings is None
    assert rules(batch) == ["empty_log"]
    by_kind = {event.kind: event.detail for event in batch.events}
    assert by_kind["note"]["train/loss"] == 2.5
    assert by_kind["config"] == {"lr": "0.003"}


def test_non_finite_words_and_typed_fields(tmp_path: Path) -> None:
    """Bare NaN, Infinity, quoted words and the typed fields 4 to 8 are numbers or are left out."""
    key = field(2, "typed")
    zigzag = varint(5 << 3) + varint(13)  # -7
    bodies = [
        history({"loss": math.nan, "grad_norm": math.inf, "lr": "NaN", "flag": True, "_step": 1}),
        field(2, field(1, key + zigzag) + field(1, item("_step", 2))),
        field(2, field(1, key + field(6, 0.5)) + field(1, item("_step", 3))),
        field(2, field(1, key + field(8, '{"deep": 4}')) + field(1, item("_step", 4))),
        field(2, field(1, key + field(4, 1)) + field(1, item("_step", 5))),
    ]
    frame = rows(read(tmp_path, wandb_log([*bodies, exit_record(0)])))
    assert math.isnan(frame["loss"][0])
    assert frame["grad_norm"][0] == math.inf
    assert math.isnan(frame["lr"][0])
    assert frame["raw/typed"].to_list() == [None, -7.0, 0.5, None]
    assert frame["raw/typed.deep"].to_list() == [None, None, None, 4.0]
    assert "raw/flag" not in frame.columns


def test_nested_keys_and_media(tmp_path: Path) -> None:
    """Parts of a nested key join with a dot; histograms and media are no numbers."""
    nested = field(1, field(2, "train") + field(2, "loss") + field(16, "1.5"))
    media = {"_type": "histogram", "values": [1], "bins": [0, 1], "size": 3}
    body = field(2, nested + field(1, item("hist", media)) + field(1, item("_step", 7)))
    frame = rows(read(tmp_path, wandb_log([body, exit_record(0)])))
    assert frame["loss"].to_list() == [1.5]
    assert [name for name in frame.columns if "hist" in name] == []


def test_step_axis_is_the_declared_one(tmp_path: Path) -> None:
    """define_metric's x axis wins over usual names, those over the tracker's counter."""
    rows_of = [history({"loss": 1.0, "tokens": 100 * at, "_step": at}) for at in range(4)]
    declared = wandb_log([metric("*", "tokens"), *rows_of, exit_record(0)])
    assert rows(read(tmp_path, declared))["step"].to_list() == [0, 100, 200, 300]
    plain = wandb_log([*rows_of, exit_record(0)])
    assert rows(read(tmp_path, plain))["step"].to_list() == [0, 1, 2, 3]


def test_iteration_that_restarts_each_epoch_is_no_axis(tmp_path: Path) -> None:
    """A column that goes back again and again cannot be the step."""
    bodies = [history({"loss": 1.0, "iter": at % 5, "_step": at}, step=at) for at in range(30)]
    frame = rows(read(tmp_path, wandb_log([*bodies, exit_record(0)])))
    assert frame["step"].to_list() == list(range(30))


def test_row_without_user_step_takes_the_one_before(tmp_path: Path) -> None:
    """An evaluation logged on its own belongs to the step before it."""
    bodies = [
        history({"loss": 1.0, "global_step": 10, "_step": 0}),
        history({"loss": 1.0, "global_step": 20, "_step": 1}),
        history({"val/loss": 2.0, "_step": 2}),
    ]
    frame = rows(read(tmp_path, wandb_log([*bodies, exit_record(0)])))
    assert frame["step"].to_list() == [10, 20, 20]
    assert frame["val_loss"].to_list() == [None, None, 2.0]


def test_loss_of_zero_beside_nan_gradient_is_nan(tmp_path: Path) -> None:
    """The Trainer's NaN filter is undone, and the user is told."""
    bodies = [
        history({"train/loss": 0.0, "train/grad_norm": math.nan, "train/global_step": 1}),
        history({"train/loss": 0.0, "train/grad_norm": 0.0, "train/global_step": 2}),
        history({"train/loss": 7.0, "train/grad_norm": 1.0, "train/global_step": 3}),
    ]
    batch = read(tmp_path, wandb_log([*bodies, exit_record(0)]))
    loss = rows(batch)["loss"].to_list()
    assert math.isnan(loss[0])
    assert loss[1:] == [0.0, 7.0]
    assert rules(batch) == ["nan_hidden_by_trainer"]


def test_system_records_of_one_sampling_become_one_row(tmp_path: Path) -> None:
    """Records closer than half the interval are merged; units are SI; the step is the last one."""
    bodies: list[bytes] = []
    for at in range(4):
        wall = 1.7e9 + 15 * at
        bodies.append(history({"loss": 2.0, "_step": 10 * at, "_timestamp": wall}))
        bodies.append(stats(wall + 1, {"gpu.0.gpu": 80, "gpu.0.temp": 61.5, "gpu.0.memory": 30}))
        bodies.append(
            stats(wall + 2, {"gpu.0.memoryAllocated": 50.0, "gpu.0.memoryAllocatedBytes": 4e9,
                             "proc.memory.rssMB": 1024, "memory_percent": 25.0})
        )  # fmt: skip
    frame = rows(read(tmp_path, wandb_log([*bodies, exit_record(0)])))
    system = frame.filter(frame["gpu_util"].is_not_null())
    assert system["step"].to_list() == [0, 10, 20, 30]
    assert system["gpu_util"].to_list() == [0.8] * 4
    assert system["gpu_temp_c"].to_list() == [61.5] * 4
    assert system["gpu_mem_bandwidth_util"].to_list() == [0.3] * 4
    assert system["mem_used_bytes"].to_list() == [4e9] * 4
    assert system["mem_total_bytes"].to_list() == [8e9] * 4
    assert system["host_rss_bytes"].to_list() == [2.0**30] * 4
    assert system["host_mem_share"].to_list() == [0.25] * 4


def test_gpus_of_other_jobs_are_left_out(tmp_path: Path) -> None:
    """Where gpu.process.N names the run's own GPUs, the others on the host are not its business."""
    values = {f"gpu.{n}.gpu": 10 * n for n in range(4)}
    values |= {"gpu.process.1.gpu": 10, "gpu.process.3.gpu": 30, "cpu": 5.0}
    bodies = [history({"loss": 1.0, "_step": 0, "_timestamp": 1e9}), stats(1e9 + 1, values)]
    frame = rows(read(tmp_path, wandb_log([*bodies, exit_record(0)])))
    system = frame.filter(frame["gpu_util"].is_not_null())
    assert system["rank"].to_list() == [1, 3]
    assert system["gpu_util"].to_list() == pytest.approx([0.1, 0.3])
    host = frame.filter(frame["raw/system/cpu"].is_not_null())
    assert host["rank"].to_list() == [None]


def test_configuration_exit_and_console(tmp_path: Path) -> None:
    """The configuration is an event, the exit code too; console text is handed over as it was."""
    told = {"lr": 0.01, "optim": {"beta": 0.9}, "_wandb": {"x": 1}}
    bodies = [config(told), printed("step 1\r"), *training(1), printed("Traceback\n")]
    data = wandb_log([*bodies, exit_record(1, 77)])
    batch = read(tmp_path, data)
    by_kind = {event.kind: event for event in batch.events}
    assert by_kind["config"].detail["optim.beta"] == "0.9"
    assert not any(name.startswith("_wandb") for name in by_kind["config"].detail)
    assert by_kind["exit"].detail == {"exit_code": 1, "runtime_s": 77}
    assert batch.account.ignored["console text, read as text"] == 2
    log = tmp_path / "run-ab12cd34.wandb"
    assert console_text(log) == b"step 1\rTraceback\n"
    line, offset, length = console(log).place(8)
    assert line == 4
    assert b"Traceback" in data[offset : offset + length]


def test_environment_is_never_read(tmp_path: Path) -> None:
    """Host, user and e-mail of the environment record reach no event."""
    person = field(26, field(10, "someone@example.org") + field(13, "someone"))
    batch = read(tmp_path, wandb_log([person, *training(1), exit_record(0)]))
    assert "someone" not in repr(batch.events)


def test_undecodable_record_is_unknown(tmp_path: Path) -> None:
    """A record with a right checksum and senseless content is counted, not raised."""
    batch = read(tmp_path, wandb_log([*training(2), field(2, b"\x0a\x7f\x01"), exit_record(0)]))
    assert rules(batch) == ["damaged_log"]
    assert batch.account.unknown == 1


def test_body_of_unknown_record() -> None:
    """A kind that nobody knows is a record all the same."""
    assert body_of(field(1, 5) + field(90, "later")) == (0, b"")


def test_only_a_header(tmp_path: Path) -> None:
    """A log that was created and never flushed is told as empty."""
    assert rules(read(tmp_path, HEADER)) == ["empty_log"]


VALUES = st.one_of(
    st.floats(),
    st.integers(-(2**53), 2**53),
    st.booleans(),
    st.none(),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "word", 'a "quoted" word', "long " * 40]),
    st.dictionaries(st.sampled_from(["x", "y"]), st.floats(allow_nan=False), max_size=2),
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "a/long/name", "k" * 140]), VALUES), max_size=12
    )
)
@settings(max_examples=150, deadline=None)
def test_rows_together_equal_rows_one_by_one(table: list[dict[str, object]]) -> None:
    """The array way gives bit by bit what decoding field by field gives."""
    fast = History()
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row, values in enumerate(table):
        record = history(values, nested=row % 2 == 0, step=row)
        _, body = body_of(record)
        fast.add(body, row, row, 1)
        for key, number in row_numbers(body):
            wanted.setdefault(key.decode(), []).append((row, number))
    got = {
        name: sorted(zip(rows_of.tolist(), map(repr, numbers.tolist()), strict=True))
        for name, (rows_of, numbers) in fast.columns().items()
    }
    assert got == {
        name: sorted((row, repr(number)) for row, number in pairs) for name, pairs in wanted.items()
    }
    assert not fast.damaged


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_no_damage_can_raise(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever bytes are changed, rows before the damage stay and every record is accounted for."""
    log = bytearray(wandb_log([config({"lr": 1}), *training(30), exit_record(0)]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(7, len(log) - 1))
        log[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    batch = read(tmp_path_factory.mktemp("wandb"), bytes(log))
    assert batch.account.lines >= 1
