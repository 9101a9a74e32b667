"""DeepSpeed's longer reports: communication logger and FLOPs profiler.

    comm op: all_reduce | time (ms): 1.32 | msg size: 64.0 MB | algbw (Gbps): 406.7 | busbw ...
    Comm. Op            Message Size        Count    Total Latency(ms)   Avg Latency(ms)  ...
    all_reduce
                        64.0 MB             12       15.9                1.3              ...
    -------------------------- DeepSpeed Flops Profiler --------------------------
    Profile Summary at step 10:
    fwd latency:                                            70.67 ms
    samples/second:                                         8.77

The profiled step is slower than others, so nothing of it enters a curve: all names are
raw/profiler/..., in SI units; communication is raw/comm/<operation>/...
"""

from __future__ import annotations

import re

from loganalyze import lazy
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.deepspeed_state import State, event, parsed, reading
from loganalyze_parsers.numbers import BYTES, MAGNITUDE, NUMBER

_OPERATION = lazy.pattern(
    rf"comm op: (\w+) \| time \(ms\): ({NUMBER}) \| msg size: ({NUMBER}) (\w+) \| "
    rf"algbw \(Gbps\): ({NUMBER}) \| busbw \(Gbps\): ({NUMBER})"
)
_SUMMARY_HEAD = "Comm. Op"
_SUMMARY_NAME = lazy.pattern(r"[a-z][a-z_0-9]*$")
_SUMMARY_ROW = lazy.pattern(
    rf"\s*({NUMBER}) ?(B|KB|MB|GB|TB)\s+(\d{{1,15}})\s+({NUMBER})\s+({NUMBER})\s+({NUMBER})"
    rf"\s+({NUMBER})\s*$"
)
_ROW_NAMES = ("count", "total_latency_ms", "avg_latency_ms", "algbw_gbps", "busbw_gbps")
_PROFILE = lazy.pattern(r"Profile Summary at step (\d{1,15})")
_PROFILE_ROW = lazy.pattern(
    rf"(?P<label>[A-Za-z][\w /()=*+,.%-]{{0,200}}?):\s{{1,99}}(?P<value>{NUMBER})\s{{0,99}}"
    r"(?P<unit>[KMGTP]?(?:FLOPS|MACs|B)?|us|ms|s)?\s{0,99}$"
)
#: The profiler explains its terms and prints the tree of modules.
_PROFILE_TALK = (
    "Notations", "----", "data parallel size (", "number of parameters (", "number of floating",
    "Aggregated", "Top ", "depth ", "params  ", "MACs  ", "fwd latency  ", "fwd latency (",
    "step (", "Note: ", "1. ", "2. ", "3. ", "Each module profile", "params, percentage",
)  # fmt: skip
#: A module of the tree: its share of the parameters, of the work and of the time.
_PROFILE_TREE = lazy.pattern(
    r"(?:\(\w+\): )?(?:\w+\()?[\d.]+(?: [KMGTk])?, [\d.]+% Params, |\(\w+\): \w+\($|\w+\($|\)$"
)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Reports:
    """Which report is open: its rows carry no mark of their own."""

    def __init__(self) -> None:
        """None."""
        self.kind = ""
        self._operation = ""
        self._step: int | None = None

    def feed(self, line: Line, state: State) -> Taken | None:
        """A row of an open report, the head of one, or one verbose operation."""
        if self.kind:
            taken = self._row(line, state)
            if taken is not None:
                return taken
            self.kind = ""
        return self._head(line, state) or _operation(line, state)

    def _head(self, line: Line, state: State) -> Taken | None:
        text = line.text
        match = _PROFILE.search(text)
        if match is not None:
            self.kind, self._step = "profile", int(match[1])
            return Taken(events=[event(line, "note", self._step, report="flops_profiler")])
        if text.startswith("----") and "DeepSpeed Flops Profiler" in text:
            self.kind, self._step = "profile", state.step
            return Taken(ignored="head of a report")
        if _SUMMARY_HEAD in text and "Latency" in text:
            self.kind, self._operation = "comms", ""
            return Taken(ignored="head of a report")
        return None

    def _row(self, line: Line, state: State) -> Taken | None:
        return self._comms_row(line, state) if self.kind == "comms" else self._profile_row(line)

    def _comms_row(self, line: Line, state: State) -> Taken | None:
        match = _SUMMARY_ROW.match(line.text)
        if match is None:
            if not _SUMMARY_NAME.match(line.text):
                return None
            self._operation = line.text
            return Taken(ignored="head of a report")
        place = f"raw/comm/{self._operation}/{match[1]}{match[2]}"
        values = {
            f"{place}/{name}": parsed(raw)
            for name, raw in zip(_ROW_NAMES, match.groups()[2:], strict=True)
        }
        return Taken(readings=[reading(line, state.step, values)])

    def _profile_row(self, line: Line) -> Taken | None:
        text = line.text
        match = _PROFILE.search(text)
        if match is not None:
            self._step = int(match[1])
            return Taken(events=[event(line, "note", self._step, report="flops_profiler")])
        match = _PROFILE_ROW.match(text)
        if match is None:
            talk = not text or text.startswith(_PROFILE_TALK) or _PROFILE_TREE.match(text)
            return Taken(ignored="head of a report") if talk else None
        unit = match["unit"] or ""
        factor = _SECONDS.get(unit) or MAGNITUDE.get(unit[:1], 1.0)
        name = re.sub(r"\W+", "_", match["label"].lower()).strip("_")
        suffix = "_s" if unit in _SECONDS else ""
        values = {f"raw/profiler/{name}{suffix}": parsed(match["value"].replace(",", "")) * factor}
        return Taken(readings=[reading(line, self._step, values)])


def _operation(line: Line, state: State) -> Taken | None:
    match = _OPERATION.search(line.text)
    if match is None:
        return None
    place = f"raw/comm/{match[1]}"
    values = {
        f"{place}/time_s": parsed(match[2]) / 1000.0,
        # the logger divides by 1024 (utils/comms_logging.py: convert_size)
        f"{place}/bytes": parsed(match[3]) * BYTES.get(match[4].lower().replace("b", "ib", 1), 1.0),
        f"{place}/algbw_gbps": parsed(match[5]),
        f"{place}/busbw_gbps": parsed(match[6]),
    }
    return Taken(readings=[reading(line, state.step, values)])
