"""The compiled inner loops give what numpy gives, to the last bit; without them nothing changes."""

from __future__ import annotations

import importlib.util
import io
import random
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loganalyze_parsers import (
    DIALECTS,
    blocks,
    deepspeed_bulk,
    kernel,
    template_groups,
    text_log,
)
from loganalyze_parsers.huggingface_bulk import HuggingFaceBulk
from loganalyze_parsers.layout_rows import Rows
from loganalyze_parsers.lessons import Lesson, Template, Text, template_of
from loganalyze_parsers.megatron_bulk import MegatronBulk
from loganalyze_parsers.template_groups import apply, group_of, grouped
from loganalyze_parsers.templates import Slot
from paths import ROOT

from loganalyze import compiled as compiled_loops

HOOK = ROOT / "hatch_build.py"
MEGATRON = (
    b"[default7]: [2031-03-04 05:06:08.123456] iteration       12/    1000 | consumed samples: "
    b"        2048 | elapsed time per iteration (ms): 1353.4 | learning rate: 2.997E-04 | "
    b"lm loss: 1.031234E+01 | loss scale: 65536.0 | grad norm: 0.523 | num zeros: 34 | "
    b"number of nan iterations:   0 |"
)
PROGRESS = (
    b"[2031-03-04 05:06:08,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=12, skipped=0, "
    b"lr=[0.00029876543210987654], mom=[(0.9, 0.95)]"
)
ROW = b"{'loss': 2.0312, 'grad_norm': 1.2345678901234567, 'learning_rate': 1e-05, 'epoch': 0.5}"


def build(target: Path) -> str:
    """hatch_build.build() of this checkout; why there is no library, or an empty text."""
    if not HOOK.is_file() or shutil.which("cc") is None:
        return "no checkout, or no compiler"
    spec = importlib.util.spec_from_file_location("hatch_build_of_the_checkout", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.build(target))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> kernel.Kernel:
    """The kernel of the installation, else one built for these tests."""
    if compiled_loops.LIBRARY.is_file() and (found := kernel.load(compiled_loops.LIBRARY)):
        return found
    library = tmp_path_factory.mktemp("kernel") / "kernel.native"
    if why := build(library):
        pytest.skip(why)
    made = kernel.load(library)
    assert made is not None
    return made


def text_of(lines: list[bytes], *, closed: bool = True) -> Text:
    """Lines as templates take them; closed: whether the last one has its line feed."""
    raw = b"\n".join(lines) + (b"\n" if closed else b"")
    return Text(raw, *blocks.line_bounds(raw))


def read_by(
    one: kernel.Kernel | None, templates: Template | list[Template], text: Text, *,
    probe: bool = False,
) -> tuple[list[int], bytes, list[int]]:  # fmt: skip
    """Lines read by that kernel (None: numpy), the bits of their numbers, and the lines left.

    NaN where a line's template does not have a name that another's has.
    """
    group = group_of(templates if isinstance(templates, list) else [templates])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(template_groups, "kernel", lambda: one)
        found, left = apply(group, text, np.arange(len(text.starts)), probe=probe)
    if not found:
        return [], b"", left.tolist()
    rows = Rows(found)
    columns = [np.where(rows.held(name), rows.column(name), np.nan) for name in rows.names]
    return rows.lines.tolist(), b"".join(one.tobytes() for one in columns), left.tolist()


def any_template(text: bytes) -> Template:
    """Of `x=<a number in any form>, y`."""
    line = b"x=" + text + b", y"
    return template_of(line, Lesson((Slot("x", 3.7, 2, text.decode(), varies=True),)))


numbers = st.one_of(
    st.floats(allow_nan=True).map(repr),
    st.floats(1e-12, 1e12).map(lambda v: f"{v:.17g}"),
    st.floats(0, 1).map(lambda v: f"{v:.20f}"),
    st.integers(0, 2**64).map(lambda v: f"{v}e-{v % 30}"),
    st.integers(2**53, 2**64).map(lambda v: f"{v // 10**9}.{v % 10**9:09d}"),
    st.text("0123456789.eE+-", max_size=33),
    st.sampled_from(["", "-", "5.", ".5", "1e", "+1", "-0", "-0.0", "0e999", "1e400", "1_0", "٣"]),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(numbers, max_size=20))
def test_any_number_is_read_as_numpy_reads_it(compiled: kernel.Kernel, texts: list[str]) -> None:
    """Whatever stands where a number is expected: the same lines, the same bits, as float()."""
    text = text_of([b"x=" + one.encode() + b", y" for one in texts])
    template = any_template(b"1.5")
    taken, bits, left = read_by(compiled, template, text)
    assert (taken, bits, left) == read_by(None, template, text)
    assert np.frombuffer(bits).tolist() == [float(texts[line]) * 3.7 for line in taken]


def test_halves_are_rounded_to_even(compiled: kernel.Kernel) -> None:
    """Numbers halfway between two doubles, and right beside: as float() rounds them."""
    made = random.Random(8)
    texts = []
    for _ in range(1000):
        mantissa = made.randrange(2**52, 2**53) * 2 + 1  # 54 bits: halfway
        texts += [str(mantissa + k) for k in (-1, 0, 1)]
        scaled = mantissa * 5 ** made.randrange(1, 4)
        texts += [f"{scaled + k}e-{made.randrange(1, 25)}" for k in (-1, 0, 1)]
        texts.append(f"{made.randrange(10**18, 10**19)}e{made.randrange(-27, 28)}")
    programs = group_of([any_template(b"1.5")]).programs
    kept = compiled.read(programs, *bounds_of([f"x={one}, y".encode() for one in texts]))
    wanted = [float(texts[line]) * 3.7 for line in kept.lines.tolist()]
    assert kept.values[0].tolist() == wanted
    assert len(kept.lines) > 0.9 * len(texts)


def bounds_of(lines: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray, np.ndarray]:
    """Raw text, starts, ends, and all indices."""
    text = text_of(lines)
    return text.raw, text.starts, text.ends, np.arange(len(lines))


def templates() -> list[tuple[bytes, Template]]:
    """Teaching lines of the three makes, and what they teach."""
    made = [
        (MEGATRON, MegatronBulk()._teach(MEGATRON)),
        (PROGRESS, deepspeed_bulk._teach(PROGRESS)),
        (ROW, HuggingFaceBulk()._teach(ROW)),
    ]
    return [(line, template_of(line, lesson)) for line, lesson in made if lesson is not None]


def mutated(made: random.Random, line: bytes) -> bytes:
    """A line with digits changed, and sometimes something else."""
    changed = bytearray(line)
    for place, byte in enumerate(changed):
        if 49 <= byte <= 57 and made.random() < 0.2:  # exponents and days stay small
            changed[place] = made.randrange(48, 58)
    for _ in range(made.choice([0, 0, 0, 1, 2])):
        place = made.randrange(len(changed))
        what = made.randrange(4)
        if what == 0:
            changed[place] = made.randrange(256)
        elif what == 1:
            del changed[place : place + made.randrange(1, 9)]
        elif what == 2:
            changed[place:place] = bytes(made.choice(b"0123456789. -eE|") for _ in range(3))
        else:
            changed[place:place] = b"nan"
    return bytes(changed).replace(b"\n", b" ")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("closed", [True, False])
def test_mutated_lines_are_read_as_numpy_reads_them(
    compiled: kernel.Kernel, seed: int, which: int, closed: bool
) -> None:
    """Lines of each make, whole and damaged: the same lines taken, the same bits, the same left."""
    made = random.Random(seed)
    line, template = templates()[which]
    lines = [line, *(mutated(made, line) for _ in range(300)), mutated(made, line)]
    text = text_of(lines, closed=closed)
    for probe in (False, True):
        by_kernel = read_by(compiled, template, text, probe=probe)
        assert by_kernel == read_by(None, template, text, probe=probe)
        assert 2 < len(by_kernel[0]) < len(lines)


@pytest.mark.parametrize("seed", range(3))
def test_templates_that_look_at_the_same_lines(compiled: kernel.Kernel, seed: int) -> None:
    """Lines of all makes mixed, each read by the first template that fits, as numpy does it: the
    same lines, the same bits where a line's template has the name, and nothing where it has not."""
    made = random.Random(seed)
    known = templates()
    lines = [mutated(made, made.choice(known)[0]) for _ in range(400)]
    lines[7:7] = [line for line, _ in known]
    text = text_of(lines)
    group = [template for _, template in known]
    made.shuffle(group)
    by_kernel = read_by(compiled, group, text)
    assert by_kernel == read_by(None, group, text)
    assert {7, 8, 9} <= set(by_kernel[0])
    assert read_by(compiled, [*group, *group], text) == by_kernel


def test_more_templates_than_a_job_holds(compiled: kernel.Kernel) -> None:
    """Templates come in groups, as many as the kernel takes; all lines are read."""
    lines = [f"{'ab'[k % 2] * (k + 1)}={k}.5".encode() for k in range(3 * kernel.MOST_TEMPLATES)]
    taught = [
        template_of(line, Lesson((Slot("x", 1.0, line.index(b"=") + 1, f"{k}.5"),)))
        for k, line in enumerate(lines)
    ]
    groups = list(grouped(taught))
    assert [len(one.templates) for one in groups] == [kernel.MOST_TEMPLATES] * 3
    text, left, found = text_of(lines), np.arange(len(lines)), []
    for group in groups:
        new, left = apply(group, text, left, probe=True)
        found += new
    assert not len(left)
    assert Rows(found).column("x").tolist() == [k + 0.5 for k in range(len(lines))]


def test_templates_without_names_in_common_fill_tables_of_their_own() -> None:
    """A row has no more empty cells than numbers, however many sets of names a log has."""
    taught = [
        template_of(b"%d=1.5" % k, Lesson((Slot(f"name{k}", 1.0, len(str(k)) + 1, "1.5"),)))
        for k in range(50)
    ]
    assert all(len(one.names) <= 2 for one in grouped(taught))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["5", "12.5", "0.003", "123456789.25"]),
    st.sampled_from([".", "3", "0", " ", "|", ""]),
    st.lists(st.text("0123456789. |", max_size=22), max_size=12),
)
def test_numbers_of_free_length_end_as_in_numpy(
    compiled: kernel.Kernel, number: str, end: str, others: list[str]
) -> None:
    """Whatever byte ends the number, a digit or a point among them, and however long it is."""
    line = f"x={number}{end}y".encode() if end else f"x={number}".encode()
    template = template_of(line, Lesson((Slot("x", 1.0, 2, number),)))
    lines = [line, *(f"x={one}{end}y".encode() for one in (*others, number * 2, f"{number}9"))]
    for closed in (True, False):
        text = text_of(lines, closed=closed)
        assert read_by(compiled, template, text) == read_by(None, template, text)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=300), st.integers(0, 90))
def test_line_ends_are_those_of_numpy(compiled: kernel.Kernel, data: bytes, more: int) -> None:
    """All line feeds are found, also where there are far more than expected."""
    data += b"\n" * more
    assert compiled.breaks(data).tolist() == [k for k, byte in enumerate(data) if byte == 10]


@settings(max_examples=300, deadline=None)
@given(st.text("ab", max_size=120), st.text("ab", max_size=9))
def test_a_word_is_found_where_python_finds_it(
    compiled: kernel.Kernel, text: str, word: str
) -> None:
    """At any place of a text, at its very end and not beyond it; an empty word stands in all."""
    data = text.encode()
    assert compiled.holds(data, word.encode()) == (word in text)
    assert compiled.holds(data[:-1], data[-9:]) == (data[-9:] in data[:-1])


def samples() -> list[Path]:
    """Sample logs that are text."""
    import loganalyze_parsers

    root = Path(next(iter(loganalyze_parsers.__path__))).parent / "samples"
    return sorted(path for path in root.glob("*/*.log") if path.is_file())


def all_of(data: bytes, patch: pytest.MonkeyPatch, one: kernel.Kernel | None) -> list[object]:
    """Everything that is read of a text with that kernel (None: without)."""
    for module in (template_groups, blocks):
        patch.setattr(module, "kernel", lambda: one)
    batches = list(text_log(0).batches(blocks.read_blocks(io.BytesIO(data), 4000)))
    frames = [batch.readings for batch in batches if batch.readings is not None]
    frame = pl.concat(frames, how="diagonal") if frames else pl.DataFrame()
    return [frame.to_dict(as_series=False), *((b.events, b.problems, b.account) for b in batches)]


def test_whole_logs_are_read_the_same(
    compiled: kernel.Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, events, problems and accounts of texts that all dialects look at."""
    made = random.Random(4)
    texts = [path.read_bytes() for path in samples()]
    for line, _ in templates():
        texts.append(b"\n".join(mutated(made, line) for _ in range(200)))
    assert DIALECTS
    for data in texts:
        fast = all_of(data, monkeypatch, compiled)
        slow = all_of(data, monkeypatch, None)
        assert repr(fast) == repr(slow)  # NaN is equal to itself there


def test_the_user_can_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """LOGANALYZE_PURE leaves the kernel aside."""
    monkeypatch.setenv(compiled_loops.PURE, "1")
    assert kernel.kernel() is None


def test_a_library_of_another_source_is_not_used(
    compiled: kernel.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an update of the source an old library is left aside, and so is a damaged one."""
    library = tmp_path / "kernel.native"
    library.write_bytes(b"\x7fELF no library")
    assert kernel.load(library) is None
    if build(library):
        pytest.skip("cannot be built here")
    assert kernel.load(library) is not None
    other = tmp_path / "kernel.c"
    other.write_bytes(compiled_loops.SOURCES[0].read_bytes() + b"\n")
    monkeypatch.setattr(compiled_loops, "SOURCES", (other, *compiled_loops.SOURCES[1:]))
    assert kernel.load(library) is None


def test_without_a_compiler_there_is_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that fails, or none: the reason is told and nothing is left behind."""
    if not HOOK.is_file():
        pytest.skip("no checkout")
    for compiler in ("false", "/no/such/compiler"):
        monkeypatch.setenv("CC", compiler)
        assert build(tmp_path / "kernel.native")
        assert not list(tmp_path.iterdir())
