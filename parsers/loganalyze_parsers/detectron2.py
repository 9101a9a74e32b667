"""Detectron2's writer, and LiBai with it: `key: value` pairs between two spaces.

    [04/02 10:11:12 d2.utils.events]:  eta: 4:52:26  iter: 40  total_loss: 1.75  loss_cls: 1.25
        time: 0.2  data_time: 0.003  lr: 0.0002  max_mem: 2996M
    [04/02 10:11:12 lb.utils.events]:  eta: 21:00:38  iteration: 40/10000  consumed_samples: 160
        total_loss: 9.9  time: 7.5 s/iter  data_time: 0.002 s/iter total_throughput: 0.53 samples/s

total_loss and the times are medians or means over the lines' window; memory is in 1024**2 bytes.

>>> from loganalyze_parsers.samples import rows_of
>>> line = "eta: 0:52:26  iter: 40  total_loss: 1.75  time: 0.2  lr: 0.0002  max_mem: 3000M"
>>> step, values = rows_of(DIALECT, line)[-1]
>>> step, values["loss"], values["step_time_s"], values["mem_peak_allocated_bytes"]
(40, 1.75, 0.2, 3145728000.0)
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.numbers import NUMBER
from loganalyze_parsers.pairs import PairFormat, pair_dialect

_FORM = PairFormat(
    start=lazy.pattern(r"\biter(?:ation)?: (?P<step>\d+)(?:/\d+)?  (?=[a-z])"),
    pair=lazy.pattern(rf"([A-Za-z_][\w/]{{0,120}}): ({NUMBER}M?)(?=\s|$)"),
    names={
        "total_loss": ("loss", 1.0),
        "time": ("step_time_s", 1.0),
        "data_time": ("data_time_s", 1.0),
        "lr": ("lr", 1.0),
        "max_mem": ("mem_peak_allocated_bytes", 1024.0**2 / 1e6),
        "consumed_samples": ("samples_seen", 1.0),
        "total_throughput": ("samples_per_s", 1.0),
    },
)
DIALECT = pair_dialect("detectron2", ("  total_loss: ",), _FORM, about="Detectron2 and LiBai")
