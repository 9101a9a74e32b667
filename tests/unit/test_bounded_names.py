"""Numbers under endless different names: columns stay bounded, and what is left out is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers import frames, tracker_frames
from loganalyze_parsers.frames import Names, readings_frame

from loganalyze.ingest import ingest
from loganalyze.model import LineRef, Reading
from loganalyze.pipeline import limits_reached


def test_text_log_of_endless_names(tmp_path: Path) -> None:
    """Known metrics are all read; of the other names the first 512 or so, and that is a limit."""
    path = tmp_path / "train.log"
    lines = [f"{{'loss': {1 + n}, 'metric_{n}': 2.5, 'epoch': 0.1}}" for n in range(6000)]
    path.write_text("\n".join(lines))
    (run,) = ingest([str(path)]).runs
    assert run.readings["loss"].null_count() == 0
    others = [name for name in run.readings.columns if name.startswith("raw/")]
    assert 512 <= len(others) <= 10_000_000 // 6000 + 1
    (told,) = limits_reached([run])
    assert "left out" in told
    assert str(path) in told


def test_usual_log_reaches_no_limit(tmp_path: Path) -> None:
    """Some hundred names are all read."""
    path = tmp_path / "train.log"
    lines = [f"{{'loss': 2.5, 'key_{n % 400}': {n}.5, 'epoch': 0.1}}" for n in range(1200)]
    path.write_text("\n".join(lines))
    (run,) = ingest([str(path)]).runs
    assert len(run.readings.columns) > 400
    assert limits_reached([run]) == ()


def test_history_of_endless_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many columns the known and the fullest are kept, and that is a limit."""
    monkeypatch.setattr(tracker_frames, "MOST_CELLS", 1000)
    monkeypatch.setattr(tracker_frames, "LEAST_COLUMNS", 5)
    path = tmp_path / "wandb-history.jsonl"
    rows = [{"_step": n, "loss": 2.5, "often": n, f"once{n}": 1.0} for n in range(300)]
    path.write_text("\n".join(map(json.dumps, rows)))
    (run,) = ingest([str(path)]).runs
    assert {"loss", "raw/often"} <= set(run.readings.columns)
    assert len(limits_reached([run])) == 1


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.lists(
        st.dictionaries(st.sampled_from([f"raw/{n}" for n in range(40)]), st.floats(), max_size=3),
        min_size=1, max_size=40,
    )
)  # fmt: skip
def test_sparse_is_dense(rows: list[dict[str, float]]) -> None:
    """Columns filled number by number are those filled cell by cell."""
    readings = [
        Reading(step=n, ref=LineRef(source=0, line=n, offset=n, length=1), values=values)
        for n, values in enumerate(rows)
    ]
    frame = readings_frame(readings)
    assert frame is not None
    for name in frame.columns[len(frames.KEY_SCHEMA) :]:
        plain = pl.Series(name, [values.get(name) for values in rows], dtype=pl.Float64)
        assert frame[name].equals(plain, null_equal=True)


def test_nan_is_no_absence() -> None:
    """A NaN stays a NaN, an empty cell stays empty."""
    made = frames.masked_column(np.array([1.0, np.nan, 3.0]), np.array([False, False, True]))
    assert made.null_count() == 1
    assert made.is_nan().to_list() == [False, True, None]


def test_names_are_counted_over_the_blocks() -> None:
    """The bound is that of the whole input, not of each block."""
    names = Names(cells=10, least=3)
    ref = LineRef(source=0, line=1, offset=0, length=1)
    for block in range(4):
        one = Reading(step=1, ref=ref, values={f"raw/{block}a": 1.0, f"raw/{block}b": 1.0})
        kept = names.admitted([one, one])
        assert len(kept) == 2
    assert len(names.left_out) > 0
    assert "left out" in names.problems("x.log")[0].message
