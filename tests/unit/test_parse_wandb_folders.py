"""Folders of trackers: which files form which run; tags and their meanings."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from build_tfevents import event, events_file, simple
from build_wandb import exit_record, history, wandb_log
from loganalyze_parsers.tracker_folders import tracker_inputs
from loganalyze_parsers.tracker_join import join_columns
from loganalyze_parsers.tracker_names import _TABLE, assign, framework_of, known, plain
from trackers import parsed

from loganalyze.config import metrics as known_metrics


def touch(path: Path, data: bytes = b"x") -> Path:
    """A file with these bytes, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_wandb_folders_of_one_id(tmp_path: Path) -> None:
    """Resumed runs are put together by id, in order of time; latest-run is a link, no run."""
    log = wandb_log([history({"loss": 1.0}), exit_record(0)])
    late = touch(tmp_path / "wandb/run-20310103_000000-ab12/run-ab12.wandb", log)
    early = touch(tmp_path / "wandb/offline-run-20310101_000000-ab12/run-ab12.wandb", log)
    other = touch(tmp_path / "wandb/run-20310102_000000-cd34/run-cd34.wandb", log)
    text = touch(early.parent / "files/output.log")
    touch(early.parent / "files/config.yaml")
    (tmp_path / "wandb/latest-run").symlink_to(late.parent.name)
    runs = tracker_inputs(tmp_path)
    assert [run.label for run in runs] == ["ab12", "cd34"]
    assert runs[0].paths == (early, late)
    assert runs[0].texts == (text,)
    assert [file.name for file in runs[0].beside] == ["config.yaml"]
    assert runs[1].paths == (other,)


def test_legacy_wandb_folder(tmp_path: Path) -> None:
    """History and events of a folder without a `.wandb` log are one run."""
    folder = tmp_path / "wandb/dryrun-20200101_000000-zz99"
    history_file = touch(folder / "wandb-history.jsonl")
    events = touch(folder / "wandb-events.jsonl")
    touch(folder / "wandb-summary.json")
    (run,) = tracker_inputs(tmp_path)
    assert run.label == "zz99"
    assert run.paths == (history_file, events)


def test_a_run_folder_itself(tmp_path: Path) -> None:
    """The folder of one run may be given as such."""
    log = touch(tmp_path / "run-20310103_000000-ab12/run-ab12.wandb")
    (run,) = tracker_inputs(log.parent)
    assert run.paths == (log,)


def scalars(first: int, last: int, start: float, tag: str = "train/loss") -> bytes:
    """An event file with one scalar a step."""
    steps = range(first, last + 1)
    return events_file([event(start + s, s, simple(tag, 2.0)) for s in steps])


def test_event_files_of_a_restarted_run(tmp_path: Path) -> None:
    """A file that goes on where another ended is of the same run, a failed start too."""
    a = touch(tmp_path / "tb/events.out.tfevents.1000.h", scalars(0, 100, 1000))
    b = touch(tmp_path / "tb/events.out.tfevents.2000.h", events_file([]))
    c = touch(tmp_path / "tb/events.out.tfevents.3000.h", scalars(81, 150, 3000))
    (run,) = tracker_inputs(tmp_path)
    assert run.paths == (a, b, c)
    assert "continue" in run.reason


def test_event_files_of_unrelated_runs(tmp_path: Path) -> None:
    """Files that begin at the start, overlap in time, or have other tags stand apart."""
    touch(tmp_path / "tb/events.out.tfevents.1000.h", scalars(0, 100, 1000))
    touch(tmp_path / "tb/events.out.tfevents.2000.h", scalars(0, 100, 2000))
    touch(tmp_path / "tb/events.out.tfevents.9000.h", scalars(101, 150, 9000, "reward"))
    touch(tmp_path / "two/events.out.tfevents.1000.h", scalars(0, 100, 1000))
    touch(tmp_path / "two/events.out.tfevents.1010.h", scalars(50, 150, 1010))
    assert [len(run.paths) for run in tracker_inputs(tmp_path)] == [1, 1, 1, 1, 1]


def test_continuation_finds_its_run_among_several(tmp_path: Path) -> None:
    """The youngest run that fits takes the file."""
    one = touch(tmp_path / "tb/events.out.tfevents.1000.h", scalars(0, 100, 1000))
    two = touch(tmp_path / "tb/events.out.tfevents.2000.h", scalars(0, 10, 2000))
    more = touch(tmp_path / "tb/events.out.tfevents.3000.h", scalars(90, 120, 3000))
    assert {run.paths for run in tracker_inputs(tmp_path)} == {(one, more), (two,)}


def test_other_stores(tmp_path: Path) -> None:
    """Lightning versions, SwanLab runs and DeepSpeed's monitor are known by their layout."""
    table = touch(tmp_path / "lightning_logs/version_3/metrics.csv")
    slices = touch(tmp_path / "swanlog/run-20310402_101112-a1b2c3/logs/1/10.log")
    loss = touch(tmp_path / "ds/job/Train_Samples_train_loss.csv")
    rate = touch(tmp_path / "ds/job/Train_Samples_lr.csv")
    by_label = {run.label: run for run in tracker_inputs(tmp_path)}
    assert by_label["lightning_logs-version_3"].paths == (table,)
    assert by_label["run-20310402_101112-a1b2c3"].columns
    assert by_label["run-20310402_101112-a1b2c3"].paths == (slices,)
    assert by_label["job"].paths == (loss, rate)


def test_plain_logs_are_left_to_the_caller(tmp_path: Path) -> None:
    """A folder without a tracker yields nothing."""
    touch(tmp_path / "slurm-1.out")
    assert tracker_inputs(tmp_path) == ()


def frame(source: int, name: str, steps: list[int]) -> pl.DataFrame:
    """A readings frame of one metric."""
    count = len(steps)
    return pl.DataFrame(
        {
            "step": pl.Series(steps, dtype=pl.Int64),
            "rank": pl.Series([None] * count, dtype=pl.Int32),
            "wall_s": pl.Series([None] * count, dtype=pl.Float64),
            "source": pl.Series([source] * count, dtype=pl.Int32),
            "line": pl.Series(range(1, count + 1), dtype=pl.Int64),
            "offset": pl.Series(range(count), dtype=pl.Int64),
            "length": pl.Series([1] * count, dtype=pl.Int64),
            name: pl.Series([float(step) for step in steps]),
        }
    )


def test_columns_are_joined_by_step_and_turn() -> None:
    """Second turns meet second turns; a row that only one file has goes behind its forerunner."""
    joined = join_columns(
        [frame(1, "grad_norm", [1, 2, 3, 2, 3]), frame(0, "loss", [1, 2, 2, 3, 4])]
    )
    assert joined["step"].to_list() == [1, 2, 2, 3, 3, 4] or joined["step"].to_list() == [
        1, 2, 2, 3, 4, 3,
    ]  # fmt: skip
    first = joined.row(0, named=True)
    assert (first["loss"], first["grad_norm"], first["source"]) == (1.0, 1.0, 0)
    assert joined["loss"].count() == 5
    assert joined["grad_norm"].count() == 5


def test_columns_of_one_name_do_not_overwrite_each_other() -> None:
    """The second file with a metric keeps its numbers under a raw name."""
    joined = join_columns([frame(0, "loss", [1, 2]), frame(1, "loss", [2, 3])])
    assert joined["loss"].to_list() == [1.0, 2.0, None]
    assert joined["raw/loss#2"].to_list() == [None, 2.0, 3.0]


def test_tags_of_every_trainer() -> None:
    """The tags that trackers really hold mean what their writers say."""
    wanted = {
        "lm loss": "loss",
        "lm-loss-training/lm loss": "loss",
        "Train/Samples/train_loss": "loss",
        "train/CrossEntropyLoss": "loss",
        "Loss/Train": "loss",
        "loss_metrics/global_avg_loss": "loss",
        "lm loss validation": "val_loss",
        "Loss/Val": "val_loss",
        "grad-norm/grad-norm": "grad_norm",
        "optim/total_grad_norm": "grad_norm",
        "lr-AdamW/pg1": "lr",
        "iteration-time/tokens per second": "tokens_per_s",
        "throughput(tps)": "tokens_per_s_per_gpu",
        "mem-max-allocated-bytes": "mem_peak_allocated_bytes",
        "loss/train/total": "loss",
        "train/CE loss": "loss",
        "lr-DecoupledAdamW/group0": "lr",
        "optim/LR (group 0)": "lr",
        "grad/norm/total": "grad_norm",
        "l2_norm/grad/global": "grad_norm",
        "throughput/device/TPS": "tokens_per_s_per_gpu",
        "elapsed_time_per_iteration_ms": "step_time_s",
        "train_step_timing in s": "step_time_s",
        "System/Peak GPU Memory (MB)": "mem_peak_allocated_bytes",
        "gpu_temp_c": "gpu_temp_c",
        "actor/entropy": "entropy",
        "critic/rewards/mean": "reward",
    }
    for tag, metric in wanted.items():
        found = known(tag)
        assert found is not None, tag
        assert found[0] == metric, tag
    assert known("lm loss validation ppl") is None
    assert known("train/aux_loss") is None
    assert known("val/accuracy") is None


def test_every_metric_of_the_table_is_canonical() -> None:
    """The table of tags names only metrics that metrics.toml knows, and no tag twice."""
    metrics = set(known_metrics())
    seen: set[str] = set()
    for metric, factor, tags in _TABLE:
        assert metric in metrics or metric.startswith("aux_loss/"), metric
        assert factor > 0
        for tag in tags.split():
            assert tag == plain(tag), tag
            assert tag not in seen, tag
            seen.add(tag)


def test_words_that_only_the_run_explains() -> None:
    """Megatron's throughput is TFLOP/s per GPU; elsewhere the word stays raw."""
    assert assign(["lm loss", "throughput"])["throughput"] == ("tflops_per_gpu", 1.0)
    assert assign(["loss", "throughput"])["throughput"] == ("raw/throughput", 1.0)
    assert assign(["train/loss", "train/train_loss"]) == {
        "train/loss": ("loss", 1.0),
        "train/train_loss": ("raw/train/train_loss", 1.0),
    }
    assert framework_of(["train/epoch", "train/learning_rate"]) == "huggingface"


def test_latest_run_alone_and_as_a_copy(tmp_path: Path) -> None:
    """latest-run given by itself is a run; a copy beside the real folder is none."""
    log = wandb_log([history({"loss": 1.0}), exit_record(0)])
    copy = touch(tmp_path / "wandb/latest-run/run-ab12.wandb", log)
    (run,) = tracker_inputs(copy.parent)
    assert run.paths == (copy,)
    real = touch(tmp_path / "wandb/run-20310103_000000-ab12/run-ab12.wandb", log)
    touch(tmp_path / "wandb/debug.log")
    found = tracker_inputs(tmp_path)
    assert [run.paths for run in found if run.paths] == [(real,)]
    left = {file.name for run in found for file in run.beside}
    assert "debug.log" in left


def test_lightning_versions_that_go_on(tmp_path: Path) -> None:
    """A version whose steps continue an earlier one is the same run resumed."""
    rows = "epoch,step,train_loss_step\n"
    first = "".join(f"0,{50 * at + 49},3.5\n" for at in range(20))
    second = "".join(f"1,{50 * at + 49},3.0\n" for at in range(20, 30))
    logs = tmp_path / "lightning_logs"
    a = touch(logs / "version_2/metrics.csv", (rows + first).encode())
    b = touch(logs / "version_9/metrics.csv", (rows + first).encode())
    c = touch(logs / "version_10/metrics.csv", (rows + second).encode())
    assert [run.paths for run in tracker_inputs(tmp_path)] == [(a,), (b, c)]


def test_a_folder_a_rank(tmp_path: Path) -> None:
    """Folders rank_N of event files are the ranks of one run; the rows say which."""
    for rank in range(2):
        name = f"tb/20310101-0000/rank_{rank}/events.out.tfevents.1000.h"
        touch(tmp_path / name, scalars(1, 5, 1000))
    (run,) = tracker_inputs(tmp_path)
    assert run.label == "20310101-0000"
    ranks = [parsed(path)[0].readings["rank"].unique().to_list() for path in run.paths]  # type: ignore[index]
    assert ranks == [[0], [1]]


def test_hyper_parameters_beside_the_table(tmp_path: Path) -> None:
    """hparams.yaml becomes the configuration; nested values are left out."""
    table = touch(tmp_path / "version_0/metrics.csv", b"epoch,step,train_loss_step\n0,49,3.5\n")
    touch(tmp_path / "version_0/hparams.yaml", b"lr: 0.01\nnested:\n  deep: 1\nname: 'tiny'\n")
    (batch,) = parsed(table)
    assert batch.framework == "lightning"
    assert batch.events[0].detail == {"lr": "0.01", "name": "tiny"}
