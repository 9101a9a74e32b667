"""`compare`: designed differences are found where they are, quiet pairs stay quiet."""

from __future__ import annotations

import json
import math
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from textlogs import megatron_line, run_of

from loganalyze.cli import cli
from loganalyze.compare import compare_runs, load_runs
from loganalyze.compare.curves import Curve, aligned, curve
from loganalyze.compare.facts import cost, setting_differences
from loganalyze.compare.interval import DRAWS, block_indices, judged, median_interval
from loganalyze.compare.parting import MEDIAN_ERROR, difference, odd_window, parting
from loganalyze.config import load_thresholds
from loganalyze.errors import LoganalyzeError, UsageError

Values = list[float]
NAN = math.nan


# -- the second, slow implementations ---------------------------------------------------------


def slow_median(values: Values) -> float:
    """Median by sorting; infinities sort at the ends."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def slow_difference(base: Values, other: Values) -> Values:
    """other - base, one by one; missing on one side is infinite on that side."""
    out = []
    for one, two in zip(base, other, strict=True):
        fine_one, fine_two = math.isfinite(one), math.isfinite(two)
        if fine_one and fine_two:
            out.append(two - one)
        else:
            out.append(0.0 if fine_one == fine_two else math.inf if fine_one else -math.inf)
    return out


def slow_centred(d: Values, window: int) -> Values:
    """Median around each point; the ends repeat the end values."""
    half = window // 2
    padded = [d[0]] * half + d + [d[-1]] * half
    return [slow_median(padded[at : at + window]) for at in range(len(d))]


def slow_band(d: Values, window: int, sigmas: float) -> float:
    """The noise band, from its definition."""
    centre = slow_centred(d, window)
    rest = [x - c for x, c in zip(d, centre, strict=True)
            if math.isfinite(x) and math.isfinite(c)]  # fmt: skip
    if len(rest) < 2:
        return 0.0
    middle = slow_median(rest)
    sigma = 1.4826 * slow_median([abs(x - middle) for x in rest])
    scale = sigma or statistics.pstdev(rest)
    r = 0.0
    if len(rest) >= 8 and scale:
        clipped = [min(3.0, max(-3.0, (x - middle) / scale)) for x in rest]
        mean = sum(clipped) / len(clipped)
        y = [x - mean for x in clipped]
        r = sum(a * b for a, b in pairwise(y)) / sum(a * a for a in y)
        r = min(0.99, max(0.0, r))
    error = MEDIAN_ERROR * sigma * math.sqrt(window / (window - 1)) / math.sqrt(window)
    return sigmas * error * math.sqrt((1 + r) / (1 - r))


def slow_parting(
    base: Values, other: Values, window: int, sigmas: float
) -> tuple[int | None, int | None]:
    """(after, step) as indices, walking back from the end."""
    d = slow_difference(base, other)
    first = next((at for at, x in enumerate(d) if x != 0), None)
    band = slow_band(d if first is None else d[first:], window, sigmas)
    ends = range(window - 1, len(d))
    m = {at: slow_median(d[at - window + 1 : at + 1]) for at in ends}
    for side in (1, -1):
        at = len(d) - 1
        if not side * m[at] > band:
            continue
        while at in m and side * m[at] > 0:
            at -= 1
        after = at - window + 1 if at in m else None
        place = next(i for i in range(at + 1, len(d)) if side * m[i] > band)
        return (after, place) if len(d) - place >= 2 * window else (None, None)
    return None, None


# -- parting ----------------------------------------------------------------------------------


def noisy(seed: int, points: int, correlation: float = 0.0) -> np.ndarray:
    """AR(1) noise of deviation 0.02 on a falling loss."""
    draw = np.random.default_rng(seed)
    shocks = draw.normal(0, 0.02 * math.sqrt(1 - correlation**2), points)
    out = np.zeros(points)
    for at in range(1, points):
        out[at] = correlation * out[at - 1] + shocks[at]
    return 2 + 3 / np.sqrt(np.arange(1, points + 1)) + out


def parted(base: np.ndarray, other: np.ndarray, window: int = 21) -> tuple[int | None, int | None]:
    """(after, step) of two curves over steps 0, 1, 2, ..."""
    found = parting(np.arange(len(base)), base, other, window=window, sigmas=3)
    return found.after, found.step


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**20), st.integers(20, 120), st.sampled_from([3, 5, 9]),
    st.floats(-0.2, 0.2), st.integers(0, 100), st.booleans(),
)  # fmt: skip
def test_parting_equals_the_slow_way(
    seed: int, points: int, window: int, jump: float, at: int, broken: bool
) -> None:
    """The fast and the slow implementation agree on step, side and band, with NaN in between."""
    base, other = noisy(seed, points), noisy(seed + 1, points)
    other[at:] += jump
    other[: at // 3] = base[: at // 3]
    if broken:
        other[at : at + 4] = NAN
        base[: at // 4] = NAN
    found = parting(np.arange(points), base, other, window=window, sigmas=3)
    d = slow_difference(base.tolist(), other.tolist())
    np.testing.assert_array_equal(difference(base, other), d)
    first = next((i for i, x in enumerate(d) if x != 0), None)
    assert found.first_unequal == first
    assert found.band == pytest.approx(slow_band(d if first is None else d[first:], window, 3))
    slow = slow_parting(base.tolist(), other.tolist(), window, 3)
    assert (found.after, found.step) == slow


@pytest.mark.parametrize(("correlation", "size"), [(0.0, 0.05), (0.5, 0.08)])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_jump_lies_within_the_interval_named(correlation: float, size: float, sign: int) -> None:
    """A jump of 2-3 deviations of the difference at point 400 lies in (after, step]."""
    hits = 0
    for seed in range(40):
        base, other = noisy(seed, 1000, correlation), noisy(seed + 1000, 1000, correlation)
        other[400:] += sign * size
        after, step = parted(base, other)
        hits += after is not None and step is not None and after < 400 <= step
    assert hits >= 38


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_quiet_pairs_do_not_part(correlation: float) -> None:
    """Runs that differ in noise alone part in none of 100 pairs (independent or correlated)."""
    steps = [
        parted(noisy(seed, 600, correlation), noisy(seed + 5000, 600, correlation))[1]
        for seed in range(100)
    ]
    assert sum(step is not None for step in steps) == 0


def test_a_spike_that_heals_is_no_parting() -> None:
    """A hundred points above, then back: not for good."""
    base, other = noisy(1, 1000), noisy(2, 1000)
    other[300:400] += 1
    assert parted(base, other) == (None, None)


def test_nan_for_good_is_a_parting() -> None:
    """A run that turns NaN parts there and counts as higher; the reverse as lower."""
    base, other = noisy(1, 600), noisy(2, 600)
    other[450:] = NAN
    found = parting(np.arange(600), base, other, window=21, sigmas=3)
    assert found.step is not None
    assert found.after is not None
    assert found.after < 450 <= found.step
    assert found.higher is True
    assert parting(np.arange(600), other, base, window=21, sigmas=3).higher is False


def test_equal_curves() -> None:
    """Bit-equal curves have no first different step; one last digit is found."""
    base = noisy(3, 200)
    found = parting(np.arange(200), base, base.copy(), window=9, sigmas=3)
    assert (found.first_unequal, found.step) == (None, None)
    other = base.copy()
    other[77] = np.nextafter(other[77], 9)
    found = parting(np.arange(200), base, other, window=9, sigmas=3)
    assert (found.first_unequal, found.step) == (77, None)


def test_windows_are_odd_and_within_limits() -> None:
    """The window is a share of the points within its limits."""
    assert [odd_window(n, 0.05, 9, 101) for n in (0, 100, 400, 10**6)] == [9, 9, 21, 101]


# -- the interval -----------------------------------------------------------------------------


def test_interval_equals_the_slow_way() -> None:
    """The bootstrap with plain loops over the same draws gives the same ends."""
    d = noisy(4, 90)
    medians = sorted(slow_median([float(d[i]) for i in row]) for row in block_indices(90))
    assert len(medians) == DRAWS

    def quantile(share: float) -> float:
        at = share * (DRAWS - 1)
        low = int(at)
        return medians[low] + (at - low) * (medians[min(low + 1, DRAWS - 1)] - medians[low])

    middle, low, high = median_interval(d)
    assert middle == slow_median(d.tolist())
    assert low == pytest.approx(min(middle, quantile(0.025)))
    assert high == pytest.approx(max(middle, quantile(0.975)))


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 88), (0.5, 84)])
def test_interval_covers_the_truth(correlation: float, least: int) -> None:
    """The interval holds the true median in about 95 of 100 series of 400 points."""
    falling = 2 + 3 / np.sqrt(np.arange(1, 401))
    hits = 0
    for seed in range(100):
        _, low, high = median_interval(noisy(seed, 400, correlation) - falling)
        hits += low <= 0 <= high
    assert hits >= least


def test_blocks_are_circular_neighbours() -> None:
    """Each row of indices runs through neighbours, and all lie within the series."""
    rows = block_indices(25)
    assert rows.shape == (DRAWS, 25)
    assert ((np.diff(rows[:, :5], axis=1) % 25) == 1).all()
    assert rows.min() >= 0
    assert rows.max() < 25


@pytest.mark.parametrize(("low", "high", "better", "expected"), [
    (0.1, 0.2, "lower", "worse"), (-0.2, -0.1, "lower", "better"),
    (0.1, 0.2, "higher", "better"), (-0.2, -0.1, "higher", "worse"),
    (0.1, 0.2, "", "different"), (-0.1, 0.2, "lower", "unclear"),
    (0.0, 0.0, "lower", "same"), (0.0002, 0.0012, "lower", "same"), (-0.0005, 0.0004, "", "same"),
])  # fmt: skip
def test_judgement(low: float, high: float, better: str, expected: str) -> None:
    """Direction, doubt and negligible differences, at a level of 1 with a margin of 0.1 %."""
    assert judged(low, high, 1.0, better, 0.001) == expected


# -- curves, settings, cost -------------------------------------------------------------------


def lines(steps: range, loss: float = 2.0) -> list[str]:
    """Megatron lines with a loss that tells the step."""
    return [megatron_line(n, lm_loss=f"{loss + n / 1000:.6E}") for n in steps]


def test_steps_run_again_count_once(tmp_path: Path) -> None:
    """After a resume the new branch counts, also where the old one had gone further."""
    text = lines(range(1, 61)) + [" loading checkpoint from /c at iteration 40"]
    text += lines(range(41, 56), loss=5.0)
    run = run_of("\n".join(text) + "\n", tmp_path)
    found = curve(run, "loss")
    assert found.steps.tolist() == list(range(1, 56))
    assert found.values[39] == pytest.approx(2.04)
    assert found.values[40] == pytest.approx(5.041)
    assert len(curve(run, "reward").steps) == 0


def test_alignment_takes_common_steps() -> None:
    """Only steps that both have are compared."""
    one = Curve(steps=np.array([1, 3, 5, 7]), values=np.array([1.0, 3.0, 5.0, 7.0]))
    two = Curve(steps=np.array([2, 3, 7]), values=np.array([20.0, 30.0, 70.0]))
    steps, base, other = aligned(one, two)
    assert (steps.tolist(), base.tolist(), other.tolist()) == ([3, 7], [3.0, 7.0], [30.0, 70.0])


def test_settings() -> None:
    """Spellings of one value are the same; missing ones are named; silence says nothing."""
    base = {"lr": "1e-4", "bf16": "True", "seed": "1", "gone": "x"}
    other = {"lr": "0.0001", "bf16": "true", "seed": "2", "new": "y"}
    found = [(d.name, d.base, d.other) for d in setting_differences(base, other)]
    assert found == [("gone", "x", None), ("new", None, "y"), ("seed", "1", "2")]
    assert setting_differences({}, other) == ()


def test_cost_from_times_per_step(tmp_path: Path) -> None:
    """Without clocks the time is steps times the median time per step."""
    said = {"elapsed_time_per_iteration_(ms)": "500.0", "lm_loss": "2.0E+00"}
    text = [megatron_line(n, consumed_samples=f"{8 * n}", **said) for n in range(1, 41)]
    found = cost(run_of("\n".join(text) + "\n", tmp_path))
    assert (found.steps, found.repeated, found.tokens) == (40, 0, None)
    assert found.seconds == pytest.approx(20.0)


# -- the whole --------------------------------------------------------------------------------


def written(folder: Path, name: str, values: np.ndarray) -> Path:
    """A log with these losses."""
    path = folder / name
    said = [megatron_line(n, lm_loss=f"{v:.6E}", grad_norm="0.5") for n, v in enumerate(values, 1)]
    path.write_text("\n".join(said) + "\n")
    return path


def call(*arguments: str | Path) -> Result:
    """The result of `compare`."""
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)], standalone_mode=False)


def test_command_finds_the_worse_run(tmp_path: Path) -> None:
    """A loss that is raised from step 201 on: place, side, verdict; the text ends with it."""
    base, other = noisy(7, 600), noisy(8, 600)
    other[200:] += 0.1
    paths = written(tmp_path, "base.log", base), written(tmp_path, "cand.log", other)
    result = call(*paths, "--format", "json")
    assert result.return_value == 0, result.exception
    document = json.loads(result.output)
    (pair,) = document["pairs"]
    assert document["schema"] == "loganalyze.compare/1"
    assert pair["parting"]["after"] < 201 <= pair["parting"]["step"]
    assert pair["parting"]["higher"] is True
    assert pair["verdict"] == "worse"
    (loss,) = (m for m in pair["metrics"] if m["metric"] == "loss")
    assert loss["low"] <= 0.1 <= loss["high"] or abs(loss["late"] - 0.1) < 0.02
    text = call(*paths, "--lang", "en").output
    assert text.splitlines()[-1] == "Verdict: cand is worse than base by training loss"
    assert "结论" in call(*paths, "--lang", "zh").output


def test_command_is_deterministic_and_symmetric(tmp_path: Path) -> None:
    """The same call gives the same bytes; exchanged runs exchange better and worse."""
    base, other = noisy(7, 300), noisy(8, 300) + 0.2
    paths = written(tmp_path, "a.log", base), written(tmp_path, "b.log", other)
    once, twice = (call(*paths, "--format", "json").output for _ in range(2))
    assert once == twice
    back = json.loads(call(*reversed(paths), "--format", "json").output)
    assert json.loads(once)["pairs"][0]["verdict"] == "worse"
    assert back["pairs"][0]["verdict"] == "better"


def test_nan_decides(tmp_path: Path) -> None:
    """A run that ends in NaN is worse, however low its loss was before."""
    other = noisy(8, 300) - 0.3
    other[250:] = NAN
    paths = written(tmp_path, "a.log", noisy(7, 300)), written(tmp_path, "b.log", other)
    assert "b is worse than a: NaN or Inf" in call(*paths, "--lang", "en").output


def test_three_runs_of_one_name(tmp_path: Path) -> None:
    """Runs keep names of their own, and each is set against the first."""
    paths = []
    for number in range(3):
        (tmp_path / f"r{number}").mkdir()
        paths.append(written(tmp_path / f"r{number}", "train.log", noisy(number, 100)))
    runs = load_runs([str(path) for path in paths])
    assert [run.meta.id for run in runs] == ["r0/train", "r1/train", "r2/train"]
    comparison = compare_runs(runs, load_thresholds())
    assert [pair.other for pair in comparison.pairs] == ["r1/train", "r2/train"]


def test_runs_without_common_steps(tmp_path: Path) -> None:
    """Curves that do not overlap are said not to, and nothing is judged."""
    (tmp_path / "a.log").write_text("\n".join(lines(range(1, 50))) + "\n")
    (tmp_path / "b.log").write_text("\n".join(lines(range(100, 150))) + "\n")
    text = call(tmp_path / "a.log", tmp_path / "b.log", "--lang", "en").output
    assert "no common steps" in text
    assert text.splitlines()[-1].startswith("Verdict: neither")


def test_wrong_use(tmp_path: Path) -> None:
    """One run, an unknown metric and an empty log are clear errors with their exit codes."""
    good = written(tmp_path, "a.log", noisy(1, 50))
    (tmp_path / "empty.log").write_text("hello\n")
    for arguments, code in [
        ((good,), 2), ((good, good, "--metric", "lss"), 2), ((good, tmp_path / "empty.log"), 3),
        ((good, tmp_path / "none.log"), 2),
    ]:  # fmt: skip
        error = call(*arguments).exception
        assert isinstance(error, LoganalyzeError)
        assert error.exit_code == code
    with pytest.raises(UsageError):
        load_runs([str(good)])
