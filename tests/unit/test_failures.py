"""Failure texts become events with the right kind, role and numbers; look-alikes do not."""

from __future__ import annotations

import re

import pytest
from loganalyze_parsers import failures, launcher
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.failures_text import Finder, in_bytes, texts
from loganalyze_parsers.prefixes import clean, peel

from loganalyze import config
from loganalyze.model import EVENT_KINDS, SEVERITIES, Event, LineRef

GIB = 1024.0**3


def lines_of(text: str) -> list[Line]:
    """Lines as the text driver makes them."""
    found, offset = [], 0
    for number, raw in enumerate(text.split("\n"), 1):
        peeled = peel(clean(raw))
        ref = LineRef(source=0, line=number, offset=offset, length=len(raw))
        found.append(
            Line(
                text=peeled.text,
                ref=ref,
                rank=peeled.global_rank(1),
                host=peeled.host,
                wall_s=peeled.wall_s,
            )
        )
        offset += len(raw) + 1
    return found


def read(text: str, dialect: str = "failures") -> tuple[list[Event], list[Taken | None]]:
    """All events of a text, and what was made of each line."""
    reader = {"failures": failures, "launcher": launcher}[dialect].DIALECT.reader()
    taken = [reader.feed(line) for line in lines_of(text)]
    events = [event for item in [*taken, reader.finish()] if item for event in item.events]
    return events, taken


def only(text: str, dialect: str = "failures") -> Event:
    """The one event of a text."""
    events, _ = read(text, dialect)
    assert len(events) == 1, [event.detail["signature"] for event in events]
    return events[0]


def test_every_signature_is_well_formed() -> None:
    """Kinds, roles and severities are of the closed sets, and both languages say something."""
    for name, signature in config.signatures().items():
        assert signature.kind in EVENT_KINDS, name
        assert signature.severity in SEVERITIES, name
        assert signature.role in ("root", "consequence", "context"), name
        assert signature.en, name
        assert signature.zh, name
        assert bool(signature.pattern) == bool(signature.literals), name


def test_patterns_have_no_nested_repetition() -> None:
    """No pattern repeats an unbounded repetition or starts with one: search stays linear."""
    nested = re.compile(r"\((?:\?:|\?P<\w+>)?[^()]*[*+][^()]*\)[*+]")
    for text in texts():
        for pattern in (text.pattern, *text.details):
            assert not nested.search(pattern.pattern), text.signature.name
            assert not pattern.pattern.startswith((".*", ".+")), text.signature.name


def test_cuda_oom_of_today() -> None:
    """The sizes of the allocator's message are given in bytes."""
    event = only(
        "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has"
        " a total capacity of 40.00 GiB of which 1.25 GiB is free. Including non-PyTorch memory,"
        " this process has 38.00 GiB memory in use. Of the allocated memory 30.00 GiB is allocated"
        " by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
    )
    assert (event.kind, event.rank) == ("oom", 5)
    assert event.detail["signature"] == "cuda_oom"
    assert event.detail["requested_bytes"] == 3.5 * GIB
    assert event.detail["total_bytes"] == 40 * GIB
    assert event.detail["free_bytes"] == 1.25 * GIB
    assert event.detail["allocated_bytes"] == 30 * GIB
    assert event.detail["reserved_unallocated_bytes"] == 0.5 * GIB
    assert event.detail["gpu"] == 1


def test_cuda_oom_of_old() -> None:
    """Older messages give what is reserved in total; what lies idle is the difference."""
    event = only(
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 16.00 GiB total"
        " capacity; 9.00 GiB already allocated; 1.00 GiB free; 14.00 GiB reserved in total by"
        " PyTorch)"
    )
    assert event.detail["total_bytes"] == 16 * GIB
    assert event.detail["free_bytes"] == 1 * GIB
    assert event.detail["reserved_unallocated_bytes"] == 5 * GIB


@pytest.mark.parametrize(
    ("text", "kind", "signature", "detail"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes.", "oom",
         "xla_oom", {"requested_bytes": 4096.0}),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "oom",
         "cublas_alloc_failed", {"status": "ALLOC_FAILED"}),
        ("RuntimeError: CUDA error: device-side assert triggered", "exception",
         "cuda_device_assert", {}),
        ("[  77.125] NVRM: Xid (PCI:0000:1a:00): 79, pid=4242, GPU has fallen off the bus.", "xid",
         "xid_79", {"xid": 79, "pci": "0000:1a:00", "pid": 4242}),
        ("NVRM: Xid (0000:1a:00): 500, whatever", "xid", "xid_other", {"xid": 500}),
        ("NVRM: GPU at PCI:0000:1a:00 has fallen off the bus", "hardware_error", "gpu_lost", {}),
        ("[Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLGATH"
         "ER, NumelIn=8, NumelOut=64, Timeout(ms)=120000) ran for 120044 milliseconds before",
         "comm_timeout", "nccl_watchdog_timeout",
         {"seq": 91, "op": "ALLGATHER", "timeout_ms": 120000, "ran_ms": 120044}),
        ("slurmstepd: error: *** JOB 55 ON n3 CANCELLED AT 2031-01-02T03:04:05 DUE TO TIME LIMIT"
         " ***", "time_limit", "slurm_time_limit", {"job": "55", "node": "n3"}),
        ("slurmstepd: error: *** STEP 55.0 ON n3 CANCELLED AT 2031-01-02T03:04:05 DUE TO PREEMPTION"
         " ***", "killed", "slurm_preempt", {"job": "55.0"}),
        ("slurmstepd: error: *** JOB 55 ON n3 CANCELLED AT 2031-01-02T03:04:05 ***", "killed",
         "slurm_cancelled", {}),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=55.0.", "host_oom", "slurm_oom",
         {"kills": 2}),
        ("srun: error: n3: task 4: Exited with exit code 3", "exception", "srun_task_exit",
         {"exit_code": 3, "tasks": "4"}),
        ("srun: error: n3: task 4: Killed", "killed", "srun_task_exit", {"signal": "SIGKILL"}),
        ("srun: error: n3: task 4: Terminated", "signal", "srun_task_exit", {"signal": "SIGTERM"}),
        ("failed (exitcode: -11) local_rank: 2 (pid: 31) of binary: python", "exception",
         "elastic_failed", {"exit_code": -11, "signal": "SIGSEGV", "local_rank": 2}),
        ("failed (exitcode: 137) local_rank: 2 (pid: 31) of binary: python", "killed",
         "elastic_failed", {"signal": "SIGKILL"}),
        ("Out of memory: Killed process 31 (python) total-vm:9kB, anon-rss:4kB", "host_oom",
         "oom_killer", {"pid": 31, "anon_rss_bytes": 4096.0}),
        ("/tmp/run.sh: line 12:   431 Killed                  python train.py", "killed",
         "process_signal", {}),
        ("Exited with exit code 1.", "killed", "lsf_exited", {"exit_code": 1}),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time_limit",
         "lsf_time_limit", {}),
        ("OSError: [Errno 28] No space left on device: '/scratch/step_20.pt'", "disk_full",
         "no_space", {}),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: not found",
         "checkpoint_failed", "ckpt_archive_broken", {"side": "Reader"}),
        ("Exception: Current loss scale already at minimum - cannot decrease scale anymore.",
         "overflow", "ds_min_scale", {}),
        ("Exception: Skipped 12 iterations in a row due to Overflow - Exiting training.",
         "overflow", "neox_overflows", {"skipped": 12}),
        ("INFO: task python:99 blocked for more than 245 seconds.", "hang", "hung_task",
         {"blocked_s": 245}),
        ("Main process received SIGTERM, exiting", "signal", "main_sigterm",
         {"signal": "SIGTERM"}),
        ("KeyboardInterrupt", "signal", "keyboard_interrupt", {}),
        ("[exiting program after 55.5 minutes] datetime: 2031-01-02 03:04:05", "exit",
         "megatron_exit", {"minutes": 55.5}),
        ("There seems to be not a single sample in your epoch_iterator, stopping training at step"
         " 70!", "data_exhausted", "dataset_exhausted", {}),
    ],
)  # fmt: skip
def test_known_texts(text: str, kind: str, signature: str, detail: dict[str, object]) -> None:
    """Each text gives its kind, its entry in the catalogue, and its numbers."""
    event = only(text)
    assert (event.kind, event.detail["signature"]) == (kind, signature)
    assert {key: event.detail.get(key) for key in detail} == detail


@pytest.mark.parametrize(
    "text",
    [
        'raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")',
        "except torch.cuda.OutOfMemoryError:",
        'print("Watchdog caught collective operation timeout")',
        "# NVRM: Xid (PCI:0000:1a:00): 79 means that the GPU is lost",
        "+ echo 'srun: error: n3: task 4: Killed'",
        "exit_on_missing_checkpoint ...................... False",
        "inprocess_progress_watchdog_interval ............ 1.0",
        "NCCL version 2.21.5+cuda12.4",
        "iteration 7/ 90 | lm loss: 4.5E+00 | number of nan iterations: 0 |",
        "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.1}",
        "We recommend to avoid running out of memory by lowering the batch size.",
        "The villain Killed the dragon",
        "msg = 'No space left on device'",
        "assert False, 'Bus error'",
    ],
)
def test_look_alikes_are_no_events(text: str) -> None:
    """Program text, settings, traces and training lines do not count as failures."""
    assert read(text)[0] == []


def test_exit_noise_is_a_note() -> None:
    """What processes print while they end is never a crash."""
    text = (
        "[W101 00:00:01.5 ProcessGroupNCCL.cpp:99] Warning: destroy_process_group() was not called"
        " before program exit\n"
        "[W101 00:00:02.5 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3)\n"
        "Fatal Python error: _enter_buffered_busy: could not acquire lock for <_io.Writer>"
    )
    events, _ = read(text)
    assert {event.kind for event in events} == {"note"}
    assert {event.detail["role"] for event in events} == {"consequence"}


TRACEBACK = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/train.py", line 41, in <module>
[rank2]:     main()
[rank2]:   File "/home/me/train.py", line 22, in main
[rank2]:     out = model(batch)
[rank2]:           ^^^^^^^^^^^^
[rank2]:   File "/opt/lib/python3.12/site-packages/torch/nn/modules/module.py", line 8, in forward
[rank2]:     raise ValueError("shapes differ")
[rank2]: ValueError: shapes differ"""


def test_a_traceback_is_one_event() -> None:
    """It names the exception and the innermost frame of the run's own code."""
    events, taken = read(TRACEBACK)
    (event,) = events
    assert (event.kind, event.rank, event.ref.line) == ("exception", 2, 9)
    assert event.detail["exception"] == "ValueError"
    assert event.detail["message"] == "shapes differ"
    assert (event.detail["file"], event.detail["file_line"]) == ("/home/me/train.py", 22)
    assert event.detail["traceback_line"] == 1
    assert [item.ignored for item in taken[:-1] if item] == ["traceback"] * 8


def test_interleaved_tracebacks_are_told_apart() -> None:
    """Two ranks that print line by line in turn give two events with their own frames."""
    second = TRACEBACK.replace("[rank2]", "[rank7]").replace("line 22", "line 23")
    rows = zip(TRACEBACK.split("\n"), second.split("\n"), strict=True)
    events, _ = read("\n".join(line for pair in rows for line in pair))
    assert [(event.rank, event.detail["file_line"]) for event in events] == [(2, 22), (7, 23)]


def test_unlabelled_tracebacks_of_two_processes() -> None:
    """Without a rank on the lines both exceptions are still found."""
    plain = TRACEBACK.replace("[rank2]: ", "").split("\n")
    events, _ = read("\n".join(line for pair in zip(plain, plain, strict=True) for line in pair))
    assert [event.detail["exception"] for event in events] == ["ValueError", "ValueError"]


def test_chained_exceptions() -> None:
    """The second link of a chain is an event of its own."""
    chain = TRACEBACK + "\n[rank2]: \n[rank2]: During handling of the above exception, another"
    chain += " exception occurred:\n[rank2]: \n" + TRACEBACK.replace("ValueError: s", "KeyError: s")
    events, _ = read(chain)
    assert [event.detail["exception"] for event in events] == ["ValueError", "KeyError"]


def test_training_lines_between_are_left_to_their_reader() -> None:
    """A foreign line inside an open traceback is not swallowed."""
    text = TRACEBACK.replace("[rank2]: ", "").split("\n")
    text.insert(6, "step 12 | loss 3.25")
    _, taken = read("\n".join(text))
    assert sum(1 for item in taken if item is None) <= 1
    events, _ = read("\n".join(text))
    assert [event.detail["exception"] for event in events] == ["ValueError"]


def test_a_cut_traceback_is_an_event() -> None:
    """A header without an exception before the end of the input is told."""
    event = only("\n".join(TRACEBACK.split("\n")[:4]))
    assert (event.kind, event.detail["signature"]) == ("exception", "python_traceback_cut")


def test_known_exceptions_keep_their_meaning() -> None:
    """An exception whose text is in the catalogue has the catalogue's kind."""
    text = TRACEBACK.replace("ValueError: shapes differ", "KeyboardInterrupt")
    assert only(text).kind == "signal"
    text = TRACEBACK.replace("ValueError: shapes differ", "SystemExit: 2")
    assert only(text).detail["signature"] == "python_exit"


def test_ignored_exceptions_are_notes() -> None:
    """What Python says it ignores does not end a run."""
    event = only("Exception ignored in: <function Pool.__del__ at 0x7f00>\n" + TRACEBACK)
    assert event.kind == "note"


def test_repeated_texts_are_counted_not_kept() -> None:
    """A text that comes endlessly gives a bounded number of events; no line gets lost."""
    line = "OSError: [Errno 28] No space left on device"
    events, taken = read("\n".join([line] * (failures.MAX_EVENTS + 7)))
    assert len(events) == failures.MAX_EVENTS
    assert sum(1 for item in taken if item and item.ignored) == 7


def test_the_launcher_names_the_root_cause() -> None:
    """torchrun's table gives an event per worker, with rank, exit code, signal, host and time."""
    text = """\
tools/train.py FAILED
Failures:
[1]:
  time      : 2031-04-02_10:11:13
  host      : node8
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 701)
  error_file: <N/A>
  traceback : To enable traceback see: https://example.org
Root Cause (first observed failure):
[0]:
  time      : 2031-04-02_10:11:12
  host      : node7
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 77)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 77"""
    events, taken = read(text, "launcher")
    assert all(taken)
    assert [(event.kind, event.rank) for event in events] == [("exception", 9), ("killed", 3)]
    first, root = events
    assert (first.detail["role"], root.detail["role"]) == ("consequence", "root")
    assert root.detail["signal"] == "SIGKILL"
    assert root.detail["host"] == "node7"
    assert root.wall_s is not None
    assert first.wall_s == root.wall_s + 1


def test_rank_and_step_of_the_text_win() -> None:
    """`[Rank 6]` in the text is the global rank, whatever the prefix says."""
    event = only("[rank1]:[E101 x.cpp:7] [Rank 6] Watchdog caught collective operation timeout: W")
    assert event.rank == 6
    event = only("[exiting program at iteration 900] datetime: 2031-01-02 03:04:05")
    assert event.step == 900


def test_lines_are_recognised_by_their_shape_alone() -> None:
    """Remembering shapes never changes what is found, whatever came before."""
    finder = Finder()
    lines = ["OSError: [Errno 2] No such file", "OSError: [Errno 28] full", "OSError: [Errno 3] x"]
    remembered = [finder.find(line) for line in lines * 2]
    fresh = [Finder().find(line) for line in lines * 2]
    assert [item and item.signature.name for item in remembered] == [
        item and item.signature.name for item in fresh
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [("2 GiB", 2 * GIB), ("1.5 MB", 1.5e6), ("3kB", 3072.0), ("8 bytes", 8.0), ("much", "much")],
)
def test_sizes(text: str, size: float | str) -> None:
    """Sizes become bytes; the kernel's kB are 1024 bytes."""
    assert in_bytes(text) == size
