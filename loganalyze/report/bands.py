"""The seeds' table of MFU bands: which one a run lies in."""

from __future__ import annotations

import numpy as np

from loganalyze.report import amounts
from loganalyze.report.model import RunView
from loganalyze.report.wording import Both, both
from loganalyze.running import median
from loganalyze.tracks import tracks

#: From the highest band down: the rule that it begins at, and its wording.
_BANDS = (
    ("seed.mfu_top", "ui_mfu_top"),
    ("seed.mfu_good", "ui_mfu_good"),
    ("seed.mfu_low", "ui_mfu_usual"),
)


def mfu_band(run: RunView) -> tuple[Both, Both, Both] | None:
    """Label, level and band (seed A §4.1) of the run's MFU; None where none is logged.

    The level is the median after the first third, which is start-up.
    """
    logged = [track.values[len(track) // 3 :] for track in tracks(run.diagnosis.run, "mfu")]
    values = np.concatenate(logged) if logged else np.empty(0)
    values = values[values > 0]
    limits = {rule.name: rule.value for rule in run.diagnosis.thresholds}
    if not len(values) or not all(name in limits for name, _ in _BANDS):
        return None
    level = median(values)
    band = next((word for name, word in _BANDS if level >= limits[name]), "ui_mfu_low")
    return both("ui_mfu_level"), amounts.amount(level, "share"), both(band)
