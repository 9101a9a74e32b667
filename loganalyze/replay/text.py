"""The verdict of a replay as text."""

from __future__ import annotations

from collections.abc import Iterator

from loganalyze.config import Thresholds
from loganalyze.replay import words
from loganalyze.replay.result import Result
from loganalyze.replay.words import number, say


def render(result: Result, rules: Thresholds, lang: str) -> str:
    """The answer first, then what it rests on."""
    return "\n".join(_lines(result, rules, lang)) + "\n"


def _lines(result: Result, rules: Thresholds, lang: str) -> Iterator[str]:
    yield say("replay_title", lang, step=result.step)
    yield "  " + say("replay_run", lang, run=result.run, finding=result.finding,
                     device=result.device, precision=result.precision)  # fmt: skip
    yield ""
    yield f"{say('replay_headline', lang)}: {words.headline(result, lang)}"
    yield ""
    yield words.same_line(result, rules, lang)
    repeats = "replay_repeats_equal" if result.deterministic else "replay_repeats_vary"
    yield "  " + say(repeats, lang)
    yield "  " + say("replay_untouched" if result.untouched else "replay_touched", lang)
    yield ""
    yield say("replay_causes", lang)
    for judged in result.judgements:
        state = say(f"replay_state_{judged.state}", lang)
        sure = say("replay_sure", lang, percent=round(100 * judged.confidence))
        shown = f"{state}, {sure}" if judged.confidence else state
        yield f"  [{shown}] {words.cause_line(judged, lang)}"
    yield from _layers(result, lang)
    yield from _samples(result, lang)
    yield from (f"  {say(note, lang)}" for note in result.notes)


def _layers(result: Result, lang: str) -> Iterator[str]:
    if result.layers:
        yield ""
        yield say("replay_layers", lang)
    for suspect in result.layers[:5]:
        yield f"  {suspect.name}: {say(f'replay_where_{suspect.where}', lang)} " \
              f"×{number(suspect.ratio)}"  # fmt: skip


def _samples(result: Result, lang: str) -> Iterator[str]:
    if result.samples:
        yield ""
        yield say("replay_samples", lang)
    for sample in result.samples[:5]:
        loss = f"{say('replay_col_loss', lang)} {number(sample.loss)}"
        share = "" if sample.share is None else \
            f", {say('replay_col_share', lang)} {100 * sample.share:.3g} %"  # fmt: skip
        yield f"  {sample.id}: {loss}{share}"
