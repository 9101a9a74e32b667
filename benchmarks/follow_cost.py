"""What a watch costs and how soon it tells: `python benchmarks/follow_cost.py [SECONDS]`.

A log of 20,000 steps grows by a line every half second under `diagnose --follow`. Printed: the
CPU time of the watch as a share of a core over the calm seconds, and for three troubles (a spike,
a NaN, an out-of-memory text) the seconds from the line on disk to the finding's JSON at --exec.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "tests")]

from textlogs import megatron_line  # noqa: E402

STEPS = 20_000
TICKS = os.sysconf("SC_CLK_TCK")


def line(step: int, noise: random.Random, loss: str | None = None) -> str:
    """One calm line, or one with the loss given."""
    value = loss or f"{4 - step / 40000 + noise.gauss(0, 0.01):.6f}"
    norm = "nan" if loss == "nan" else f"{0.5 + noise.gauss(0, 0.02):.3f}"
    return megatron_line(step, lm_loss=value, grad_norm=norm) + "\n"


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def told(note: Path, code: str, since: int) -> bool:
    """Whether --exec was given a finding of that code after so many."""
    lines = note.read_text().splitlines()[since:] if note.exists() else []
    return any(json.loads(one)["finding"]["code"] == code for one in lines)


def latency(log: Path, note: Path, text: str, code: str) -> float:
    """Seconds from the text on disk to the finding; inf after a minute."""
    since = len(note.read_text().splitlines()) if note.exists() else 0
    with log.open("a") as file:
        file.write(text)
    begun = time.monotonic()
    while time.monotonic() - begun < 60:
        if told(note, code, since):
            return time.monotonic() - begun
        time.sleep(0.02)
    return float("inf")


def main(seconds: float) -> None:
    """Run the watch and print the table."""
    noise = random.Random(11)
    with tempfile.TemporaryDirectory() as folder:
        log, note = Path(folder) / "train.log", Path(folder) / "note.jsonl"
        log.write_text("".join(line(n, noise) for n in range(1, STEPS + 1)))
        command = [sys.executable, "-m", "loganalyze", "diagnose", "--follow", str(log), "-q",
                   "-o", f"{folder}/out", "--exec", f"cat >> '{note}'"]  # fmt: skip
        places = {"PYTHONPATH": f"{ROOT}:{ROOT / 'parsers'}", **os.environ}
        watch = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=places)
        time.sleep(15)  # the first look, and its report
        step, before, begun = STEPS, cpu_seconds(watch.pid), time.monotonic()
        while time.monotonic() - begun < seconds:
            step += 1
            with log.open("a") as file:
                file.write(line(step, noise))
            time.sleep(0.5)
        share = (cpu_seconds(watch.pid) - before) / (time.monotonic() - begun)
        print(f"calm: {share:.1%} of a core over {seconds:.0f} s, two lines a second")
        spike = line(step + 1, noise, "9.0") + "".join(line(step + n, noise) for n in range(2, 12))
        troubles = (
            ("spike", spike, "LA102"),
            ("NaN", line(step + 12, noise, "nan"), "LA101"),
            ("out of memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
             "2.00 GiB. GPU 0 has a total capacity of 79.15 GiB\n", "LA702"),
        )  # fmt: skip
        for name, text, code in troubles:
            print(f"{name}: told after {latency(log, note, text, code):.1f} s")
            time.sleep(3)
        watch.send_signal(signal.SIGINT)
        watch.wait(60)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
