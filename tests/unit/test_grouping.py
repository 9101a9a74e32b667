"""Which inputs belong to one run, and what becomes of side logs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from textlogs import megatron_line

from loganalyze.cli import cli
from loganalyze.errors import UsageError
from loganalyze.ingest import ingest
from loganalyze.inputs import rank_of, stem


def write(folder: Path, name: str, first: int, count: int = 5) -> str:
    """A small Megatron log of some steps with times; returns its path."""
    lines = [
        f"[2031-01-02 03:04:{n % 60:02d}]{megatron_line(n, lm_loss=f'{5 - n / 50:.3f}')}"
        for n in range(first, first + count)
    ]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("slurm-77.out", "slurm-77"),
        ("slurm-77.err", "slurm-77"),
        ("train_rank_3.log.gz", "train"),
        ("train.log.2", "train"),
        ("worker-1.log", ""),
        ("train.log.3.gz", "train"),
        ("gpt3.3328593.o", "gpt3.3328593"),
    ],
)
def test_stem(name: str, expected: str) -> None:
    """What tells parts of one run apart (rank, stream, rotation, compression) comes off a name."""
    assert stem(Path(name)) == expected


def test_rank_of_a_file_name(tmp_path: Path) -> None:
    """A rank in the file's name becomes the rank of its rows."""
    assert rank_of(Path("train_rank_3.log")) == 3
    paths = [write(tmp_path, f"train_rank_{rank}.log", 1) for rank in (0, 1)]
    made = ingest(paths)
    assert len(made.runs) == 1
    assert sorted(set(made.runs[0].readings["rank"].to_list())) == [0, 1]


def test_output_and_error_are_one_run(tmp_path: Path) -> None:
    """Standard output and error of one job are one run; other names are other runs."""
    paths = [write(tmp_path, "slurm-7.out", 1), write(tmp_path, "slurm-8.out", 1)]
    (tmp_path / "slurm-7.err").write_text("RuntimeError: something broke\n")
    made = ingest([*paths, str(tmp_path / "slurm-7.err")])
    assert [run.meta.id for run in made.runs] == ["slurm-7", "slurm-8"]
    assert len(made.runs[0].sources) == 2


def test_the_user_can_say_what_is_one_run(tmp_path: Path) -> None:
    """--run NAME=GLOB puts files together; a glob without a match is an error."""
    paths = [write(tmp_path, "monday.log", 1), write(tmp_path, "tuesday.log", 6)]
    made = ingest(paths, named=["week=*day.log"])
    assert [run.meta.id for run in made.runs] == ["week"]
    assert made.runs[0].meta.segments[0].count == 10
    with pytest.raises(UsageError, match="no input matches"):
        ingest(paths, named=["week=*.csv"])


def test_monitor_of_the_same_time_joins_its_run(tmp_path: Path) -> None:
    """A GPU monitor's log without steps joins the one run whose time it overlaps."""
    train = write(tmp_path, "train.log", 1)
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, utilization.gpu [%], temperature.gpu\n"
        "2031/01/02 03:04:03.000, 0, 97 %, 71\n2031/01/02 03:04:04.000, 0, 96 %, 72\n"
    )
    made = ingest([train, str(tmp_path / "gpu.csv")])
    assert len(made.runs) == 1
    run = made.runs[0]
    assert run.readings["gpu_temp_c"].drop_nulls().to_list() == [71.0, 72.0]
    assert set(run.readings["source"].to_list()) == {0, 1}
    assert "side logs of the same time" in run.meta.grouping


def test_monitor_of_another_time_stays_apart(tmp_path: Path) -> None:
    """A monitor's log of another day is not mixed into the run."""
    train = write(tmp_path, "train.log", 1)
    (tmp_path / "gpu.csv").write_text(
        "timestamp, index, utilization.gpu [%], temperature.gpu\n"
        "2032/01/02 03:04:03.000, 0, 97 %, 71\n"
    )
    assert len(ingest([train, str(tmp_path / "gpu.csv")]).runs) == 2


def test_columns_can_be_named(tmp_path: Path) -> None:
    """--map reads an unknown column as the metric that the user says it is."""
    (tmp_path / "own.csv").write_text("step,loss,wobble\n1,4.0,0.5\n2,3.5,0.6\n3,3.2,0.7\n")
    made = ingest([str(tmp_path / "own.csv")], mapped={"wobble": "grad_norm"})
    assert made.runs[0].readings["grad_norm"].to_list() == [0.5, 0.6, 0.7]


def test_order_of_the_files_does_not_matter(tmp_path: Path) -> None:
    """The same files in another order give the same run."""
    paths = [write(tmp_path, f"train_rank_{rank}.log", 1) for rank in (0, 1, 2)]
    one, other = ingest(paths).runs[0], ingest(paths[::-1]).runs[0]
    assert one.readings.equals(other.readings)
    assert one.meta == other.meta


def test_rotated_parts_are_read_as_they_were_written(tmp_path: Path) -> None:
    """The highest number of a rotated log is its oldest part; together they are one run."""
    for name, first in (("train.log.2", 1), ("train.log.1", 6), ("train.log", 11)):
        write(tmp_path, name, first)
    made = ingest([str(tmp_path)])
    assert len(made.runs) == 1
    run = made.runs[0]
    assert run.readings["step"].to_list() == list(range(1, 16))
    assert [segment.relation for segment in run.meta.segments] == ["start"]
    assert [Path(source.path).name for source in run.sources] == [
        "train.log.2", "train.log.1", "train.log",
    ]  # fmt: skip


def test_rows_are_counted_on_over_rotated_parts(tmp_path: Path) -> None:
    """Rows that do not say their step are counted over all parts of a log, packed ones too."""
    rows = [f"{{'loss': {5 - n / 50:.2f}, 'epoch': {n / 100:.2f}}}\n" for n in range(1, 31)]
    with gzip.open(tmp_path / "train.log.2.gz", "wt") as file:
        file.writelines(rows[:10])
    (tmp_path / "train.log.1").write_text("".join(rows[10:20]))
    (tmp_path / "train.log").write_text("".join(rows[20:]))
    (run,) = ingest([str(tmp_path)]).runs
    assert run.readings["step"].to_list() == list(range(1, 31))
    assert [(s.account.lines, s.account.read) for s in run.sources] == [(10, 10)] * 3


def test_parts_rotated_by_date(tmp_path: Path) -> None:
    """Parts that carry their date are read from the oldest to the one still written."""
    for name, first in (("a.log-20260131", 1), ("a.log-20260201", 6), ("a.log", 11)):
        write(tmp_path, name, first)
    (run,) = ingest([str(tmp_path)]).runs
    assert run.readings["step"].to_list() == list(range(1, 16))


def test_files_of_a_usual_name_are_called_after_their_folder(tmp_path: Path) -> None:
    """Two runs' trainer_state.json carry the names of their output folders."""
    for name, loss in (("small", 2.0), ("large", 3.0)):
        (tmp_path / name).mkdir()
        rows = [{"step": n, "loss": loss + 1 / n, "epoch": 0.1 * n} for n in range(1, 6)]
        (tmp_path / name / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    made = ingest([str(tmp_path)])
    assert sorted(run.meta.id for run in made.runs) == ["large", "small"]


@pytest.mark.parametrize("command", ["ingest", "diagnose"])
def test_standard_input_is_read(command: str, tmp_path: Path) -> None:
    """`-` reads a pipe once, progress bar or not, and says what it found in it."""
    text = Path(write(tmp_path, "train.log", 1)).read_text()
    rest = ["--store", str(tmp_path / "runs")] if command == "ingest" else ["-o", "-"]
    outcome = CliRunner().invoke(cli, [command, "-", *rest], input=text, standalone_mode=False)
    assert outcome.exception is None
    assert outcome.return_value == 0
    assert "stdin" in outcome.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.csv", "a.total,b\n2.5,10\n2.25,20\n2.125,30\n"),
        ("own.jsonl", "".join(
            f'{{"b": {step}, "a": {{"total": {loss}}}}}\n'
            for step, loss in ((10, 2.5), (20, 2.25), (30, 2.125))
        )),
    ],
)  # fmt: skip
def test_a_table_of_unknown_columns_is_read_by_the_users_word(
    name: str, text: str, tmp_path: Path
) -> None:
    """With --map a table is read of which no column is known, its steps included."""
    (tmp_path / name).write_text(text)
    path = str(tmp_path / name)
    assert not any(len(run.readings) for run in ingest([path]).runs)
    (run,) = ingest([path], mapped={"a.total": "loss", "b": "step"}).runs
    assert run.readings.select("step", "loss").rows() == [(10, 2.5), (20, 2.25), (30, 2.125)]
    assert not run.problems


def test_torchruns_folders_are_the_ranks_of_one_job(tmp_path: Path) -> None:
    """JOB/attempt_0/RANK/std*.log: one run, the folders' numbers are its ranks."""
    for rank in range(4):
        folder = tmp_path / "job_7" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        lines = [megatron_line(n, lm_loss=f"{rank + 1}.5") for n in range(1, 4)]
        (folder / "stdout.log").write_text("\n".join(lines) + "\n")
        (folder / "stderr.log").write_text("RuntimeError: CUDA error: unspecified\n" * (rank == 2))
    (run,) = ingest([str(tmp_path)]).runs
    assert run.meta.id == "job_7"
    ranks = run.readings.group_by("rank").agg(pl.col("loss").first()).sort("rank")
    assert ranks.rows() == [(0, 1.5), (1, 2.5), (2, 3.5), (3, 4.5)]
