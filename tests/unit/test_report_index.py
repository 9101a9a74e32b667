"""The page over many runs: the worst first, the same trouble found again, a table to query."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
import report_fixture as fixture
from msgspec.structs import replace

from loganalyze.model import Diagnosis, Evidence, Report
from loganalyze.report import write_files
from loganalyze.report.findings_table import SCHEMA, findings_frame
from loganalyze.report.index import render_index
from loganalyze.report.many import alike, groups, occurrences
from loganalyze.report.model import views


def named(diagnosis: Diagnosis, name: str, **changes: object) -> Diagnosis:
    """The same run under another name, its findings' statistics changed."""
    findings = tuple(
        replace(f, statistics={**f.statistics, **changes}) if changes else f  # type: ignore[arg-type]
        for f in diagnosis.findings
    )
    run = replace(diagnosis.run, meta=replace(diagnosis.run.meta, id=name))
    return replace(diagnosis, run=run, findings=findings)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """The sick run twice, and the clean one."""
    made = fixture.build(tmp_path)
    sick, clean = made.diagnoses
    return replace(made, diagnoses=(clean, named(sick, "again"), sick))


def test_the_same_trouble_in_two_runs_is_one_group(report: Report) -> None:
    """Every incident of the repeated run is found again; runs on their own make no group."""
    runs = views(report.diagnoses)
    made = groups(occurrences(runs))
    assert {run for group in made for run in group.runs} == {"again", runs[2].id}
    assert sum(len(group.occurrences) for group in made) == 2 * len(runs[2].incidents)
    assert groups(occurrences(runs[:2])) == ()


def test_other_lengths_heights_and_words_are_other_troubles(report: Report) -> None:
    """Alike up to factors of 4 in length and 2 in height; never across kinds or words."""
    one = occurrences(views(report.diagnoses[2:]))[0]
    one = replace(one, length=10, height=1.5)
    assert alike(one, replace(one, length=40, height=3.0))
    assert not alike(one, replace(one, length=41))
    assert not alike(one, replace(one, height=0.7))
    assert not alike(one, replace(one, height=None))
    assert not alike(one, replace(one, signature=replace(one.signature, text="other words")))


def test_numbers_in_crash_words_do_not_part_them(report: Report) -> None:
    """Addresses, sizes and ranks differ from run to run; the words are what is compared."""
    texts = []
    for said in (
        "rank 3: CUDA error at 0x7ff12 after 12.5 GiB",
        "rank 71: CUDA error at 0x1 after 3 GiB",
    ):
        sick = report.diagnoses[2]
        first = sick.incidents[0]
        found = next(f for f in sick.findings if f.id == first.findings[0])
        ref = next(e.ref for f in sick.findings for e in f.evidence if e.ref)
        crashed = replace(found, evidence=(Evidence(label="said", value=said, ref=ref),))
        others = tuple(crashed if f.id == found.id else f for f in sick.findings)
        (run,) = views((replace(sick, findings=others),))
        texts += [o.signature.text for o in occurrences([run]) if o.incident.id == first.id]
    assert texts[0] == texts[1] == "rank #: CUDA error at # after # GiB"


def test_the_page_lists_the_worst_run_first(report: Report) -> None:
    """Rows in order of severity, each linked to its report; both languages; two scripts of ours."""
    pages = {d.run.meta.id: f"{d.run.meta.id}.html" for d in report.diagnoses}
    html = render_index(report, "zh", pages)
    rows = re.findall(r'<td data-key="([^"]*)"><a href="([^"]*)"><b>', html)
    assert [name for name, _ in rows][-1] == report.diagnoses[0].run.meta.id
    assert {link for _, link in rows} == set(pages.values())
    assert 'lang="zh-CN"' in html
    assert "Seen in more than one run" in html
    assert html.count("<script") == html.count("</script") == 2


def test_two_runs_get_an_index_and_a_table_and_one_does_not(report: Report, tmp_path: Path) -> None:
    """index.html and findings.parquet come with the second run; no run takes their names."""
    clean, again, sick = report.diagnoses
    alone = write_files(replace(report, diagnoses=(sick,)), tmp_path / "one")
    assert [path.suffix for path in alone] == [".html", ".json"]
    odd = replace(report, diagnoses=(named(clean, "index"), again))
    written = [path.name for path in write_files(odd, tmp_path / "two")]
    assert written[-2:] == ["index.html", "findings.parquet"]
    assert "index-2.html" in written
    assert write_files(odd, tmp_path / "two")


def test_the_table_holds_every_finding(report: Report) -> None:
    """One row a finding, with its run, incident, best cause and first line."""
    runs = views(report.diagnoses)
    table = findings_frame(runs)
    assert table.schema == pl.Schema(SCHEMA)
    assert len(table) == sum(len(d.findings) for d in report.diagnoses)
    movers = table.filter("first_mover")
    assert len(movers) == sum(len(d.incidents) for d in report.diagnoses)
    assert table.filter(pl.col("line").is_not_null())["path"].null_count() == 0


def test_hostile_names_are_inert(report: Report) -> None:
    """A run's name of markup shows as text and leads nowhere else."""
    clean, again, sick = report.diagnoses
    name = '"><script>alert(1)</script>'
    bad = replace(report, diagnoses=(named(clean, name), again, sick))
    pages = {d.run.meta.id: f"{n}.html" for n, d in enumerate(bad.diagnoses)}
    html = render_index(bad, "en", pages)
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
