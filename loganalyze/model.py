"""Every type that crosses a stage: frozen, slotted, keyword-only, units in the names.

parse -> store -> detect -> diagnose -> report; each stage takes one of these values and
returns another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct, field

if TYPE_CHECKING:
    from pathlib import Path

    # polars costs a third of a second to import; types alone do not need it
    import polars as pl

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
Verdict = Literal["clean", "info", "warning", "critical", "unreadable"]
Relation = Literal["start", "resume", "fresh", "parallel"]
CheckState = Literal["supported", "ruled_out", "not_checkable"]
Detail = Mapping[str, str | int | float | None]

#: Columns that every readings frame has, before one Float64 column for each metric.
READING_COLUMNS = (
    "step", "segment", "rank", "wall_s", "source", "line", "offset", "length",
)  # fmt: skip
#: Columns of the events frame; `detail` is a JSON object.
EVENT_COLUMNS = (
    "kind", "step", "segment", "rank", "wall_s", "source", "line", "offset", "length",
    "text", "detail",
)  # fmt: skip

#: The closed vocabulary of event kinds.
EVENT_KINDS = frozenset({
    "checkpoint_save_begin", "checkpoint_save_end", "checkpoint_load", "checkpoint_failed",
    "start_fresh", "evaluation", "config", "overflow", "rerun_mismatch", "data_exhausted",
    "exit", "signal", "time_limit", "killed", "exception", "oom", "host_oom", "comm_timeout",
    "comm_error", "xid", "hardware_error", "hang", "disk_full", "warning", "note",
})  # fmt: skip


class LineRef(Struct, frozen=True, kw_only=True):
    """Where something stands in an input: bytes [offset, offset + length) of line `line`.

    `source` is an index into RunLog.sources; `line` counts from 1 (for inputs without lines,
    such as event files, it is the number of the record).
    """

    source: int
    line: int
    offset: int
    length: int


class Reading(Struct, frozen=True, kw_only=True):
    """One log line that carried numbers.

    values: canonical metric (or `raw/<name>`) to number in the unit of metrics.toml. A missing
    key means the line did not say; NaN means the log said nan.
    """

    step: int | None
    ref: LineRef
    values: Mapping[str, float]
    rank: int | None = None
    wall_s: float | None = None  # seconds since the epoch, as if the local time were UTC


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened: a checkpoint, a crash word, an overflow; kind in EVENT_KINDS."""

    kind: str
    ref: LineRef
    text: str
    step: int | None = None
    rank: int | None = None
    wall_s: float | None = None
    detail: Detail = field(default_factory=dict)


class Problem(Struct, frozen=True, kw_only=True):
    """Something in an input that could not be taken at face value, told to the user."""

    rule: str
    message: str
    ref: LineRef | None = None


class Account(Struct, frozen=True, kw_only=True):
    """What became of every line: lines == read + sum(ignored) + unknown, always."""

    lines: int = 0
    read: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)  # rule name -> lines
    unknown: int = 0
    unknown_samples: tuple[str, ...] = ()  # the first few unknown lines, shortened

    @property
    def ignored_total(self) -> int:
        """Lines ignored by any named rule."""
        return sum(self.ignored.values())


class Source(Struct, frozen=True, kw_only=True):
    """One input: what it is and the account of its lines.

    sha256, pieces: see digest; the hash of the whole, and those of whole pieces of a large input.
    """

    path: str
    sha256: str
    bytes: int
    parser: str
    encoding: str
    account: Account
    pieces: tuple[str, ...] = ()


class Batch(Struct, frozen=True, kw_only=True):
    """What a parser yields, again and again, for one input and one run in it.

    readings: a frame with the READING_COLUMNS (without `segment`) that it knows and a Float64
    column per metric; or None. `account` counts this batch's lines only.
    """

    readings: pl.DataFrame | None
    events: tuple[Event, ...] = ()
    problems: tuple[Problem, ...] = ()
    account: Account = field(default_factory=Account)
    run: str = ""  # name of the run inside the input, where one input holds several
    framework: str = ""  # who wrote these lines, where the parser can tell


class Segment(Struct, frozen=True, kw_only=True):
    """A stretch of steps without a step back. Steps are as logged, inclusive."""

    index: int
    first: int
    last: int
    count: int
    relation: Relation
    superseded_steps: int = 0  # steps of earlier segments that this one ran again
    reason: str = ""  # why it is held for that relation


class RunMeta(Struct, frozen=True, kw_only=True):
    """What is known of the run as a whole."""

    id: str
    framework: str
    segments: tuple[Segment, ...]
    config: Mapping[str, str]  # the last configuration seen, values as printed
    log_interval: int  # steps between two readings of the loss (median), 1 if unknown
    grouping: str = ""  # why these inputs were held for one run


class Ranks(Struct, frozen=True, kw_only=True):
    """The ranks of a job with so many that only some of them, the leads, are held row by row.

    states: one row a metric, segment and rank, see rank_states. parts: files with all rows.
    """

    states: pl.DataFrame
    leads: tuple[int, ...]
    parts: tuple[Path, ...]
    keep: object = None  # holds the parts' folder


class RunLog(Struct, frozen=True, kw_only=True):
    """One run, normalised.

    readings: one row per log line that carried numbers; READING_COLUMNS, then one Float64 column
    per metric; null = the line did not say, NaN = the log said nan.
    events: EVENT_COLUMNS. ranks: of a job with very many ranks; the readings are then the leads'.
    whole: all rows of a run so long that the readings are an overview of it (see long_runs).
    """

    meta: RunMeta
    readings: pl.DataFrame
    events: pl.DataFrame
    problems: tuple[Problem, ...]
    sources: tuple[Source, ...]
    ranks: Ranks | None = None
    whole: pl.DataFrame | None = None


class Threshold(Struct, frozen=True, kw_only=True):
    """A number that decides something, with its unit and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


class Profile(NamedTuple):
    """The kind of training a run was judged as. why: a key of the strings; seen: what showed it."""

    name: str
    why: str = ""
    seen: str = ""


class Evidence(Struct, frozen=True, kw_only=True):
    """One observed value behind a finding or a check. label: a key of strings.toml."""

    label: str
    step: int | None = None
    value: float | str | None = None
    unit: str = ""
    expected: str = ""
    ref: LineRef | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong, at steps [step_first, step_last], worst at step_peak.

    id: `<code>-<n>`, unique in the run. threshold: the one that decided; `rules`: every named
    rule of thresholds.toml that fired on it, the seeds' fixed ones included.
    """

    id: str
    code: str
    kind: str
    metric: str | None
    severity: Severity
    step_first: int | None = None
    step_last: int | None = None
    step_peak: int | None = None
    rank: int | None = None
    segment: int | None = None
    statistics: Mapping[str, float | int | str | None] = field(default_factory=dict)
    threshold: Threshold | None = None
    rules: tuple[Threshold, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class DetectorRun(Struct, frozen=True, kw_only=True):
    """What one detector did: ran, or was skipped because something is missing."""

    detector: str
    status: Literal["ran", "skipped", "off"]
    missing: tuple[str, ...] = ()
    reason: str = ""  # a key of strings.toml


class CheckResult(Struct, frozen=True, kw_only=True):
    """The answer of one named check of the tree."""

    check: str
    state: CheckState
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()  # metrics or settings that would have settled it


class Cause(Struct, frozen=True, kw_only=True):
    """A possible cause of an incident, judged. id: an entry of the tree."""

    id: str
    verdict: CheckState
    confidence: float  # 0-1
    checks: tuple[CheckResult, ...]
    missing: tuple[str, ...] = ()


class Incident(Struct, frozen=True, kw_only=True):
    """Findings of one story, in order of time; the first mover is named."""

    id: str
    severity: Severity
    kind: str
    step_first: int | None
    step_last: int | None
    first_mover: str  # finding id
    findings: tuple[str, ...]
    causes: tuple[Cause, ...]
    recovered: bool | None = None
    cost_steps: int | None = None
    cost_seconds: float | None = None
    settle: str = ""  # the check that would best separate the first two causes


class Diagnosis(Struct, frozen=True, kw_only=True, weakref=True):
    """One run, judged."""

    run: RunLog
    findings: tuple[Finding, ...]
    incidents: tuple[Incident, ...]
    detectors: tuple[DetectorRun, ...]
    thresholds: tuple[Threshold, ...]
    verdict: Verdict
    left_out: int = 0  # findings that the user asked not to hear of
    profile: Profile | None = None


class Report(Struct, frozen=True, kw_only=True):
    """Everything a report shows: the runs, the inputs nobody could read, the run to compare with.

    baseline: a run that is held for normal; the page lays every other run beside it.
    """

    version: str
    diagnoses: tuple[Diagnosis, ...]
    unread: tuple[Source, ...] = ()
    baseline: RunLog | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all runs; unreadable if there is none."""
        order: tuple[Verdict, ...] = ("unreadable", "clean", "info", "warning", "critical")
        return max((d.verdict for d in self.diagnoses), key=order.index, default="unreadable")


def severity_rank(severity: str) -> int:
    """0 for info, 1 for warning, 2 for critical."""
    return SEVERITIES.index(severity)
