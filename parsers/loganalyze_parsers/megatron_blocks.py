"""Megatron's other lines: validation, memory, timers, checkpoints, arguments, rerun machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from loganalyze import lazy
from loganalyze.model import Event, LineRef, Reading
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.megatron_fields import gib_to_bytes
from loganalyze_parsers.numbers import NUMBER

#: Value of an argument, and the line that says it.
Argument = tuple[str, LineRef]

_VALIDATION = lazy.pattern(r"(?P<set>[\w-]{1,120}) (?:loss|results) at (?P<where>[^|]{0,400})\|")
_ITERATION = lazy.pattern(r"iteration +(\d+)")
_PAIR = lazy.pattern(rf"([^|:]{{1,200}}?)(?: value)?: *({NUMBER})")
_MEMORY = lazy.pattern(
    r"(?:\[Rank (?P<rank>\d+)\] )?\(?(?:after|before) (?:(?P<after>\d+) iterations|"
    r"save_checkpoint for iteration (?P<save>\d+))\)? memory \((?P<unit>MB|GB)\)"
    r"(?P<fields>(?: *\| *[\w -]+: *[\d.]+)+)"
)
_MEMORY_FIELDS = {
    "mem-allocated-gigabytes": "mem_allocated_bytes",
    "mem-max-allocated-gigabytes": "mem_peak_allocated_bytes",
    "mem-reserved-gigabytes": "mem_reserved_bytes",
    "mem-max-reserved-gigabytes": "mem_peak_reserved_bytes",
    "allocated": "mem_allocated_bytes",
    "max allocated": "mem_peak_allocated_bytes",
    "reserved": "mem_reserved_bytes",
    "max reserved": "mem_peak_reserved_bytes",
    "total device memory used": "mem_used_bytes",
}
_TIMER_ROW = lazy.pattern(
    rf"^(?P<name>[\w/,-]+) ?\.{{3,}}: *(?:\((?P<low>{NUMBER}), *)?(?P<high>{NUMBER})\)?$"
)
_TIMERS = {
    "forward": "forward_time_s",
    "forward-compute": "forward_time_s",
    "backward": "backward_time_s",
    "backward-compute": "backward_time_s",
    "optimizer": "optimizer_time_s",
    "batch-generator": "data_time_s",
    "batch generator": "data_time_s",
    "backward-allreduce": "comm_time_s",
    "allreduce": "comm_time_s",
}
_ARGUMENT = lazy.pattern(
    r"^(?P<name>[\w-]+) \.{2,} ?(?P<value>.*)$|^(?P<long>[\w-]{40,}) (?P<rest>\S.*)$"
)
_NEOX_ORIGIN = lazy.pattern(r"\.{3,200}(?:default|updated)$")
_SAVE_BEGIN = lazy.pattern(
    r"\b(?:saving|scheduled an async) checkpoint (?:save )?at iteration +(\d+)"
)
_SAVE_END = lazy.pattern(r"\bsuccessfully saved checkpoint (?:from|at) iteration +(\d+)")
_LOAD = lazy.pattern(
    r"\b(?:loading|successfully loaded) checkpoint from (\S+)"
    r"(?:.{0,400}? at iteration {1,20}(\d+))?"
)
_RERUN = lazy.pattern(r"Unexpected result (\S+) on rank (\d+) at iteration #(\d+)")


def validation(line: Line, last_step: int | None) -> Taken | None:
    """`validation loss at iteration 100 | lm loss value: 8.1 | lm loss PPL: 3.3E+03 |`."""
    match = _VALIDATION.search(line.text)
    if match is None:
        return None
    where = _ITERATION.search(match["where"])
    step = int(where[1]) if where else last_step
    values: dict[str, float] = {}
    for key, text in _PAIR.findall(line.text[match.end() :]):
        values.update(_validation_value(match["set"], key.strip(), float(text)))
    if not values:
        return None
    return Taken(readings=[_reading(line, step, values)])


def _validation_value(dataset: str, key: str, value: float) -> Iterator[tuple[str, float]]:
    main = dataset in ("validation", "valid", "valid-0", "validation-0")
    if main and key in ("lm loss", "lm_loss", "LM loss"):
        yield "val_loss", value
    elif main and key in ("lm loss PPL", "LM PPL", "lm_loss_ppl"):
        yield "perplexity", value
    else:
        yield f"raw/{dataset}/{key}", value


def memory(line: Line) -> Taken | None:
    """`[Rank 3] (after 20 iterations) memory (MB) | allocated: 1.0 | ...`, perhaps several."""
    readings = []
    for match in _MEMORY.finditer(line.text):
        values = {}
        for field in match["fields"].split("|")[1:]:
            key, _, text = field.partition(":")
            name = _MEMORY_FIELDS.get(key.strip(), f"raw/memory {key.strip()}")
            values[name] = gib_to_bytes(float(text), match["unit"])
        step = int(match["after"] or match["save"])
        rank = int(match["rank"]) if match["rank"] else line.rank
        readings.append(
            Reading(step=step, ref=line.ref, values=values, rank=rank, wall_s=line.wall_s)
        )
    return Taken(readings=readings) if readings else None


def old_timers(line: Line, last_step: int | None) -> Taken | None:
    """`time (ms) | forward: 12.1 | backward: 30.2 | ...`, milliseconds an iteration."""
    head, bar, rest = line.text.partition("|")
    if head.strip() not in ("time (ms)", "times (ms)"):
        return None
    values = dict(_timer(key.strip(), float(text)) for key, text in _PAIR.findall(rest))
    if not bar or not values:
        return Taken(ignored="empty timer line")
    return Taken(readings=[_reading(line, last_step, values)])


def timer_row(line: Line, last_step: int | None) -> Taken | None:
    """A row below `(min, max)` or `max time across ranks (ms):`; the slowest rank's is kept."""
    match = _TIMER_ROW.match(line.text)
    if match is None:
        return None
    name, high = _timer(match["name"], float(match["high"]))
    values = {name: high}
    if match["low"]:
        values[f"raw/timer {match['name']} min"] = float(match["low"]) * 1e-3
    return Taken(readings=[_reading(line, last_step, values)])


def _timer(name: str, milliseconds: float) -> tuple[str, float]:
    return _TIMERS.get(name, f"raw/timer {name}"), milliseconds * 1e-3


def checkpoint(line: Line, last_step: int | None) -> Taken | None:
    """Checkpoint and rerun-machine lines as events."""
    text = line.text
    for kind, pattern in (
        ("checkpoint_save_begin", _SAVE_BEGIN),
        ("checkpoint_save_end", _SAVE_END),
    ):
        match = pattern.search(text)
        if match:
            return Taken(events=[_event(line, kind, int(match[1]))])
    match = _LOAD.search(text)
    if match:
        step = int(match[2]) if match[2] else None
        return Taken(events=[_event(line, "checkpoint_load", step, path=match[1])])
    if "could not find the metadata file" in text or "will start from random" in text:
        return Taken(events=[_event(line, "start_fresh", None)])
    match = _RERUN.search(text)
    if match:
        event = _event(line, "rerun_mismatch", int(match[3]), value=match[1], rank=int(match[2]))
        return Taken(events=[event])
    return None


def argument(text: str) -> tuple[str, str] | None:
    """Name and value of a line of the argument dump; None for any other line.

    >>> argument("lr_warmup_iters ................. 100")
    ('lr_warmup_iters', '100')
    """
    match = _ARGUMENT.match(text)
    if match is None:
        return None
    value = match["value"] if match["name"] else match["rest"]
    return match["name"] or match["long"], _NEOX_ORIGIN.sub("", value).strip()


def config_event(line: Line, arguments: Mapping[str, Argument]) -> Event:
    """The whole argument dump as one event; long values are cut.

    Where each argument stands goes along as `@places` (`name line:offset:length` by name).
    """
    detail = {name: _plain(value) for name, (value, _) in arguments.items()}
    places = " ".join(
        f"{name} {ref.line}:{ref.offset}:{ref.length}" for name, (_, ref) in arguments.items()
    )
    return _event(line, "config", None, **detail, **{"@places": places})


def _plain(value: str) -> str:
    return value if len(value) <= 200 else value[:200] + "…"


def _event(line: Line, kind: str, step: int | None, **detail: str | int | float) -> Event:
    return Event(
        kind=kind, ref=line.ref, text=line.text[:400], step=step, rank=line.rank,
        wall_s=line.wall_s, detail=detail,
    )  # fmt: skip


def _reading(line: Line, step: int | None, values: dict[str, float]) -> Reading:
    return Reading(step=step, ref=line.ref, values=values, rank=line.rank, wall_s=line.wall_s)
