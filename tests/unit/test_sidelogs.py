"""Logs of GPU monitors become readings per GPU in SI units; kernel messages carry their time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from loganalyze_parsers import dcgm, dmon, head_of, nvidia_smi, parser_for
from loganalyze_parsers.api import Parser
from loganalyze_parsers.kernel_log import kernel_seconds

from loganalyze.ingest import ingest
from loganalyze.model import Batch

MIB = 1024.0**2
QUERY = """\
timestamp, index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total \
[MiB], power.draw [W], temperature.gpu, clocks.current.sm [MHz], clocks_event_reasons.active
2031/04/02 10:11:12.500, 0, 97 %, 61 %, 30211 MiB, 40960 MiB, 402.25 W, 71, 1410 MHz, 0x04
2031/04/02 10:11:12.501, 1, 3 %, 1 %, 900 MiB, 40960 MiB, [N/A], 31, 1410 MHz, 0x01
"""


def read(parser: Parser, path: Path) -> tuple[pl.DataFrame, list[Batch]]:
    """All readings of a file, and its batches; every line must be accounted for."""
    batches = list(parser.parse(path, 0))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    lines = sum(batch.account.lines for batch in batches)
    assert lines == len(path.read_text(encoding="utf-8").splitlines())
    for batch in batches:
        account = batch.account
        assert account.lines == account.read + account.ignored_total + account.unknown
    return (pl.concat(frames, how="diagonal") if frames else pl.DataFrame()), batches


def write(folder: Path, text: str, name: str = "gpu.csv") -> Path:
    """A file of that text, which its own parser must want."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_query_csv(tmp_path: Path) -> None:
    """Units come from the header or the value; rank is the GPU's index; [N/A] is missing."""
    path = write(tmp_path, QUERY)
    assert parser_for(head_of(path)) is nvidia_smi.PARSER
    frame, _ = read(nvidia_smi.PARSER, path)
    assert frame["rank"].to_list() == [0, 1]
    assert frame["gpu_util"].to_list() == [0.97, 0.03]
    assert frame["gpu_mem_bandwidth_util"].to_list() == [0.61, 0.01]
    assert frame["mem_used_bytes"].to_list() == [30211 * MIB, 900 * MIB]
    assert frame["mem_total_bytes"].to_list() == [40960 * MIB] * 2
    assert frame["gpu_power_w"].to_list() == [402.25, None]
    assert frame["gpu_temp_c"].to_list() == [71.0, 31.0]
    assert frame["gpu_sm_clock_hz"].to_list() == [1.41e9] * 2
    assert frame["raw/clocks_event_reasons.active"].to_list() == [4.0, 1.0]
    assert frame["wall_s"].to_list() == [1932891072.5, 1932891072.501]
    assert frame["step"].null_count() == 2


def test_query_csv_without_units(tmp_path: Path) -> None:
    """`nounits` changes nothing: the names say what the numbers are."""
    text = QUERY.replace(" %", "").replace(" MiB,", ",").replace(" W,", ",").replace(" MHz", "")
    frame, _ = read(nvidia_smi.PARSER, write(tmp_path, text))
    expected, _ = read(nvidia_smi.PARSER, write(tmp_path, QUERY, "b.csv"))
    assert frame.drop("length", "offset").equals(expected.drop("length", "offset"))


def test_query_csv_without_header(tmp_path: Path) -> None:
    """Without a header the units tell the columns, and that is reported."""
    rows = QUERY.split("\n", 1)[1].replace(", 0x04", "").replace(", 0x01", "")
    path = write(tmp_path, rows)
    assert parser_for(head_of(path)) is nvidia_smi.PARSER
    frame, batches = read(nvidia_smi.PARSER, path)
    assert frame["gpu_util"].to_list() == [0.97, 0.03]
    assert frame["mem_used_bytes"].to_list() == [30211 * MIB, 900 * MIB]
    assert frame["gpu_temp_c"].to_list() == [71.0, 31.0]
    assert frame["rank"].to_list() == [0, 1]
    assert [problem.rule for batch in batches for problem in batch.problems] == ["columns_guessed"]


def test_query_csv_header_again_and_lost_gpu(tmp_path: Path) -> None:
    """A repeated header is no row; a GPU that does not answer is an event."""
    text = "index, utilization.gpu [%], power.draw [W]\n2, 5 %, 60.00 W\n"
    text += "index, utilization.gpu [%], power.draw [W]\n2, [GPU is lost], [GPU is lost]\n\njunk\n"
    frame, batches = read(nvidia_smi.PARSER, write(tmp_path, text))
    assert frame["gpu_power_w"].to_list() == [60.0]
    events = [event for batch in batches for event in batch.events]
    assert [(event.kind, event.rank) for event in events] == [("hardware_error", 2)]
    assert sum(batch.account.unknown for batch in batches) == 1


def test_gpus_named_by_uuid(tmp_path: Path) -> None:
    """Where no index is queried, GPUs are numbered as they appear."""
    text = "gpu_uuid, utilization.gpu [%]\nGPU-b, 5 %\nGPU-a, 6 %\nGPU-b, 7 %\n"
    frame, _ = read(nvidia_smi.PARSER, write(tmp_path, text))
    assert frame["rank"].to_list() == [0, 1, 0]


DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem     fb   mclk   pclk
# Idx      W      C      C      %      %     MB    MHz    MHz
    0    301     62      -     98     61  30211   2619   1935
    1     88     35     41      0      0      7   2619    345
# gpu    pwr  gtemp  mtemp     sm    mem     fb   mclk   pclk
# Idx      W      C      C      %      %     MB    MHz    MHz
    0    302     63      -     97     60  30212   2619   1930
"""


def test_dmon(tmp_path: Path) -> None:
    """Columns come from the header, which repeats; a dash is missing."""
    path = write(tmp_path, DMON, "dmon.txt")
    assert parser_for(head_of(path)) is dmon.PARSER
    frame, _ = read(dmon.PARSER, path)
    assert frame["rank"].to_list() == [0, 1, 0]
    assert frame["gpu_power_w"].to_list() == [301.0, 88.0, 302.0]
    assert frame["gpu_util"].to_list() == [0.98, 0.0, 0.97]
    assert frame["gpu_sm_clock_hz"].to_list() == [1.935e9, 3.45e8, 1.93e9]
    assert frame["mem_used_bytes"].to_list() == [30211 * MIB, 7 * MIB, 30212 * MIB]
    assert frame["raw/gpu_mem_temp_c"].to_list() == [None, 41.0, None]
    assert frame["wall_s"].null_count() == 3


def test_dmon_with_date_and_time(tmp_path: Path) -> None:
    """`-o DT` gives the rows a time."""
    text = "#Date       Time        gpu    pwr\n#YYYYMMDD   HH:MM:SS    Idx      W\n"
    text += " 20310402   10:11:12      3    250\n"
    frame, _ = read(dmon.PARSER, write(tmp_path, text, "dmon.log"))
    assert frame.select("rank", "wall_s", "gpu_power_w").row(0) == (3, 1932891072.0, 250.0)


def _sample(field: str, gpu: int, value: str) -> str:
    return f'DCGM_FI_{field}{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="node7"}} {value}\n'


def test_dcgm(tmp_path: Path) -> None:
    """One reading a sample; blanks are missing; an Xid is told once, as an event."""
    text = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
    text += _sample("DEV_GPU_UTIL", 2, "97 1932891072000") + _sample("DEV_FB_USED", 2, "30211")
    text += _sample("DEV_SM_CLOCK", 2, "1410") + _sample("DEV_POWER_USAGE", 3, "401.5")
    text += _sample("DEV_MEMORY_TEMP", 2, "9223372036854775794")
    text += _sample("DEV_XID_ERRORS", 2, "79") * 2 + _sample("DEV_XID_ERRORS", 3, "0")
    text += "go_goroutines 9\n"
    path = write(tmp_path, text, "metrics.prom")
    assert parser_for(head_of(path)) is dcgm.PARSER
    frame, batches = read(dcgm.PARSER, path)
    assert frame["gpu_util"].drop_nulls().to_list() == [0.97]
    assert frame["mem_used_bytes"].drop_nulls().to_list() == [30211 * MIB]
    assert frame["gpu_sm_clock_hz"].drop_nulls().to_list() == [1.41e9]
    assert frame.filter(pl.col("gpu_power_w").is_not_null())["rank"].to_list() == [3]
    assert frame["wall_s"][0] == 1932891072.0
    events = [event for batch in batches for event in batch.events]
    assert [(event.kind, event.rank, event.detail["xid"]) for event in events] == [("xid", 2, 79)]
    ignored = batches[0].account.ignored
    assert ignored == {"blank value": 1, "comment": 1, "metric of another exporter": 1}


@pytest.mark.parametrize("text", ["step,loss\n1,2.5\n", "a, b\n1, 2\n", "index, loss\n0, 2.5\n"])
def test_other_tables_are_left_alone(tmp_path: Path, text: str) -> None:
    """No GPU monitor claims a table of training numbers."""
    head = head_of(write(tmp_path, text))
    assert [parser.sniff(head) for parser in (nvidia_smi.PARSER, dmon.PARSER, dcgm.PARSER)] == [
        0.0
    ] * 3


def test_kernel_time() -> None:
    """`dmesg -T` stamps are moments, seconds since boot are not."""
    assert kernel_seconds("[Wed Apr  2 10:11:12 2031] NVRM: x") == 1932891072.0
    assert kernel_seconds("[Wed Apr 32 10:11:12 2031] NVRM: x") is None
    assert kernel_seconds("[ 1843.308145] NVRM: x") is None


def test_dcgmi_dmon(tmp_path: Path) -> None:
    """dcgmi's table is read by its own short names; N/A is no number."""
    path = tmp_path / "dcgmi.txt"
    path.write_text(
        "#Entity   GPUTL   MCUTL   POWER   TMPTR   SMCLK\n"
        "ID                        W       C       MHz\n"
        "GPU 0     97      40      313.2   65      1980\n"
        "GPU 1     96      40      N/A     65      1980\n"
    )
    rows = ingest([str(path)]).runs[0].readings
    assert rows["rank"].to_list() == [0, 1]
    assert rows["gpu_util"].to_list() == [0.97, 0.96]
    assert rows["gpu_power_w"].to_list() == [313.2, None]
    assert rows["gpu_sm_clock_hz"].to_list() == [1.98e9, 1.98e9]
