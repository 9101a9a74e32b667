"""Sections of the page: memory budget, configuration audit, a run beside its baseline, axes."""

from __future__ import annotations

import math
import re

import numpy as np
import polars as pl
import pytest
import report_fixture as fixture
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loganalyze.budget import estimate
from loganalyze.compare import compare_runs
from loganalyze.config import load_thresholds
from loganalyze.model import Diagnosis, Evidence, LineRef, Report, RunLog
from loganalyze.report import render
from loganalyze.report.bands import mfu_band
from loganalyze.report.charts import page_data
from loganalyze.report.memory import memory_budget
from loganalyze.report.model import view
from loganalyze.report.story import followed
from loganalyze.report.svg import round_values, tick_labels

GIB = 1024.0**3


def section(page: str, name: str) -> str:
    """A section of the page by its id, as text without markup."""
    match = re.search(rf'<section class="block" id="{name}">(.*?)</section>', page, re.DOTALL)
    assert match is not None, name
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", match[1]))


def with_columns(diagnosis: Diagnosis, **columns: object) -> Diagnosis:
    """The run with further columns in its readings."""
    frame = diagnosis.run.readings.with_columns(
        pl.Series(name, values) if isinstance(values, list) else pl.lit(values).alias(name)
        for name, values in columns.items()
    )
    return replace(diagnosis, run=replace(diagnosis.run, readings=frame))


def test_memory_parts_add_up_to_the_whole() -> None:
    """Each part is what its level holds beyond the one inside it; together they are the card."""
    run = with_columns(
        fixture.clean_run(), mem_allocated_bytes=20 * GIB, mem_peak_allocated_bytes=33 * GIB,
        mem_reserved_bytes=36 * GIB, mem_used_bytes=40 * GIB, mem_total_bytes=80 * GIB,
    )  # fmt: skip
    budget = memory_budget(view(run))
    assert budget is not None
    found = {part.key: part.bytes / GIB for part in budget.parts}
    assert found == {"kept": 20, "step": 13, "cache": 3, "other": 4, "free": 40}
    assert sum(part.bytes for part in budget.parts) == budget.whole == 80 * GIB
    assert math.isclose(sum(part.share for part in budget.parts), 1.0)
    assert budget.missing == ()


def test_memory_of_levels_that_are_not_logged_joins_the_next() -> None:
    """Allocated and reserved alone: the rest of reserved is named as both, and what lacks too."""
    run = with_columns(
        fixture.clean_run(), mem_allocated_bytes=20 * GIB, mem_reserved_bytes=36 * GIB
    )
    budget = memory_budget(view(run))
    assert budget is not None
    assert [part.bytes / GIB for part in budget.parts] == [20, 16]
    assert "activations" in budget.parts[1].label.en
    assert "allocator" in budget.parts[1].label.en
    assert budget.missing == ("mem_peak_allocated_bytes", "mem_used_bytes", "mem_total_bytes")


def test_memory_is_that_of_the_fullest_gpu() -> None:
    """Of several ranks the one with the largest size in use is shown, misprints left out."""
    frame = fixture.clean_run().run.readings
    half = frame.height // 2
    sizes = [10 * GIB] * half + [30 * GIB] * (frame.height - half - 1) + [1e30]
    ranks = pl.Series([0] * half + [5] * (frame.height - half), dtype=pl.Int32)
    run = with_columns(fixture.clean_run(), mem_allocated_bytes=sizes)
    readings = run.run.readings.with_columns(ranks.alias("rank"))
    budget = memory_budget(view(replace(run, run=replace(run.run, readings=readings))))
    assert budget is not None
    assert (budget.rank, budget.whole) == (5, 30 * GIB)


def test_no_memory_no_budget() -> None:
    """A log without sizes and without a model's shape has no budget."""
    assert memory_budget(view(fixture.clean_run())) is None


SHAPE = {"num_layers": "32", "hidden_size": "2560", "num_attention_heads": "32",
         "padded_vocab_size": "50304", "bf16": "True", "world_size": "8"}  # fmt: skip


def test_expected_memory_stands_beside_the_logged_one() -> None:
    """The configuration's estimate is shown, part by part, with what had to be assumed."""
    clean = fixture.clean_run()
    judged = replace(clean, run=replace(clean.run, meta=replace(clean.run.meta, config=SHAPE)))
    found = memory_budget(view(judged))
    assert found is not None
    assert found.expected == estimate(SHAPE)
    page = render(Report(version="0", diagnoses=(judged,)), "html", "en")
    assert "optimizer states" in page
    assert "ZeRO 0" in page


@pytest.mark.parametrize("other", [{"hidden_size": "48"}, {"num_layers": ""}])
def test_nothing_is_expected_of_toys_and_unknown_shapes(other: dict[str, str]) -> None:
    """Without a size of the model, or of a toy, there is no estimate."""
    clean = fixture.clean_run()
    meta = replace(clean.run.meta, config={**SHAPE, **other})
    assert memory_budget(view(replace(clean, run=replace(clean.run, meta=meta)))) is None


def test_what_followed_is_told_in_order() -> None:
    """After the first mover come the other findings of the headline, each with its step."""
    told = followed(view(fixture.sick_run()))
    assert told is not None
    assert told.en == "Loss spike (step 2600)"
    assert told.zh == "损失尖刺（第 2600 步）"
    assert followed(view(fixture.clean_run())) is None


@pytest.mark.parametrize(
    ("logged", "config", "axis"),
    [
        ({"tokens_seen": 1.0}, {}, True),
        ({"samples_seen": 1.0}, {"seq_length": "2048"}, True),
        ({"samples_seen": 1.0, "seq_len": 512.0}, {}, True),
        ({"samples_seen": 1.0}, {}, False),
        ({}, {"seq_length": "2048"}, False),
    ],
)
def test_tokens_on_the_axis(logged: dict[str, float], config: dict[str, str], axis: bool) -> None:
    """The axis is there where tokens are logged, or samples with the length of a sample."""
    run = with_columns(fixture.clean_run(), **logged)
    meta = replace(run.run.meta, config=config)
    facts, _ = page_data(view(replace(run, run=replace(run.run, meta=meta))), tuple)
    assert ("tokens" in facts["axes"]) is axis


@pytest.fixture(scope="module")
def compared() -> str:
    """The sick run's page beside the clean one as baseline."""
    base = fixture.sick_run().run
    calm = base.readings.with_columns(pl.col("loss") * 0.9)
    baseline = replace(base, readings=calm, meta=replace(base.meta, config={"lr": "1e-4"}))
    report = Report(version="0", diagnoses=(fixture.sick_run(),), baseline=baseline)
    return render(report, "html", "en")


def test_page_beside_a_baseline_says_what_compare_says(compared: str) -> None:
    """The verdict, each metric's medians and the settings are those of `compare`."""
    text = section(compared, "baseline")
    assert "pretrain-7b (baseline)" in text
    assert "is worse than pretrain-7b (baseline) by training loss" in text
    assert "lr 1e-4 3e-4" in text
    base = fixture.sick_run().run
    calm = replace(base, readings=base.readings.with_columns(pl.col("loss") * 0.9))
    loss = compare_runs((calm, base), load_thresholds()).pairs[0].metrics[0]
    assert loss.metric == "loss"
    assert f"{loss.points} " in text
    assert f"{loss.other:.5g}".rstrip("0") in text
    assert compared.count('class="chart still"') >= 2


def test_page_without_a_baseline_has_no_such_section() -> None:
    """Nothing about a baseline where none was given."""
    page = render(fixture.build(), "html", "en")
    assert "baseline" not in re.findall(r'id="([\w-]+)"', page)


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_texts_name_the_baseline(format: str) -> None:
    """Text and Markdown give the verdict against the baseline in one sentence."""
    base: RunLog = fixture.clean_run().run
    report = Report(version="0", diagnoses=(fixture.sick_run(),), baseline=base)
    assert "Baseline" in render(report, format, "en")
    assert "基线对比" in render(report, format, "zh")


def test_configuration_section_holds_remarks_and_settings() -> None:
    """Findings about settings stand in the audit, once, with the settings seen."""
    text = section(render(fixture.build(), "html", "en"), "configuration")
    assert "LA802-1" in text
    assert "lr 3e-4" in text


def test_configuration_that_was_not_logged_is_said_to_lack() -> None:
    """Without a configuration the section says so and what to log."""
    report = Report(version="0", diagnoses=(fixture.clean_run(),))
    assert "shows no configuration" in section(render(report, "html", "en"), "configuration")


def test_hostile_settings_stay_inert() -> None:
    """A setting with markup in name and value is text in the audit and beside the baseline."""
    sick = fixture.sick_run()
    bad = {"<img src=x>": "</script><b>", "lr": "1"}
    run = replace(sick.run, meta=replace(sick.run.meta, config=bad))
    remark = Evidence(label="config_setting", value="<img src=x> = 1",
                      ref=LineRef(source=0, line=1, offset=0, length=1))  # fmt: skip
    note = replace(sick.findings[-1], evidence=(remark,))
    judged = replace(sick, run=run, findings=(*sick.findings[:-1], note))
    page = render(Report(version="0", diagnoses=(judged,), baseline=sick.run), "html", "en")
    assert "<img src=x>" not in page
    assert "</script><b>" not in page


@given(
    low=st.floats(-1e12, 1e12, allow_nan=False),
    span=st.floats(1e-6, 1e12, allow_nan=False),
    unit=st.sampled_from(["", "B", "share"]),
)
def test_axis_values_are_few_even_and_inside(low: float, span: float, unit: str) -> None:
    """One to four values, evenly spaced, within the range."""
    high = low + span
    if not high > low or span < abs(low) * 1e-9:
        return
    found = round_values(low, high, unit)
    slack = 1e-6 * span
    assert 1 <= len(found) <= 4
    assert found.min() >= low - slack
    assert found.max() <= high + slack
    if len(found) > 2:
        assert np.ptp(np.diff(found)) <= 1e-9 * max(abs(low), abs(high))


@pytest.mark.parametrize(
    ("low", "high", "unit", "expected"),
    [
        (0.3, 6.1, "", [2, 4, 6]),
        (0, 1, "", [0, 0.5, 1]),
        (5.6 * GIB, 34.2 * GIB, "B", [10 * GIB, 20 * GIB, 30 * GIB]),
    ],
)
def test_axis_values_are_easy_to_read(
    low: float, high: float, unit: str, expected: list[float]
) -> None:
    """Multiples of 1, 2 or 5 tens; bytes in the unit that fits."""
    assert round_values(low, high, unit).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("level", "band"),
    [
        (0.22, "look for it at once"),
        (0.41, "room to improve"),
        (0.55, "well tuned"),
        (0.63, "outstanding"),
    ],
)
def test_the_efficiency_panel_names_the_band_of_the_mfu(level: float, band: str) -> None:
    """The seeds' four bands: below 30 %, to 50 %, to 60 %, above."""
    rules = load_thresholds("pretrain")
    run = replace(
        with_columns(fixture.clean_run(), mfu=level), thresholds=tuple(rules.entries.values())
    )
    said = mfu_band(view(run))
    assert said is not None
    assert said[2].en.endswith(band)
    assert said[1].en == f"{100 * level:.0f} %"
    page = render(Report(version="0", diagnoses=(run,)), "html", "en")
    assert said[2].en in page.replace("\u00a0", " ")


@pytest.mark.parametrize("unit", ["", "share", "B"])
@pytest.mark.parametrize("narrow", [0.5, 0.01, 1e-4, 1e-12])
def test_labels_of_a_narrow_axis_differ(unit: str, narrow: float) -> None:
    """As far as there is room; then they are short again."""
    values = round_values(1.0, 1.0 + narrow, unit).tolist()
    labels = tick_labels(values, unit)
    assert len(labels) == len(values)
    assert max(map(len, labels)) <= 9
    if unit != "B" and narrow > 1e-5:
        assert len(set(labels)) == len(values)
