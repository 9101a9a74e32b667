"""Five hundred hostile strings, and a report that holds them as names, settings, events, paths."""

from __future__ import annotations

from functools import cache

from msgspec.structs import replace
from synth import make_run

from loganalyze.model import Problem, Report, RunLog
from loganalyze.pipeline import Judging, judge

_MARK = "pwned"
_HTML = (
    f"<script>{_MARK}()</script>", f"</script><script>{_MARK}()</script>",
    f"<img src=x onerror={_MARK}()>", f'"><img src=x onerror="{_MARK}()">',
    f"'><svg/onload={_MARK}()>", f"<svg><script>{_MARK}()</script></svg>",
    f"</title><script>{_MARK}()</script>", f"</style><img src=x onerror={_MARK}()>",
    f"<!--<img src=--><img src=x onerror={_MARK}()//>", f"--><script>{_MARK}()</script>",
    f"<a href=javascript:{_MARK}()>x</a>", f"javascript:{_MARK}()", f'" onclick="{_MARK}()',
    f"' onmouseover='{_MARK}()", f"` onfocus=`{_MARK}()", f"<iframe srcdoc='{_MARK}'>",
    "<base href=//evil.example/>", '<meta http-equiv=refresh content="0;url=//evil.example">',
    "<link rel=stylesheet href=//evil.example/x.css>", "<form action=//evil.example><input>",
    "{{7*7}}", "{% raw %}", "${7*7}", "{loss}", "{0}", "%s%n", "&lt;script&gt;", "&#60;script&#62;",
    "<style>*{display:none}</style>", "]]><script>", "<?xml version='1.0'?>", "<!DOCTYPE x>",
    "<math><mi//xlink:href='data:x,<script>'>", "<textarea>", "</pre></code></td></table>",
)  # fmt: skip
_TERMINAL = (
    "\x1b[31mred", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x07x\x1b]8;;\x07", "\x1b[2J",
    "\x9b31m", "\x07\x07", "a\rb", "a\x08\x08b", "\x00", "\x1bP+q\x1b\\", "\x1b[6n", "a\nb", "\x7f",
)  # fmt: skip
_UNICODE = (
    "\u202egnp.exe", "\u2066x\u2069", "\u200f", "\u2028alert(1)", "\u2029", "\ufeff", "\ud800",
    "\U000e0041", "a\u0300" * 40, "\u200b", "ı" * 300,
)  # fmt: skip
_SHEETS = (
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1+1",
    '=HYPERLINK("//evil.example")',
)
_MARKDOWN = (
    "[x](javascript:pwned())", "![x](//evil.example/x.png)", "`code`", "```\n```", "# head",
    "| a | b |", "**b**", "@everyone", "#1", "<details>", "\\", "* * *", "[x]: //evil.example",
    "http://evil.example/x",
)  # fmt: skip
_MACHINES = (
    "::error file=x::y", "::set-output name=x::y", "%0A::error::x", "##[error]x",
    "file:///etc/passwd",
    "../../etc/passwd", "..\\..\\x", "//evil.example/share", "data:text/html,<script>", "%2e%2e%2f",
    "con", "x" * 4000, "' or 1=1 --", "$(reboot)", "; reboot", "`reboot`", "| reboot", "~",
    "-rf", "*", "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]>&y;",
)  # fmt: skip
BASES = (*_HTML, *_TERMINAL, *_UNICODE, *_SHEETS, *_MARKDOWN, *_MACHINES)
AROUND = ("{}", "a{}", "{} z", '"{}"', "train/{}/loss")
STRINGS = tuple(dict.fromkeys(way.replace("{}", base) for base in BASES for way in AROUND))
CHUNK = 125
CHUNKS = range((len(STRINGS) + CHUNK - 1) // CHUNK)


def hostile_run(words: tuple[str, ...]) -> RunLog:
    """A run in which each of the words is a metric, a setting, an event, a path and a problem."""
    losses = [2.0] * 30 + [float("nan")] * 10
    metrics: dict[str, list[float | None]] = {"loss": [*losses]}
    for number, word in enumerate(words):
        metrics[f"raw/{storable(word)}"] = [float(number)] * 40
    events = [
        {"kind": "exception", "step": 31, "text": storable(word), "detail": {word: word}}
        for word in words
    ]
    run = make_run(metrics, events=events, config={word: word for word in words})
    sources = [replace(run.sources[0], path=word, parser=word) for word in words]
    samples = replace(run.sources[0].account, unknown_samples=words)
    problems = [Problem(rule=word, message=word) for word in words]
    return replace(
        run,
        meta=replace(run.meta, id=words[0], framework=words[-1], grouping=words[1]),
        sources=(replace(run.sources[0], path=words[2], account=samples), *sources),
        problems=tuple(problems),
    )


def storable(word: str) -> str:
    """Without lone surrogates, which no frame of polars holds."""
    return word.encode("utf-8", "replace").decode()


@cache
def report_with(words: tuple[str, ...]) -> Report:
    """A report of one run that holds the words wherever a log's words can go."""
    return Report(version="0", diagnoses=(judge(hostile_run(words), Judging()),))


def report_of(chunk: int) -> Report:
    """A report over one part of the strings."""
    return report_with(STRINGS[chunk * CHUNK : (chunk + 1) * CHUNK])
