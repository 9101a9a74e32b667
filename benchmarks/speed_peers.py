"""What people use instead, one function a reader: the other side of the speed benchmark.

    python benchmarks/speed_peers.py NAME FILE

Prints seconds and rows; runs under any Python that has the reader's package. Needs pandas;
tensorboard, tbparse; wandb before 0.20 (later ones have no reader of their own files).
"""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

Search = Callable[[str], re.Match[str] | None]
NUMBER = r"([\d.]+(?:E[+-]\d+)?)"
FIELDS = {
    "iteration": r"iteration\s+(\d+)/",
    "of": r"iteration\s+\d+/\s*(\d+)",
    "samples": r"consumed samples:\s+(\d+)",
    "ms": rf"elapsed time per iteration \(ms\):\s*{NUMBER}",
    "tflops": rf"throughput per GPU \(TFLOP/s/GPU\):\s*{NUMBER}",
    "lr": rf"learning rate:\s*{NUMBER}",
    "batch": r"global batch size:\s*(\d+)",
    "loss": rf"lm loss:\s*{NUMBER}",
    "balance": rf"load_balancing_loss:\s*{NUMBER}",
    "scale": rf"loss scale:\s*{NUMBER}",
    "norm": rf"grad norm:\s*{NUMBER}",
    "zeros": rf"num zeros:\s*{NUMBER}",
    "params": rf"params norm:\s*{NUMBER}",
    "skipped": r"number of skipped iterations:\s*(\d+)",
    "nan": r"number of nan iterations:\s*(\d+)",
    "time": r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+)\]",
}


def megatron_fields(path: Path) -> int:
    """One compiled pattern a field on each line, into pandas."""
    return _fields(path, {name: re.compile(pattern).search for name, pattern in FIELDS.items()})


def megatron_search(path: Path) -> int:
    """The same with re.search() of each pattern: as many scripts are written so."""
    return _fields(path, {name: partial(re.search, pattern) for name, pattern in FIELDS.items()})


def _fields(path: Path, searches: dict[str, Search]) -> int:
    import pandas as pd

    rows = []
    with path.open() as file:
        for line in file:
            if "iteration" not in line:
                continue
            row: dict[str, Any] = {}
            for name, search in searches.items():
                match = search(line)
                if match:
                    row[name] = match[1] if name == "time" else float(match[1])
            if "loss" in row:
                rows.append(row)
    frame = pd.DataFrame(rows)
    frame["time"] = pd.to_datetime(frame["time"])
    return len(frame)


def megatron_line(path: Path) -> int:
    """One big pattern a line, into pandas."""
    import pandas as pd

    order = [name for name in FIELDS if name != "time"]
    fields = {**FIELDS, "of": r"\s*(\d+)"}  # right behind the iteration
    pattern = re.compile(FIELDS["time"] + ".*?" + ".*?".join(fields[name] for name in order))
    rows = []
    with path.open() as file:
        for line in file:
            match = pattern.search(line)
            if match:
                rows.append((match[1], *map(float, match.groups()[1:])))
    frame = pd.DataFrame(rows, columns=["time", *order])
    frame["time"] = pd.to_datetime(frame["time"])
    return len(frame)


def huggingface_ast(path: Path) -> int:
    """ast.literal_eval on each line, into pandas."""
    import pandas as pd

    with path.open() as file:
        rows = [ast.literal_eval(line) for line in file if line.startswith("{")]
    return len(pd.DataFrame(rows))


def loop_line(path: Path) -> int:
    """One pattern for the line of a loop of one's own, into pandas."""
    import pandas as pd

    names = ("step", "loss", "lr", "norm", "dt", "tokens")
    pattern = re.compile(
        r"step +(\d+) \| loss ([\d.]+) \| lr ([\d.e+-]+) \| norm ([\d.]+) \| dt ([\d.]+)ms \| "
        r"tok/s ([\d.]+)"
    )
    with path.open() as file:
        found = [match.groups() for line in file if (match := pattern.match(line))]
    return len(pd.DataFrame(found, columns=names).astype(float))


def epoch_line(path: Path) -> int:
    """One pattern for the line of a loop with epochs, its steps counted on, into pandas."""
    import pandas as pd

    names = ("epoch", "step", "size", "loss", "lr", "time")
    pattern = re.compile(
        r"Epoch \[(\d+)/\d+\], Step \[(\d+)/(\d+)\], Loss: ([\d.]+), lr: ([\d.]+), time: ([\d.]+)s"
    )
    with path.open() as file:
        found = [match.groups() for line in file if (match := pattern.match(line))]
    frame = pd.DataFrame(found, columns=names).astype(float)
    frame["step"] += (frame["epoch"] - 1) * frame["size"]
    return len(frame)


def deepspeed_three(path: Path) -> int:
    """Three patterns on each line, into pandas."""
    import pandas as pd

    patterns = {
        "step": re.compile(r"(?:step|global_step)=(\d+)"),
        "lr": re.compile(r"lr=\[([\d.e+-]+)"),
        "rate": re.compile(r"CurrSamplesPerSec=([\d.e+-]+)"),
    }
    rows = []
    with path.open() as file:
        for line in file:
            found = {name: pattern.search(line) for name, pattern in patterns.items()}
            row = {name: float(match[1]) for name, match in found.items() if match}
            if row:
                rows.append(row)
    return len(pd.DataFrame(rows))


def json_lines(path: Path) -> int:
    """pandas.read_json(lines=True)."""
    import pandas as pd

    return len(pd.read_json(path, lines=True))


def csv_table(path: Path) -> int:
    """pandas.read_csv()."""
    import pandas as pd

    return len(pd.read_csv(path))


def trainer_state(path: Path) -> int:
    """json.load() and pandas."""
    import json

    import pandas as pd

    return len(pd.DataFrame(json.loads(path.read_text())["log_history"]))


def tensorboard_loader(path: Path) -> int:
    """TensorBoard's EventAccumulator with nothing thinned out."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    made.Reload()
    return sum(len(made.Scalars(tag)) for tag in made.Tags()["scalars"])


def tbparse(path: Path) -> int:
    """tbparse's SummaryReader."""
    from tbparse import SummaryReader

    return len(SummaryReader(str(path)).scalars)


def wandb_store(path: Path) -> int:
    """The wandb package's own DataStore and messages."""
    import json

    import pandas as pd
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(path))
    rows = []
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return len(pd.DataFrame(rows))


def make_events(path: Path) -> int:
    """Not a reader: writes an event file of 20 tags with TensorBoard's own writer."""
    import random

    rows = int(sys.argv[3])
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    made = random.Random(1)
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        for index in range(rows):
            value = Summary.Value(tag=f"train/metric{index % 20}", simple_value=made.random())
            event = Event(wall_time=1e9 + index, step=index // 20, summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
        writer.flush()
    return rows


PEERS: dict[str, Callable[[Path], int]] = {
    "megatron_fields": megatron_fields,
    "megatron_search": megatron_search,
    "megatron_line": megatron_line,
    "loop_line": loop_line,
    "epoch_line": epoch_line,
    "huggingface_ast": huggingface_ast,
    "deepspeed_three": deepspeed_three,
    "json_lines": json_lines,
    "csv_table": csv_table,
    "trainer_state": trainer_state,
    "tensorboard_loader": tensorboard_loader,
    "tbparse": tbparse,
    "wandb_store": wandb_store,
    "make_events": make_events,
}

if __name__ == "__main__":
    begin = time.perf_counter()
    count = PEERS[sys.argv[1]](Path(sys.argv[2]))
    print(f"{time.perf_counter() - begin:.3f} s, {count} rows")
