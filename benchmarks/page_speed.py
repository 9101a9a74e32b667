"""Size and speed of the report page beside a naive plotly page of the same data: one table.

    python benchmarks/page_speed.py [--steps 1000000] [--metrics 20] [--findings 200] [--rounds 3]
                                    [--no-naive]

The run is made up: metrics with noise, spikes and NaN at the places of the findings. Both pages
are opened in headless Chromium from file://, in turns; figures are medians over the rounds, in
milliseconds after navigation began. First paint is the browser's own first-contentful-paint;
charts is when the last chart within the first screen was drawn (ours: its figure is marked;
naive: plotly_afterplot of the last one). The naive page is what plotly's write_html gives for all
points, one figure a metric. Exit code 1 if our page breaks its budget.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402

from loganalyze.model import (  # noqa: E402
    Account,
    Diagnosis,
    Evidence,
    Finding,
    Incident,
    LineRef,
    Report,
    RunLog,
    RunMeta,
    Segment,
    Source,
)
from loganalyze.report import render  # noqa: E402

#: The budget: bytes, and milliseconds to the first paint and to drawn charts.
MOST_BYTES, MOST_PAINT_MS, MOST_CHARTS_MS = 2_500_000, 300, 1500
NAMES = (
    "loss", "val_loss", "lr", "grad_norm", "params_norm", "loss_scale", "token_accuracy",
    "step_time_s", "data_time_s", "comm_time_s", "tokens_per_s", "tflops_per_gpu", "mfu",
    "mem_allocated_bytes", "mem_reserved_bytes", "gpu_util", "gpu_temp_c", "gpu_power_w",
    "update_ratio", "kl",
)  # fmt: skip
#: Runs in every page before its own scripts: notes when the charts in view are drawn.
WATCH = """
window.__drawn = 0;
const inView = (n) => { const b = n.getBoundingClientRect(); return b.top < innerHeight && b.bottom > 0 && b.height > 0; };
function look() {
  const ours = [...document.querySelectorAll('figure.chart[data-chart]')].filter(inView);
  const naive = [...document.querySelectorAll('.plotly-graph-div')].filter(inView);
  const done = ours.length ? ours.every((n) => n.dataset.drawn)
    : naive.length > 0 && naive.every((n) => n.querySelector('.scatterlayer path, .gl-canvas'));
  if (done && document.readyState !== 'loading') { window.__drawn = performance.now(); return; }
  requestAnimationFrame(look);
}
requestAnimationFrame(look);
"""


@dataclass(frozen=True)
class Opened:
    """One opening of a page: milliseconds; NaN where it never came."""

    paint: float
    charts: float


def made_up(steps: int, metrics: int, findings: int) -> RunLog:
    """A run of `steps` rows and `metrics` metrics with a spike at each finding."""
    rng = np.random.default_rng(20260314)
    at = np.arange(steps)
    columns = {
        "step": at, "segment": np.zeros(steps, np.int32), "rank": np.zeros(steps, np.int32),
        "wall_s": 1.78e9 + at * 0.8, "source": np.zeros(steps, np.int32), "line": at + 1,
        "offset": at * 100, "length": np.full(steps, 99),
    }  # fmt: skip
    for number, name in enumerate(NAMES[:metrics]):
        level = 1.5 + 4 * np.exp(-at / (steps / 8)) + number
        columns[name] = level * (1 + 0.01 * rng.standard_normal(steps))
    for number, step in enumerate(places(steps, findings)):
        name = NAMES[number % metrics]
        columns[name][step : step + 5] *= 3.0
        if number % 10 == 0:
            columns[name][step + 5] = np.nan
    segment = Segment(index=0, first=0, last=steps - 1, count=steps, relation="start")
    meta = RunMeta(id="million", framework="megatron", segments=(segment,),
                   config={"lr": "3e-4"}, log_interval=1)  # fmt: skip
    source = Source(path="train.log", sha256="0" * 64, bytes=steps * 100, parser="text",
                    encoding="utf-8", account=Account(lines=steps, read=steps))  # fmt: skip
    return RunLog(meta=meta, readings=pl.DataFrame(columns), events=_events(), problems=(),
                  sources=(source,))  # fmt: skip


def _events() -> pl.DataFrame:
    from synth import _EVENT_SCHEMA

    return pl.DataFrame(schema=_EVENT_SCHEMA)


def places(steps: int, findings: int) -> list[int]:
    """Steps of the findings, evenly over the run."""
    return np.linspace(steps * 0.02, steps * 0.98, findings).astype(int).tolist()


def diagnosis(run: RunLog, steps: int, metrics: int, count: int) -> Diagnosis:
    """Findings of several kinds at their places; every fifth begins an incident of its own."""
    kinds = (("LA102", "loss_spike"), ("LA202", "grad_explosion"), ("LA401", "throughput_drop"))
    found = []
    for number, step in enumerate(places(steps, count)):
        code, kind = kinds[number % 3]
        ref = LineRef(source=0, line=step + 1, offset=step * 100, length=99)
        peak = Evidence(label="value_peak", step=step + 2, value=5.0, unit="1", ref=ref)
        found.append(Finding(
            id=f"{code}-{number + 1}", code=code, kind=kind, metric=NAMES[number % metrics],
            severity=("critical", "warning", "info")[number % 3], step_first=step,
            step_last=step + 5, step_peak=step + 2, statistics={"z": 40.0}, evidence=(peak,),
        ))  # fmt: skip
    stories = [
        Incident(id=f"I{at}", severity=f.severity, kind=f.kind, step_first=f.step_first,
                 step_last=f.step_last, first_mover=f.id, findings=(f.id,), causes=())
        for at, f in enumerate(found[::5])
    ]  # fmt: skip
    return Diagnosis(run=run, findings=tuple(found), incidents=tuple(stories), detectors=(),
                     thresholds=(), verdict="critical")  # fmt: skip


def naive_page(run: RunLog, path: Path) -> None:
    """All points of every metric, one figure each, as plotly writes them."""
    import plotly.graph_objects as go

    steps = run.readings["step"].to_numpy()
    with path.open("w", encoding="utf-8") as file:
        file.write("<!doctype html><meta charset=utf-8><title>naive</title>")
        for number, name in enumerate(n for n in run.readings.columns if n in NAMES):
            trace = go.Scatter(x=steps, y=run.readings[name].to_numpy(), name=name)
            figure = go.Figure(trace, layout={"title": name, "height": 400})
            file.write(figure.to_html(full_html=False, include_plotlyjs=number == 0))


class Browser:
    """Headless Chromium with a fresh profile and the watch in every page."""

    def __init__(self, profile: str) -> None:
        """Start it; the page's script timeout is five minutes."""
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or shutil.which("chrome") or ""
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update",
                 "--window-size=1280,900", f"--user-data-dir={profile}")  # fmt: skip
        for flag in flags:
            options.add_argument(flag)
        service = Service(shutil.which("chromedriver") or "chromedriver")
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_page_load_timeout(300)
        self.driver.get("data:text/html,<p>ready")
        time.sleep(2)  # a browser that has just started is still busy with itself
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})

    def open(self, path: Path, seconds: float) -> Opened:
        """Open a page and wait until its charts are drawn, or the time is over."""
        from selenium.common.exceptions import WebDriverException

        try:
            self.driver.get("about:blank")
            self.driver.get(path.resolve().as_uri())
            end = time.monotonic() + seconds
            while time.monotonic() < end and not self.driver.execute_script(
                "return window.__drawn"
            ):
                time.sleep(0.05)
            paint = self.driver.execute_script(
                "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
            )
            charts = self.driver.execute_script("return window.__drawn")
        except WebDriverException as error:
            print(f"  {path.name}: {str(error).splitlines()[0][:90]}", flush=True)
            return Opened(float("nan"), float("nan"))
        return Opened(paint or float("nan"), charts or float("nan"))


def measure(pages: dict[str, Path], rounds: int) -> dict[str, list[Opened]]:
    """Every page once a round, in turns, each time in a browser of its own."""
    found: dict[str, list[Opened]] = {name: [] for name in pages}
    for number in range(rounds):
        order = list(pages) if number % 2 == 0 else list(reversed(pages))
        for name in order:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                browser = Browser(profile)
                try:
                    found[name].append(browser.open(pages[name], 240))
                finally:
                    browser.driver.quit()
    return found


def main() -> int:
    """Make the run and its pages, open them, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("steps", 1_000_000), ("metrics", 20), ("findings", 200), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-naive", action="store_true")
    asked = parser.parse_args()
    run = made_up(asked.steps, asked.metrics, asked.findings)
    judged = diagnosis(run, asked.steps, asked.metrics, asked.findings)
    with tempfile.TemporaryDirectory() as folder:
        pages = {"loganalyze": Path(folder, "ours.html")}
        began = time.perf_counter()
        text = render(Report(version="0", diagnoses=(judged,)), "html", "en")
        took = time.perf_counter() - began
        pages["loganalyze"].write_text(text, encoding="utf-8")
        if not asked.no_naive:
            pages["naive plotly"] = Path(folder, "naive.html")
            naive_page(run, pages["naive plotly"])
        print(f"{asked.steps:,} steps x {asked.metrics} metrics, {asked.findings} findings; "
              f"our page was written in {took:.1f} s", flush=True)  # fmt: skip
        found = measure(pages, asked.rounds)
        return table(pages, found)


def table(pages: dict[str, Path], found: dict[str, list[Opened]]) -> int:
    """Print a row a page; 1 if ours breaks its budget."""
    print(f"{'page':<14}{'MB':>9}{'first paint ms':>16}{'charts ms':>12}   rounds (charts)")
    rows = {}
    for name, path in pages.items():
        paint = statistics.median(o.paint for o in found[name])
        charts = statistics.median(o.charts for o in found[name])
        rows[name] = (path.stat().st_size, paint, charts)
        each = ", ".join(f"{o.charts:.0f}" for o in found[name])
        print(f"{name:<14}{rows[name][0] / 1e6:>9.2f}{paint:>16.0f}{charts:>12.0f}   {each}")
    size, paint, charts = rows["loganalyze"]
    if "naive plotly" in rows:
        other = rows["naive plotly"]
        ratios = [theirs / mine for theirs, mine in zip(other, rows["loganalyze"], strict=True)]
        print("naive / ours: " + ", ".join(f"{ratio:.1f}x" for ratio in ratios))
    kept = size <= MOST_BYTES and paint <= MOST_PAINT_MS and charts <= MOST_CHARTS_MS
    print(f"budget {MOST_BYTES / 1e6} MB, {MOST_PAINT_MS} ms, {MOST_CHARTS_MS} ms: "
          f"{'kept' if kept else 'broken'}")  # fmt: skip
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
