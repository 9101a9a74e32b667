"""Small invented inputs of every format, for the fuzzer: a name, its bytes, and what it is."""

from __future__ import annotations

import io
import json
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import build_tfevents as tfe
import build_wandb as wb
import fuzz_side_inputs
import polars as pl
from textlogs import megatron_line

_DS = "[2031-04-02 10:11:12,345] [INFO] "


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One input: the name of its file below a folder, and its bytes."""

    family: str
    name: str
    data: bytes
    binary: bool = False
    plain: bool = False  # numbers of loss, lr and gradient stand in the cited bytes as they are
    beside: str = ""  # a file without which the format is not known


def loss(step: int) -> float:
    """An invented curve, with a spike at 30."""
    return round(2.0 + 6.0 / step + 0.01 * (step % 5) + (4.0 if step == 30 else 0.0), 5)


def megatron(rows: int) -> bytes:
    """Megatron lines with loads, saves, a skipped step and a crash."""
    lines = ["  lr ............... 0.0003", "loading checkpoint from /ckpt at iteration 0"]
    for n in range(1, rows + 1):
        nan = n == 33
        lines.append(megatron_line(
            n, consumed_samples=str(n * 64),
            elapsed_time_per_iteration__ms_="812.5" if n % 9 else "9120.0",
            learning_rate="3.0E-04", lm_loss="nan" if nan else f"{loss(n):.6E}",
            loss_scale="65536.0", grad_norm=f"{0.5 + n % 3 / 10:.3f}",
            number_of_skipped_iterations="0", number_of_nan_iterations=str(int(nan)),
        ).replace("iteration  ms ", "iteration (ms)"))  # fmt: skip
    lines += ["saving checkpoint at iteration      40 to /ckpt in torch_dist format"]
    return "\n".join([*lines, *CRASH]).encode()


CRASH = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "/opt/train.py", line 12, in <module>',
    "[rank3]:     loss.backward()",
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has "
    "a total capacity of 39.50 GiB of which 1.25 GiB is free.",
    "[rank1]:[E402 10:11:12.345678901 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=512, NumelOut=512,"
    " Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
    "[  812.345678] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
    "slurmstepd: error: *** JOB 77 ON node01 CANCELLED AT 2031-04-02T10:11:12 DUE TO TIME LIMIT ***",
)


def deepspeed(rows: int) -> bytes:
    """Engine lines, timers, an overflow, memory lines."""
    lines = []
    for n in range(10, 10 * rows, 10):
        lines += [
            f"{_DS}[logging.py:7:log_dist] [Rank 0] step={n}, skipped=1, lr=[1e-05], "
            "mom=[(0.9, 0.95)]",
            f"steps: {n} loss: {loss(n):.4f} iter time (s): 1.250 samples/sec: 51.8",
            f"{_DS}[x.py:7:log_dist] [Rank 0] rank=0 time (ms) | forward: 160.0 | step: 12.5",
        ]
    lines += [
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, reducing to 256",
        "MA 3.0 GB         Max_MA 5.5 GB         CA 7.25 GB         Max_CA 8 GB",
    ]
    return "\n".join(lines).encode()


def huggingface(rows: int) -> bytes:
    """Printed dicts between progress bars of carriage returns."""
    lines = ["***** Running training *****", "  Num examples = 1,234", "  Num Epochs = 3"]
    for n in range(1, rows):
        bar = f"\r {n}%|#    | {10 * n}/400 [00:43<1:05:18,  4.60s/it]"
        lines.append(
            f"{bar}{{'loss': {loss(n)}, 'grad_norm': 0.5, 'learning_rate': 4.5e-05, "
            f"'epoch': {n / 10}}}"
        )
    lines.append("{'train_runtime': 282.25, 'train_loss': 0.25, 'epoch': 2.0}")
    return "\n".join(lines).encode()


def small(rows: int) -> bytes:
    """One dialect of a small trainer after another."""
    lines = []
    for n in range(1, rows):
        lines += [
            f"[rank0]:[titan] 2031-04-02 10:11:{n:02d},345 - root - INFO - step: {n}  loss:  "
            f"{loss(n)}  grad_norm:  1.2345  memory: 41.00GiB(50.00%)  tps: 6,543  mfu: 20.36%",
        ]
    lines += [f"iter {n}: loss {loss(n)}, time 211.43ms, mfu 31.20%" for n in range(1, rows)]
    lines += [
        f"step:{n}/1750 train_loss:{loss(n)} train_time:321ms step_avg:321.00ms" for n in (1, 2)
    ]
    lines += [
        "04/02 10:11:12 - mmengine - INFO - Epoch(train) [1][  40/735]  lr: 1.0e-05  loss: 1.25",
        "  optim/total_grad_norm=0.75", "[step=7/900,epoch=0]", "    train/CrossEntropyLoss=4.5",
        "step:7 - actor/entropy:0.51 - critic/rewards/mean:0.25 - actor/grad_norm:0.11",
    ]  # fmt: skip
    return "\n".join(lines).encode()


def trainer_state(rows: int) -> bytes:
    """The state file of a Trainer."""
    history = [
        {"epoch": n / 10, "grad_norm": 0.5, "learning_rate": 4e-05, "loss": loss(n), "step": 10 * n}
        for n in range(1, rows)
    ]
    return json.dumps({"best_metric": None, "global_step": 400, "log_history": history,
                       "logging_steps": 10, "max_steps": 1000}, indent=2).encode()  # fmt: skip


def wandb_csv(rows: int) -> bytes:
    """A history export."""
    lines = [f"{n},{n},{n}.5,17000000{n:02d}.5,{loss(n)},0.5,{10 * n}" for n in range(1, rows)]
    head = ",_step,_runtime,_timestamp,train/loss,train/grad_norm,train/global_step"
    return "\n".join([head, *lines, ""]).encode()


def lightning_csv(rows: int) -> bytes:
    """Lightning's metrics.csv."""
    lines = [f"0,{n},,{loss(n)}," for n in range(1, rows)]
    return "\n".join(["epoch,step,train_loss_epoch,train_loss_step,val_loss", *lines, ""]).encode()


def history_jsonl(rows: int) -> bytes:
    """W&B's legacy history."""
    lines = [
        json.dumps({"loss": loss(n), "_step": n, "_runtime": n * 1.5, "_timestamp": 1.7e9 + n})
        for n in range(1, rows)
    ]
    return "\n".join(lines).encode()


def nvidia_smi(rows: int) -> bytes:
    """A monitor's CSV."""
    head = (
        "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], "
        "power.draw [W], temperature.gpu, clocks.current.sm [MHz]"
    )
    lines = [
        f"2031/04/02 10:11:{n:02d}.500, {g}, 97 %, 30211 MiB, 40960 MiB, 402.25 W, 71, 1410 MHz"
        for n in range(rows) for g in (0, 1)
    ]  # fmt: skip
    return "\n".join([head, *lines, ""]).encode()


def dmon(rows: int) -> bytes:
    """nvidia-smi dmon."""
    lines = [f"    0    71   -    40    97   61    0    0  1593  1410 {n}" for n in range(rows)]
    head = "# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk fb\n# Idx W C C % % % % MHz MHz MB"
    return "\n".join([head, *lines, ""]).encode()


def golden(rows: int) -> bytes:
    """Golden values of Megatron's CI."""
    values = {str(n): loss(n) for n in range(1, rows)}
    entry = {"start_step": 1, "end_step": rows - 1, "step_interval": 1, "values": values}
    return json.dumps({"lm loss": entry, "num-zeros": entry}).encode()


def wandb_log(rows: int) -> bytes:
    """A binary W&B log."""
    bodies = [wb.config({"lr": 0.1, "api_key": "x", "nested": {"a": [1, 2]}})]
    bodies += [wb.history({"loss": loss(n), "_step": n, "lr": 1e-4}) for n in range(1, rows)]
    bodies += [wb.stats(1.7e9 + n, {"gpu.0.gpu": 80, "cpu": 3.5}) for n in range(5)]
    bodies += [wb.printed("hello\n"), wb.exit_record(1)]
    return wb.wandb_log(bodies)


def tfevents(rows: int) -> bytes:
    """An event file."""
    events = [tfe.event(1.7e9 + n, n, tfe.simple("train/loss", loss(n))) for n in range(1, rows)]
    events += [tfe.event(1.7e9, 9, tfe.tensor("lr", 0.25, content=True))]
    return tfe.events_file([*events, tfe.event(1.7e9, 9, tfe.text_summary("note", "hello"))])


def _database(schema: str, rows_of: Mapping[str, list[tuple[object, ...]]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(schema)
            for table, found in rows_of.items():
                marks = ",".join("?" * len(found[0]))
                connection.executemany(f"insert into {table} values ({marks})", found)
        return path.read_bytes()


def mlflow(rows: int) -> bytes:
    """MLflow's database."""
    schema = """
    create table runs (run_uuid text, name text, status text, start_time int, end_time int);
    create table params (key text, value text, run_uuid text);
    create table metrics (key text, value float, timestamp int, run_uuid text, step int,
                          is_nan int);
    """
    lines = [("loss", loss(n), 1_700_000_000_000 + n, "r1", n, 0) for n in range(1, rows)]
    return _database(schema, {"runs": [("r1", "first", "FAILED", 1, 1_700_000_020_000)],
                              "params": [("lr", "0.25", "r1")], "metrics": lines})  # fmt: skip


def trackio(rows: int) -> bytes:
    """Trackio's database."""
    schema = """
    create table metrics (id integer primary key, run_id text, timestamp text, run_name text,
                          step int, metrics text);
    create table configs (id integer primary key, run_name text, config text);
    """
    lines = [
        (n, "r", "2031-04-02T10:11:12", "one", n, json.dumps({"train/loss": loss(n)}))
        for n in range(1, rows)
    ]
    return _database(schema, {"metrics": lines, "configs": [(1, "one", '{"lr": 0.1}')]})


def swanlab(rows: int) -> bytes:
    """SwanLab's own log."""

    def scalar(key: str, step: int, value: float) -> bytes:
        body = wb.field(1, key) + wb.field(2, step) + wb.field(4, wb.time_of(1.7e9 + step))
        return wb.field(13, body + wb.field(5, wb.field(1, value)))

    bodies = [scalar("train/loss", n, loss(n)) for n in range(1, rows)]
    bodies.append(wb.field(11, wb.field(1, 2) + wb.field(2, "ValueError: no")))
    return wb.wandb_log(bodies, header=b":SWL\xd6\xe1\x02")


def parquet(rows: int) -> bytes:
    """A history export as Parquet."""
    steps = list(range(1, rows))
    out = io.BytesIO()
    pl.DataFrame({"_step": steps, "train/loss": [loss(n) for n in steps]}).write_parquet(out)
    return out.getvalue()


#: Family -> file name (with folders where a format is known by them), maker, binary, plain.
FORMATS: Mapping[str, tuple[str, Callable[[int], bytes], bool, bool]] = {
    "megatron": ("train.log", megatron, False, True),
    "deepspeed": ("slurm-77.out", deepspeed, False, True),
    "huggingface": ("hf.log", huggingface, False, True),
    "small_trainers": ("small.log", small, False, True),
    "trainer_state": ("trainer_state.json", trainer_state, False, False),
    "wandb_csv": ("history.csv", wandb_csv, False, False),
    "lightning_csv": ("metrics.csv", lightning_csv, False, False),
    "history_jsonl": ("wandb-history.jsonl", history_jsonl, False, False),
    "nvidia_smi": ("gpu.csv", nvidia_smi, False, False),
    "dmon": ("dmon.txt", dmon, False, False),
    "golden": ("golden_values.json", golden, False, False),
    "wandb_log": ("run-a1b2c3d4.wandb", wandb_log, True, False),
    "tfevents": ("events.out.tfevents.1700000000.host", tfevents, True, False),
    "mlflow": ("mlflow.db", mlflow, True, False),
    "trackio": ("project.db", trackio, True, False),
    "swanlab": ("run-x.swanlab", swanlab, True, False),
    "parquet": ("history.parquet", parquet, True, False),
    **fuzz_side_inputs.FORMATS,
}


def sample_of(family: str, rows: int) -> Sample:
    """One whole input of a family, of about so many records."""
    name, make, binary, plain = FORMATS[family]
    return Sample(
        family=family,
        name=name,
        data=make(rows),
        binary=binary,
        plain=plain,
        beside=fuzz_side_inputs.BESIDE.get(family, ""),
    )


def samples(rows: int = 40) -> dict[str, Sample]:
    """One whole input of every family."""
    return {family: sample_of(family, rows) for family in FORMATS}
