"""Inputs for the fuzzer of the formats that are seen less: a text for each, and its file's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

_STAMP = "2031-04-02 10:11:12,345"


def _loss(step: int) -> float:
    """An invented curve."""
    return round(2.0 + 6.0 / step, 5)


def one_line_trainers(rows: int) -> bytes:
    """lit-gpt, nanotron, MaxText, MLX, tinygrad, llama.cpp, MAE: a line a step each."""
    lines = []
    for n in range(1, max(2, rows // 5)):
        loss = _loss(n)
        lines += [
            f"iter {4 * n} step {n}: loss {loss}, iter time: 512.33ms (optimizer.step)",
            f"04/02/2031 10:11:12 [INFO|DP=0|PP=0|TP=0]: iteration: {n} / 1000 | consumed_tokens: "
            f"634K | elapsed_time_per_iteration_ms: 1.2K | lm_loss: {loss} | lr: 1e-05 | "
            "grad_norm: 0.515",
            f"completed step: {n}, seconds: 4.01, TFLOP/s/device: 201.3, Tokens/s/device: 6543.2, "
            f"total_weights: 1048576, loss: {loss}",
            f"Iter {n}: Train loss {loss}, Learning Rate 1.000e-05, It/sec 0.500, Tokens/sec 387.7,"
            " Trained Tokens 9699, Peak mem 8.104 GB",
            f"{n:5d} 4.32 s run, {loss} loss, 0.000000000001 LR, 14.5 GB used, 4014.4 GFLOPS",
            f"[10:11:12.345678] Epoch: [0]  [{n:3d}/100]  lr: 0.000030  closs: {loss} (1.31)  "
            "grad_norm: 2.4 (3.0)  time: 4.5  data: 0.1  max mem: 100",
            f"step {n:4d}/19560 | loss {loss} (+1.30z)| norm 0.9100 (-0.20z)| lr 1.20e-04 | "
            "512.30 ms | 61.2% bf16 MFU | 1023456 tok/s",
            f"s:{n} trl:{loss} lr:0.000123 norm:0.91",
        ]
    return "\n".join(lines).encode()


def nemo_fairseq(rows: int) -> bytes:
    """Bars with postfixes, pipes, JSON lines, overflow notes."""
    lines = []
    for n in range(1, max(2, rows // 4)):
        lines += [
            f"Epoch 0:   1%| | {n}/77225 [1:02<3:01, v_num=, reduced_train_loss={_loss(n)}, "
            f"global_step={n}.0, consumed_samples=1.63e+6, train_step_timing in s=4.010]",
            f"Training epoch 0, iteration {n}/149 | lr: 1e-05 | global_batch_size: 128 | "
            f"global_step: {n} | reduced_train_loss: {_loss(n)} | val_loss: 2.4",
            f"epoch 005:  {n} / 1000 loss={_loss(n)}, ppl=14.9, wps=12345, num_updates={n}, "
            "lr=0.0005, gnorm=0.9",
            f"| epoch 005 | loss {_loss(n)} | nll_loss 2.1 | ppl 4.3 | num_updates {n} | gnorm 0.6",
            f'2031-04-02 10:11:12 | INFO | train_inner | {{"epoch": 1, "loss": "{_loss(n)}", '
            f'"num_updates": "{n}"}}',
        ]
    lines += ["NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 8.0"]
    return "\n".join(lines).encode()


def records_and_tables(rows: int) -> bytes:
    """Records under headings, notebook tables, a launcher's table, home-made pairs."""
    lines = []
    for n in range(1, max(2, rows // 6)):
        lines += [
            f"[epoch=1][batch={n}/4800]:", f"     Train loss/train/total: {_loss(n)}",
            "     Train memory/allocated_mem: 6.8051",
            f"{_STAMP} node01:0  olmo.train:908  INFO    [step={n}/739328,epoch=0]",
            "    optim/total_grad_norm=231.7", f"    train/CrossEntropyLoss={_loss(n)}",
            f"epoch {n} loss={_loss(n)} acc: 0.5 lr=1e-4",
        ]  # fmt: skip
    lines += ["Step | Training Loss | Validation Loss | reward", "-- | -- | -- | --"]
    lines += [f"{10 * n} | {_loss(n)} | No Log | 0.512" for n in range(1, 4)]
    lines += [
        "train.py FAILED", "Failures:", "[0]:", "  time      : 2031-04-02_10:11:12",
        "  host      : node7", "  rank      : 3 (local_rank: 3)", "  exitcode  : -9 (pid: 77)",
        "  error_file: <N/A>", "  traceback : Signal 9 (SIGKILL) received by PID 77",
    ]  # fmt: skip
    return "\n".join(lines).encode()


def reinforcement(rows: int) -> bytes:
    """verl's lines and TRL's dicts."""
    lines = [
        f"step:{n} - actor/entropy:0.51 - critic/rewards/mean:{_loss(n)} - actor/grad_norm:0.11 - "
        "actor/ppo_kl:0.01 - response_length/mean:512.0"
        for n in range(1, max(2, rows // 2))
    ]
    lines += [
        f"{{'loss': {_loss(n)}, 'reward': 0.5, 'kl': 0.01, 'completion_length': 88.5, "
        f"'epoch': {n / 10}}}"
        for n in range(1, max(2, rows // 2))
    ]
    return "\n".join(lines).encode()


def dcgm(rows: int) -> bytes:
    """Scrapes of the exporter."""
    lines = ["# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    lines += [
        f'DCGM_FI_DEV_{name}{{gpu="{n % 2}",UUID="GPU-1f",Hostname="node7"}} {90 + n % 9} '
        f"{1931234567000 + 1000 * n}"
        for n in range(rows)
        for name in ("GPU_UTIL", "FB_USED", "XID_ERRORS")
    ]
    return "\n".join([*lines, ""]).encode()


def deepspeed_csv(rows: int) -> bytes:
    """A file of the CSV monitor."""
    return "\n".join(
        ["step,train_loss", *(f"{64 * n},{_loss(n)}" for n in range(1, rows))]
    ).encode()


def swanlab_rows(rows: int) -> bytes:
    """SwanLab's file of one metric."""
    return "".join(
        json.dumps({"index": n, "data": _loss(n), "create_time": f"2031-04-02T10:11:{n % 60:02d}Z"})
        + "\n"
        for n in range(1, rows)
    ).encode()


def chart_csv(rows: int) -> bytes:
    """W&B's export of a chart."""
    head = '"Step","one - train/loss","one - train/loss__MIN","one - train/loss__MAX"'
    lines = [f"{n},{_loss(n)},{_loss(n)},{_loss(n) + 1}" for n in range(1, rows)]
    return "\n".join([head, *lines, ""]).encode()


def board_csv(rows: int) -> bytes:
    """TensorBoard's export of a tag."""
    lines = [f"{1.7e9 + n},{n},{_loss(n)}" for n in range(1, rows)]
    return "\n".join(["Wall time,Step,Value", *lines, ""]).encode()


def runs_csv(rows: int) -> bytes:
    """Curves in the cells of a table of runs."""
    curve = json.dumps([_loss(n) for n in range(1, rows)])
    return f'run_id,run_name,loss_curve\nr1,first,"{curve}"\nr2,second,"{curve}"\n'.encode()


def json_document(rows: int) -> bytes:
    """A history as one list."""
    return json.dumps([{"_step": n, "loss": _loss(n)} for n in range(1, rows)]).encode()


def json_columns(rows: int) -> bytes:
    """A history as numbered columns."""
    steps = {str(n): n for n in range(1, rows)}
    losses = {str(n): _loss(n) for n in range(1, rows)}
    return json.dumps({"_step": steps, "loss": losses}).encode()


def mlflow_metric(rows: int) -> bytes:
    """MLflow's file of one metric."""
    return "".join(f"{1700000000000 + n} {_loss(n)} {n}\n" for n in range(1, rows)).encode()


def long_csv(rows: int) -> bytes:
    """A number a line, of several metrics."""
    lines = [f"{n},{name},{_loss(n)}" for n in range(1, rows) for name in ("loss", "grad_norm")]
    return "\n".join(["step,name,value", *lines, ""]).encode()


def long_json(rows: int) -> bytes:
    """The same as JSON lines, one metric after the other."""
    lines = [
        json.dumps({"metric": name, "value": _loss(n), "step": n, "timestamp": 1700000000000 + n})
        for name in ("train/loss", "lr")
        for n in range(1, rows)
    ]
    return "\n".join([*lines, ""]).encode()


def update_bars(rows: int) -> bytes:
    """OpenRLHF's bars and steps, EasyLM's dictionaries over several lines."""
    lines = [
        f"Train epoch [1/1]: 50%|#| {n}/{rows} [00:01<00:01, 3.00s/it, pg={_loss(n)}, rm=1.5, kl=0.1]"
        for n in range(1, rows)
    ]
    lines += [f"Global step {n}: {{'policy_loss': {_loss(n)}, 'kl': 0.1}}" for n in range(1, rows)]
    lines += [
        f"{{'gradient_norm': array(0.5, dtype=float32),\n 'loss': array({_loss(n)}, dtype=float32),"
        f"\n 'step': {n}}}"
        for n in range(1, rows)
    ]
    return "\n".join([*lines, ""]).encode()


#: Family -> file name, maker, binary, plain.
FORMATS: Mapping[str, tuple[str, Callable[[int], bytes], bool, bool]] = {
    "one_line_trainers": ("train.log", one_line_trainers, False, False),
    "nemo_fairseq": ("nemo.log", nemo_fairseq, False, False),
    "records_and_tables": ("composer.log", records_and_tables, False, False),
    "reinforcement": ("rl.log", reinforcement, False, False),
    "dcgm": ("dcgm.prom", dcgm, False, False),
    "deepspeed_csv": ("Train_Samples_train_loss.csv", deepspeed_csv, False, False),
    "swanlab_rows": ("train%2Floss/10.log", swanlab_rows, False, False),
    "chart_csv": ("chart.csv", chart_csv, False, False),
    "board_csv": ("run-x-tag-train_loss.csv", board_csv, False, False),
    "runs_csv": ("runs.csv", runs_csv, False, False),
    "json_document": ("history.json", json_document, False, False),
    "json_columns": ("columns.json", json_columns, False, False),
    "long_csv": ("scalars.csv", long_csv, False, False),
    "long_json": ("scalars.jsonl", long_json, False, False),
    "update_bars": ("console.log", update_bars, False, False),
    "mlflow_metric": ("mlruns/1/ab12/metrics/train/loss", mlflow_metric, False, False),
}
#: Family -> a file that must lie beside it.
BESIDE: Mapping[str, str] = {"mlflow_metric": "mlruns/1/ab12/meta.yaml"}
