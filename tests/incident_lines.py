"""Failure lines of a record: its patterns written out, framed as programs print them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any


def sample(pattern: str) -> str:
    """One text that a regular expression matches: first branches, ones for digits.

    >>> sample("Xid [(]PCI:[^)]+[)]: 6[34]")
    'Xid (PCI:x): 63'
    """
    return "".join(_parts(_parser.parse(pattern)))


def _parts(tree: Any) -> Iterator[str]:
    for op, given in tree:
        if op is _constants.LITERAL:
            yield chr(given)
        elif op in (_constants.ANY, _constants.NOT_LITERAL):
            yield "x"
        elif op is _constants.IN:
            yield _of_set(given)
        elif op is _constants.BRANCH:
            yield from _parts(given[1][0])
        elif op is _constants.SUBPATTERN:
            yield from _parts(given[3])
        elif op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            low, high, inner = given
            loose = low == 0 and inner[0][0] is _constants.ANY
            count = 0 if loose or high == 0 else max(low, 1)
            yield "".join(_parts(inner)) * count
            if loose:
                yield " "


def _of_set(items: Any) -> str:
    op, given = items[0]
    if op is _constants.NEGATE:
        return "x"
    if op is _constants.RANGE:
        return chr(given[0])
    if op is _constants.LITERAL:
        return chr(given)
    return {_constants.CATEGORY_DIGIT: "1", _constants.CATEGORY_SPACE: " "}.get(given, "a")


def failure_lines(record: Mapping[str, Any]) -> list[str]:
    """The record's own lines as a program prints them; words about a log become nothing."""
    written = [_written(text) for text in record["log_lines_that_matter"]]
    kind = record["kind"]
    if kind in ("hang", "net_error"):
        return list(_watchdog(record, written))
    if kind == "gpu_oom":
        return list(_out_of_memory(written))
    if record["cause_id"] == "":
        return written
    return [line for text in written for line in _framed(text)]


def _written(pattern: str) -> str:
    try:
        return sample(pattern)
    except (re.error, RuntimeError, IndexError):
        return pattern


def _framed(text: str) -> Iterator[str]:
    """Exceptions and kernel lines stand in frames of their own."""
    if "Xid" in text or "AER" in text or "Out of memory: Killed" in text:
        text = text.replace("PCI:x", "PCI:0000:3b:00").replace("PCI:)", "PCI:0000:3b:00)")
        killed = " 4242 (python) total-vm:91kB, anon-rss:22kB" if "Killed" in text else ""
        yield f"[ 8101.334455] {text}{killed}"
        return
    if text.startswith("exitcode"):
        yield f"failed ({text}) local_rank: 0 (pid: 4242) of binary: /usr/bin/python"
        return
    if re.search(r"PytorchStreamReader|unexpected EOF|deserializing|device-side assert", text):
        yield "Traceback (most recent call last):"
        yield '  File "/job/run.py", line 40, in main'
        yield f"RuntimeError: {text}"
        return
    if "class input value" in text:
        yield "Traceback (most recent call last):"
        yield '  File "/job/run.py", line 12, in load'
        yield f"AssertionError: {text} for total number of iterations do not match"
        return
    yield f"All {text}" if text.startswith("labels in your dataset") else text


def _watchdog(record: Mapping[str, Any], written: list[str]) -> Iterator[str]:
    """Lines about a collective become one whole line of the watchdog; others stay."""
    joined = " ".join(written)
    told = dict(re.findall(r"(OpType|NumelIn|NumelOut|Timeout\(ms\))=(\w+)", joined))
    ran = re.search(r"ran for (\d+)", joined)
    for text in written:
        if "StopIteration" in text:
            yield "[rank0]: Traceback (most recent call last):"
            yield '[rank0]:   File "/job/train.py", line 88, in next_batch'
            yield "[rank0]: StopIteration"
        elif "NET/IB" in text:
            yield f"gpu07:211:402 [0] {text}"
        elif not re.search(r"OpType|NumelIn|ran for", text):
            yield text
    if told or ran:
        limit = told.get("Timeout(ms)", ran[1] if ran else "600000")
        limit = limit if len(limit) > 3 else "600000"
        yield (
            "[rank1]:[E ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation "
            f"timeout: WorkNCCL(SeqNum=411, OpType={told.get('OpType', 'ALLREDUCE')}, "
            f"NumelIn={told.get('NumelIn', '1')}, NumelOut={told.get('NumelOut', '1')}, "
            f"Timeout(ms)={limit}) "
            f"ran for {ran[1] if ran else limit} milliseconds before timing out."
        )


def _out_of_memory(written: list[str]) -> Iterator[str]:
    """A whole message, with a stack of the functions that the record names."""
    functions = [w for text in written for w in re.findall(r"\b\w+_\w+\b", text)]
    yield "Traceback (most recent call last):"
    for name in functions[:2]:
        yield f'  File "/job/loop.py", line 7, in {name}'
        yield f"    out = {name}(model)"
    fragmented = any("unallocated" in text for text in written)
    idle, held = ("3.10 GiB", "70.02 GiB") if fragmented else ("210.00 MiB", "60.40 GiB")
    wanted = "1.20 GiB" if fragmented else "58.00 GiB" if functions else "2.00 GiB"
    yield (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a "
        f"total capacity of 79.10 GiB of which 900.00 MiB is free. Including non-PyTorch memory, "
        f"this process has 78.20 GiB memory in use. Of the allocated memory {held} is allocated "
        f"by PyTorch, and {idle} is reserved by PyTorch but unallocated."
    )
