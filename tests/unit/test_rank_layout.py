"""Where ranks stand, against the nested loops that hand out the coordinates."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from synth_system import context, make_run

from loganalyze.detectors.ranks import detect_stragglers
from loganalyze.rank_layout import Layout, coordinates, layout_of, shared_group

CONFIG = {
    "tensor_model_parallel_size": "2", "pipeline_model_parallel_size": "4",
    "context_parallel_size": "1", "world_size": "32", "nproc_per_node": "8",
}  # fmt: skip


def test_coordinates_equal_the_nested_loops() -> None:
    """Ranks are numbered tensor first, then context, data and pipeline."""
    layout = Layout(tp=2, cp=3, dp=4, pp=5)
    rank = 0
    for pp in range(5):
        for dp in range(4):
            for _ in range(3):
                for tp in range(2):
                    assert coordinates(rank, layout) == {"tp": tp, "pp": pp, "dp": dp}
                    rank += 1


def test_layout_of_what_the_log_prints() -> None:
    """The data parallel size is what is left; a world that does not divide is not believed."""
    assert layout_of(CONFIG, 32) == Layout(tp=2, pp=4, dp=4, node=8)
    assert layout_of({**CONFIG, "world_size": "33"}, 32) == Layout(node=8)
    assert layout_of({}, 16) == Layout(dp=16)


def test_the_smallest_group_that_explains_is_named() -> None:
    """Eight slow ranks of one node are a node; a few here and there are nothing in common."""
    layout = layout_of(CONFIG, 32)
    group = shared_group(range(8, 16), range(32), layout)
    assert group is not None
    assert (group.name, group.index) == ("node", 1)
    assert shared_group([1, 9, 22], range(32), layout) is None
    assert shared_group([3], range(32), replace(layout, dp=1)) is None


def test_a_slow_node_is_one_finding() -> None:
    """Four of 64 ranks are slow, all of one node: one finding that names it."""
    rng = np.random.default_rng(4)
    values = np.exp(0.01 * rng.standard_normal((100, 64)))
    values[:, 20:24] *= 1.2
    run = make_run(
        {"step_time_s": values.ravel()},
        steps=np.repeat(np.arange(1, 101), 64),
        rank=np.tile(np.arange(64), 100),
    )
    run = replace(run, meta=replace(run.meta, config={"nproc_per_node": "4"}))
    (one,) = detect_stragglers(context(run))
    assert one.statistics["group"] == "node 5 (4/4 ranks)"
    assert one.statistics["slow_ranks"] == 4
