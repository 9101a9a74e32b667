"""The queries of docs/scale.md run on a store, and give what they promise."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, loopback_is_up
from textlogs import megatron_line

from loganalyze import shards
from loganalyze.ingest import ingest
from loganalyze.pipeline import Judging, report_on
from loganalyze.report import write_files
from loganalyze.store import write_run

PAGE = ROOT / "docs" / "scale.md"
SLOWEST = [(6, 1.3), (7, 1.007), (5, 1.005)]
if not PAGE.is_file():
    pytest.skip("only a checkout has all the pages", allow_module_level=True)


def blocks(kind: str) -> list[str]:
    """Blocks of code of one kind, in order."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[int, float]]:
    """Rank and seconds, to the millisecond."""
    return [(rank, round(seconds, 3)) for rank, seconds in rows]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs/train of eight ranks, rank 6 slow, and a report of two runs."""
    monkeypatch.chdir(tmp_path)
    for rank in range(8):
        seconds = 1300 if rank == 6 else 1000 + rank
        lines = [
            megatron_line(
                n, **{"elapsed time per iteration (ms)": f"{seconds}.0", "lm loss": "2.0"}
            )
            for n in range(1, 41)
        ]
        (tmp_path / f"train_rank_{rank}.log").write_text("\n".join(lines) + "\n")
    (run,) = ingest([str(tmp_path)]).runs
    assert write_run(run, tmp_path / "runs").name == "train"
    (tmp_path / "other.log").write_text((tmp_path / "train_rank_6.log").read_text())
    write_files(report_on(["runs/train", "other.log"], Judging()), tmp_path / "reports")
    return tmp_path


def test_polars(place: Path) -> None:
    """The slowest ranks, slowest first."""
    (code,) = blocks("python polars")
    names: dict[str, Any] = {}
    exec(code, names)
    assert rounded(names["answer"].rows()) == SLOWEST


def test_duckdb(place: Path) -> None:
    """The same with DuckDB; the kinds of findings over all runs."""
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    slowest, kinds = blocks("sql duckdb")
    assert rounded(duckdb.sql(slowest).fetchall()) == SLOWEST
    assert ("straggler_rank", 1) in duckdb.sql(kinds).fetchall()


def test_spark(place: Path) -> None:
    """The same with Spark, where it and a Java are installed."""
    pyspark_sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed")
    if shutil.which("java") is None or not loopback_is_up():
        pytest.skip("Spark needs a Java, and a loopback to speak to it")
    (code,) = blocks("python spark")
    session = pyspark_sql.SparkSession.builder.master("local[1]").config(
        "spark.ui.enabled", "false"
    )
    names: dict[str, Any] = {"spark": session.getOrCreate()}
    try:
        exec(code, names)
        assert rounded([tuple(row) for row in names["answer"].collect()]) == SLOWEST
    finally:
        names["spark"].stop()


def test_submitit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of this machine, as there is no Slurm: two shards, and the report of one process."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setattr(shards, "SHARD_FILES", 4)
    logs = str(place / "train_rank_*.log")
    names = {"store": place / "store", "logs": logs, "reports": place / "by_jobs"}
    (code,) = blocks("python submitit")
    exec(code, names)
    assert len({path.name.partition("_")[0] for path in (place / "store/submitit").iterdir()}) == 2
    alone = write_files(report_on([logs], Judging()), place / "by_one")
    assert (place / "by_jobs" / alone[1].name).read_bytes() == alone[1].read_bytes()


@pytest.mark.parametrize("kind", ["python dask", "python submitit", "python spark"])
def test_the_other_blocks_name_what_exists(kind: str) -> None:
    """They are Python, and what they import of loganalyze is there."""
    (code,) = blocks(kind)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("loganalyze"):
            module = __import__(str(node.module), fromlist=["*"])
            assert all(hasattr(module, alias.name) for alias in node.names)
