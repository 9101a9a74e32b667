"""Names of SwanLab's numbered columns, from the store's own database.

swanlog/runs.swanlab      SQLite: experiment(id, run_id, name), tag(experiment_id, name, folder)
swanlog/run-<date>-<id>/logs/<column>/<slice>.log
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from loganalyze_parsers.numbers import is_digits
from loganalyze_parsers.tables_sqlite import MAGIC, failures, opened

_QUERY = (
    "select tag.folder, tag.name from tag join experiment on tag.experiment_id = experiment.id "
    "where experiment.run_id = ?"
)


def column_name(path: Path) -> str | None:
    """The tag of a metric file in a numbered folder; None where the database does not tell."""
    folder = path.parent
    if not is_digits(folder.name) or folder.parent.name != "logs":
        return None
    run = folder.parent.parent
    return _tags(run.parent / "runs.swanlab", run.name).get(folder.name)


@lru_cache(maxsize=64)
def _tags(database: Path, run: str) -> dict[str, str]:
    try:
        with database.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return {}
        with opened(database) as connection:
            rows = connection.execute(_QUERY, (run,)).fetchall()
            if not rows:  # run_id is the id alone in some versions
                rows = connection.execute(_QUERY, (run.rsplit("-", 1)[-1],)).fetchall()
    except failures():
        return {}
    return {str(folder): str(name) for folder, name in rows}
