"""SwanLab's files of one metric; all samples are invented."""

from __future__ import annotations

from pathlib import Path

from textlogs import column, run_of

ROWS = "".join(
    f'{{"index": {step}, "data": {value}, "create_time": "2031-04-02T10:{minute}:00.500+00:00"}}\n'
    for step, value, minute in ((10, 1.5, 10), (20, 1.25, 11), (30, 1.125, 13))
)


def test_metric_by_the_name_of_its_folder(tmp_path: Path) -> None:
    """The folder names the metric; create_time gives seconds per step and the wall time."""
    folder = tmp_path / "train%2Floss"
    folder.mkdir()
    run = run_of(ROWS, folder, "10.log")
    assert column(run, "step") == [10, 20, 30]
    assert column(run, "loss") == [1.5, 1.25, 1.125]
    assert column(run, "step_time_s") == [None, 6.0, 12.0]
    assert run.readings["wall_s"][0] == 1932891000.5


def test_numbered_folder_names_nothing(tmp_path: Path) -> None:
    """Where nothing names the metric it is kept as raw, and that is said; bad lines are unknown."""
    folder = tmp_path / "3"
    folder.mkdir()
    run = run_of(ROWS + "torn {\n", folder, "1000.log")
    assert column(run, "raw/swanlab/3") == [1.5, 1.25, 1.125]
    assert any(problem.rule == "metric_without_name" for problem in run.problems)
    assert run.sources[0].account.unknown == 1
