"""Where a rank stands in the job: its node and its place in tensor, pipeline and data parallelism.

The order is that of Megatron-LM (parallel_state, order "tp-cp-ep-dp-pp") and of DeepSpeed's
PipeModelDataParallelTopology: neighbours are of one tensor group, then of one context group, then
come the replicas of the data, and the stages of the pipeline lie furthest apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

_SIZES = {
    "tp": ("tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree",
           "model_parallel_size", "tp_size", "tp"),
    "cp": ("context_parallel_size", "context_parallel_degree", "cp_size", "cp"),
    "pp": ("pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel_degree",
           "pipe_parallel_size", "pp_size", "pp"),
}  # fmt: skip
_WORLD = ("world_size",)
_NODE = (
    "nproc_per_node", "local_world_size", "gpus_per_node", "num_gpus_per_node", "ntasks_per_node",
)  # fmt: skip
#: A group explains the slow ranks if it holds this share of them, and they this share of it.
_SHARE = 0.8


class Layout(Struct, frozen=True, kw_only=True):
    """Sizes of the dimensions, 1 where the log does not say; node: ranks of one, 0 if unknown."""

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    node: int = 0


class RankGroup(Struct, frozen=True, kw_only=True):
    """Ranks with one coordinate: `name` is node, tp, pp or dp."""

    name: str
    index: int
    ranks: frozenset[int]


def layout_of(config: Mapping[str, str], ranks: int) -> Layout:
    """The layout of a configuration as printed; ranks: of the job, where no world size is told."""
    sizes = {name: _size(config, keys) or 1 for name, keys in _SIZES.items()}
    world = _size(config, _WORLD) or ranks
    inner = sizes["tp"] * sizes["cp"] * sizes["pp"]
    if world % inner:
        return Layout(node=_size(config, _NODE) or 0)
    return Layout(**sizes, dp=world // inner, node=_size(config, _NODE) or 0)


def _size(config: Mapping[str, str], keys: Collection[str]) -> int | None:
    for key in keys:
        value = config.get(key, "")
        if value.isascii() and value.isdigit() and 0 < int(value) < 10**9:
            return int(value)
    return None


def coordinates(rank: int, layout: Layout) -> dict[str, int]:
    """A rank's coordinate in each dimension that has more than one place.

    >>> coordinates(13, Layout(tp=2, dp=2, pp=4, node=8))
    {'node': 1, 'tp': 1, 'pp': 3, 'dp': 0}
    """
    tp, rest = rank % layout.tp, rank // layout.tp
    rest //= layout.cp
    dp, pp = rest % layout.dp, rest // layout.dp
    told = {"node": (layout.node, rank // layout.node if layout.node else 0),
            "tp": (layout.tp, tp), "pp": (layout.pp, pp), "dp": (layout.dp, dp)}  # fmt: skip
    return {name: at for name, (size, at) in told.items() if size > 1}


def shared_group(
    odd: Collection[int], ranks: Collection[int], layout: Layout
) -> RankGroup | None:
    """The smallest group that most of the odd ranks make up, if they are at least two.

    A dimension whose single place is all ranks explains nothing.
    """
    groups: dict[tuple[str, int], set[int]] = {}
    for rank in ranks:
        for name, at in coordinates(rank, layout).items():
            groups.setdefault((name, at), set()).add(rank)
    found = [
        RankGroup(name=name, index=at, ranks=frozenset(members))
        for (name, at), members in groups.items()
        if 1 < len(members) < len(ranks) and _explains(set(odd), members)
    ]
    return min(found, key=lambda group: len(group.ranks), default=None)


def _explains(odd: set[int], members: set[int]) -> bool:
    inside = len(odd & members)
    return inside > 1 and inside >= _SHARE * len(members) and inside >= _SHARE * len(odd)
