"""Tags of trackers (TensorBoard, W&B, MLflow, SwanLab, CSV) -> canonical metrics, SI units.

One table for all of them: what a tag means depends on the trainer that wrote it, not on the
tracker that keeps it. Who writes what: Megatron-LM and Megatron-DeepSpeed (training_log), the
Hugging Face Trainer and TRL (`train/`, `eval/`), DeepSpeed's monitor (`Train/Samples/`),
torchtitan (`loss_metrics/`, `memory/`, `time_metrics/`), NeMo, Lightning (`_step`, `_epoch`),
OLMo (`optim/`, `throughput/`), LLM Foundry, Levanter, Nanotron, torchtune, nanoGPT, Keras, verl
(`actor/`, `critic/`, `perf/`), OpenRLHF.
Several tags of one run may mean one metric; the first of the table's row is taken, the others
stay `raw/<tag>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from loganalyze import lazy
from loganalyze_parsers.generic_names import is_own_name, of_unit_behind

_GIB = 1024.0**3

#: (metric, factor to its unit, tags as plain() spells them: the surest first).
_TABLE: tuple[tuple[str, float, str], ...] = (
    ("loss", 1.0,
     "lm_loss lm_loss_training/lm_loss train/samples/train_loss train/loss loss "
     "loss_metrics/global_avg_loss loss/train train_loss_step train/train_loss_step "
     "reduced_train_loss train_step_loss train/step_loss train/loss_step loss_step train_loss "
     "training_loss training/loss train/crossentropyloss train/cross_entropy_loss train/celoss "
     "train/ce_loss train/lm_loss train/batch_loss batch_loss train/nll_loss loss/training "
     "trainer/loss losses/train loss/train/total metrics/train/languagecrossentropy loss/total "
     "train/total_loss total_loss train/train_loss train_loss_epoch epoch_loss loss_epoch "
     "train/epoch_loss train/loss_epoch"),
    ("val_loss", 1.0,
     "lm_loss_validation lm_loss_validation/lm_loss_validation eval/loss eval_loss val/loss "
     "val_loss validation_loss validation/loss loss/val loss/eval loss/validation loss/valid "
     "valid/loss valid_loss validation_metrics/loss train/samples/eval_loss val_loss_epoch "
     "val/loss_epoch eval/crossentropyloss eval/lm/crossentropyloss val_loss_step epoch_val_loss "
     "losses/val loss/eval/total metrics/eval/languagecrossentropy validation/epoch_loss "
     "val/epoch_loss eval/epoch_loss test/loss loss/test test_loss"),
    ("lr", 1.0,
     "learning_rate learning_rate/learning_rate train/learning_rate train/samples/lr train/lr lr "
     "optim/learning_rate_group0 optim/lr optimizer/lr optim/learning_rate actor/lr lr/train "
     "training/lr training/learning_rate train_lr schedule/lr optim/lr_(group_0) train/actor_lr"),
    ("grad_norm", 1.0,
     "grad_norm grad_norm/grad_norm train/grad_norm optim/total_grad_norm optim/grad_norm "
     "gradient_norm total_grad_norm global_grad_norm train/global_grad_norm "
     "train/total_grad_norm train/gradient_norm train/grad/norm grad/norm grads/norm "
     "grad_norm/total gradients/norm grad_2/0_norm_total train/gradnorm gradnorm gnorm "
     "train/gnorm grad/norm/total l2_norm/grad/global actor/grad_norm train/actor_grad_norm "
     "training/grad_norm"),
    ("loss_scale", 1.0,
     "loss_scale loss_scale/loss_scale train/samples/loss_scale train/loss_scale"),
    ("params_norm", 1.0,
     "params_norm params_norm/params_norm param_norm train/params_norm train/param_norm "
     "weight_norm train/weight_norm params/norm/total"),
    ("num_zeros", 1.0, "num_zeros num_zeros/num_zeros"),
    ("token_accuracy", 1.0,
     "train/mean_token_accuracy mean_token_accuracy token_accuracy train/token_acc token_acc"),
    ("perplexity", 1.0,
     "train/perplexity train_perplexity_step perplexity train_perplexity train/ppl ppl"),
    ("epoch", 1.0, "train/epoch epoch trainer/epoch"),
    ("global_batch_size", 1.0, "global_batch_size batch_size/batch_size batch_size"),
    ("seq_len", 1.0, "seq_len seqlen/seqlen seqlen"),
    ("tokens_seen", 1.0,
     "consumed_tokens tokens_seen n_tokens_seen train/num_input_tokens_seen "
     "num_input_tokens_seen train/num_tokens train/tokens_seen throughput/total_tokens "
     "time/token total_tokens"),
    ("samples_seen", 1.0,
     "samples_vs_steps consumed_samples train/consumed_samples samples_seen train/samples_seen"),
    ("step_time_s", 1.0,
     "iteration_time iteration_time/iteration_time time_metrics/end_to_end(s) step_time "
     "train/step_time train_step_timing_in_s train_step_timing/in/s perf/time_per_step "
     "timing_s/step time_per_step iter_time step_time_s seconds_per_step sec_per_step"),
    ("step_time_s", 1e-3,
     "elapsed_time_per_iteration_ms step_time_ms iter_time_ms iteration_time_ms time_per_step_ms"),
    ("data_time_s", 1.0, "time_metrics/data_loading(s) data_time train/data_time"),
    ("forward_time_s", 1e-3, "train/samples/elapsed_time_ms_forward"),
    ("backward_time_s", 1e-3, "train/samples/elapsed_time_ms_backward"),
    ("comm_time_s", 1e-3, "train/samples/elapsed_time_ms_backward_allreduce"),
    ("optimizer_time_s", 1e-3, "train/samples/elapsed_time_ms_step"),
    ("tokens_per_s", 1.0,
     "iteration_time/tokens_per_second tokens_per_second tokens_per_sec train/tokens_per_sec "
     "train/tokens_per_second throughput/tokens_per_sec throughput/tokens_per_second "
     "tokens_per_s tok_per_sec tokens/sec tok/s tok/sec tokens/s tokens/second train/tok_per_sec "
     "perf/tokens_per_sec perf/tokens_per_second"),
    ("tokens_per_s_per_gpu", 1.0,
     "throughput(tps) iteration_time/tokens_per_gpu_per_second perf/throughput "
     "throughput/device/tokens_per_second throughput/device/tokens_per_sec throughput/device/tps "
     "tokens_per_sec_per_gpu tokens_per_second_per_gpu train/tokens_per_sec_per_gpu "
     "tokens_per_s_per_gpu tokens/train_per_sec_per_gpu"),
    ("samples_per_s", 1.0,
     "iteration_time/samples_per_second samples_per_second samples_per_sec train/samples_per_sec "
     "throughput/samples_per_second samples_per_s"),
    ("tflops_per_gpu", 1.0,
     "iteration_time/tflops_per_gpu_(estimated) iteration_time/model_tflops_per_gpu tflops "
     "tflops_per_gpu train/tflops_per_gpu model_tflops_per_gpu"),
    ("mfu", 0.01, "mfu(%) mfu_percent mfu_pct"),
    ("mfu", 1.0, "mfu train/mfu perf/mfu perf/mfu/actor throughput/mfu throughput/device/mfu"),
    ("mem_reserved_bytes", 1.0, "mem_reserved_bytes"),
    ("mem_allocated_bytes", 1.0, "mem_allocated_bytes"),
    ("mem_peak_allocated_bytes", 1.0, "mem_max_allocated_bytes"),
    ("mem_peak_reserved_bytes", _GIB, "memory/max_reserved(gib) perf/max_memory_reserved_gb"),
    ("mem_peak_allocated_bytes", _GIB, "memory/max_allocated(gib) perf/max_memory_allocated_gb"),
    ("mem_active_bytes", _GIB, "memory/max_active(gib)"),
    ("mem_peak_reserved_bytes", _GIB, "train/memory(gib) memory(gib)"),
    ("mem_active_bytes", _GIB, "peak_memory_active"),
    ("mem_peak_allocated_bytes", _GIB, "peak_memory_alloc"),
    ("mem_peak_reserved_bytes", _GIB, "peak_memory_reserved"),
    ("mem_peak_allocated_bytes", 1e6, "system/peak_gpu_memory_(mb)"),
    ("alloc_retries", 1.0, "memory/num_alloc_retries"),
    ("host_mem_used_bytes", _GIB, "perf/cpu_memory_used_gb"),
    ("gpu_power_w", 1.0, "power/gpu"),
    ("gpu_energy_j", 1.0, "iter_energy/gpu"),
    # one GPU or host alone: W&B's charts, MLflow's system metrics
    ("gpu_util", 0.01, "system/gpu/0/gpu system/gpu_0_utilization_percentage"),
    ("gpu_temp_c", 1.0, "system/gpu/0/temp"),
    ("gpu_power_w", 1.0, "system/gpu/0/powerwatts system/gpu_0_power_usage_watts"),
    ("mem_used_bytes", 1.0, "system/gpu/0/memoryallocatedbytes"),
    ("mem_used_bytes", 1e6, "system/gpu_0_memory_usage_megabytes"),
    ("host_rss_bytes", 1024.0**2, "system/proc/memory/rssmb"),
    ("host_mem_used_bytes", 1e6, "system/system_memory_usage_megabytes"),
    ("host_mem_share", 0.01,
     "system/memory_percent system/memory system/system_memory_usage_percentage"),
    ("max_attention_logit", 1.0, "max_attention_logit"),
    # what an observer beside the loop writes: layers and samples
    ("grad_concentration", 1.0, "grad_concentration train/grad_concentration"),
    ("grad_clip_share", 1.0, "grad_clip_share train/grad_clip_share"),
    ("update_ratio", 1.0, "train/update_ratio weight_update_ratio train/weight_update_ratio"),
    ("sample_loss_p50", 1.0, "sample_loss_p50 train/sample_loss_p50"),
    ("sample_loss_p95", 1.0, "sample_loss_p95 train/sample_loss_p95"),
    ("hard_sample_share", 1.0,
     "hard_sample_loss_share hard_sample_share train/hard_sample_loss_share"),
    ("mem_allocated_bytes", _GIB, "gpu_memory_allocated_gb train/gpu_memory_allocated_gb"),
    ("mem_reserved_bytes", _GIB, "gpu_memory_reserved_gb train/gpu_memory_reserved_gb"),
    ("aux_loss/load_balancing", 1.0, "load_balancing_loss train/load_balancing_loss"),
    ("aux_loss/policy", 1.0,
     "actor/pg_loss train/policy_loss train/pg_loss loss/policy_avg train/loss/policy_avg"),
    ("aux_loss/value", 1.0, "critic/vf_loss loss/value_avg train/loss/value_avg"),
    ("reward", 1.0,
     "train/reward reward critic/rewards/mean critic/score/mean objective/rlhf_reward "
     "train/objective/rlhf_reward train/rewards/mean rewards/mean mean_reward "
     "rollout/ep_rew_mean episode_reward episodic_reward mean_episode_reward"),
    ("reward_std", 1.0, "train/reward_std reward_std"),
    ("kl", 1.0,
     "train/kl kl objective/kl train/objective/kl actor/kl_loss critic/kl actor/reward_kl "
     "train/kl_div"),
    ("entropy", 1.0,
     "train/entropy entropy actor/entropy actor/entropy_loss policy/entropy_avg "
     "train/policy/entropy_avg"),
    ("response_length", 1.0,
     "response_length/mean train/completions/mean_length completions/mean_length "
     "train/completion_length completion_length response_length"),
    ("clip_fraction", 1.0,
     "actor/pg_clipfrac train/clip_ratio/region_mean clip_ratio/region_mean train/clip_ratio "
     "policy/clipfrac_avg train/policy/clipfrac_avg"),
)  # fmt: skip
#: Folders of tags that do not change what a name means.
_FOLDERS = frozenset({"", "train", "training", "perf", "gpu", "metrics"})
#: A loss in any other folder than those of the table may be of anything.
_LOSSES = frozenset({"loss", "val_loss"})
_LAST = 1000  # place of a tag that only its shape gives away
#: plain tag -> (metric, factor, place in the row: the lower the surer).
_KNOWN: Mapping[str, tuple[str, float, int]] = {
    **{
        tag: (metric, factor, place)
        for metric, factor, tags in _TABLE
        for place, tag in enumerate(tags.split())
    },
}
_TRAIN_LOSS = lazy.pattern(
    r"(?:train(?:ing|er)?|loss|losses)/(?:\w*_)?(?:loss|crossentropy\w*|cross_entropy)$"
)
_LEARNING_RATE = lazy.pattern(
    r"(?:lr|learning_rate)_(?!.*(?:mult|scale|decay|step))\w+(?:/(?:pg1|group0))?$"
)
#: x axes other than the step: the same numbers a second time.
_TWIN = lazy.pattern(r"(?: vs |-vs-)(?:samples|tokens|gigaflos|steps)\b", re.IGNORECASE)
#: Columns that hold the training step, the surest first; the tracker's own counter comes last.
STEP_TAGS = (
    "train/global_step", "global_step", "trainer/global_step", "iteration", "iterations", "iter",
    "iteration_step", "train/iteration", "train/iter", "train/step", "step", "steps",
    "global_steps", "training/global_step", "train_step", "current_steps", "_step",
)  # fmt: skip
#: Clocks of the tracker, no metric.
CLOCK_TAGS = frozenset({"_runtime", "_timestamp", "_absolute_runtime"})


@lru_cache(maxsize=65536)
def plain(tag: str) -> str:
    """A tag in the spelling of the table: lower case, `_` for blanks and hyphens, `/` for dots.

    >>> plain("Loss/Train"), plain("grad-norm"), plain("train.loss"), plain("lm loss")
    ('loss/train', 'grad_norm', 'train/loss', 'lm_loss')
    """
    return re.sub(r"[\s-]+", "_", tag.strip().lower()).replace(".", "/")


def is_twin(tag: str) -> bool:
    """Whether a tag repeats another over samples, tokens or work instead of steps.

    >>> is_twin("lm loss vs samples"), is_twin("samples vs steps")
    (True, False)
    """
    return bool(_TWIN.search(tag)) and plain(tag) != "samples_vs_steps"


@lru_cache(maxsize=65536)
def known(tag: str) -> tuple[str, float, int] | None:
    """Metric, factor and place (0 = surest) of a tag; None if nobody knows it.

    >>> known("memory/max_reserved(GiB)")
    ('mem_peak_reserved_bytes', 1073741824.0, 0)
    >>> known("perf/step_time"), known("val/accuracy") is None
    (('step_time_s', 1.0, 1000), True)
    """
    name = plain(tag)
    found = _KNOWN.get(name)
    if found is not None:
        return found
    if is_own_name(name):
        return name, 1.0, _LAST
    if _TRAIN_LOSS.match(name) and not re.search(r"val|eval|test|aux|max|min|best|avg_epoch", name):
        return "loss", 1.0, _LAST
    if _LEARNING_RATE.match(name):
        return "lr", 1.0, _LAST
    folder, _, last = name.rpartition("/")
    if folder not in _FOLDERS:
        return None
    bare = _KNOWN.get(last)
    told = bare[:2] if bare and bare[0] not in _LOSSES else of_unit_behind(last)
    return None if told is None else (*told, _LAST)


def assign(tags: Iterable[str]) -> dict[str, tuple[str, float]]:
    """Metric and factor of every tag of one run; a metric goes to the surest tag only.

    >>> assign(["train_loss_epoch", "train_loss_step"])
    {'train_loss_epoch': ('raw/train_loss_epoch', 1.0), 'train_loss_step': ('loss', 1.0)}
    """
    listed = list(dict.fromkeys(tags))
    seen = frozenset(listed)
    best: dict[str, tuple[int, str]] = {}
    meanings = {tag: _of_run(tag, seen) for tag in listed}
    for tag, found in meanings.items():
        if found is not None:
            metric, _, place = found
            best[metric] = min(best.get(metric, (_LAST + 1, tag)), (place, tag))
    named: dict[str, tuple[str, float]] = {}
    for tag, found in meanings.items():
        if found is not None and best[found[0]][1] == tag:
            named[tag] = (found[0], found[1])
        else:
            named[tag] = (f"raw/{tag}", 1.0)
    return named


def _of_run(tag: str, tags: frozenset[str]) -> tuple[str, float, int] | None:
    """known(), and what only the other tags of the run give away.

    Megatron's `throughput` is TFLOP/s per GPU, torchtitan's early `wps` tokens/s per GPU;
    elsewhere the words say nothing.
    """
    if tag == "throughput" and "lm loss" in tags:
        return "tflops_per_gpu", 1.0, 0
    if tag == "wps" and "loss_metrics/global_avg_loss" in tags:
        return "tokens_per_s_per_gpu", 1.0, 0
    return known(tag)


def step_tag(tags: Iterable[str]) -> str | None:
    """The tag that holds the training step; None if there is none but a tracker's counter.

    >>> step_tag(["_step", "train/global_step", "loss"]), step_tag(["loss"])
    ('train/global_step', None)
    """
    by_name = {("_step" if tag == "_step" else plain(tag)): tag for tag in tags}
    return next((by_name[name] for name in STEP_TAGS if name in by_name), None)


def framework_of(tags: Iterable[str]) -> str:
    """Who trained, by tags that only one trainer writes; an empty string if nothing tells."""
    names = {plain(tag) for tag in tags}
    if any(name.startswith("lm_loss") for name in names):
        return "megatron"
    if any(name.startswith("train/samples/") for name in names):
        return "deepspeed"
    if any(name.startswith("loss_metrics/global_") for name in names):
        return "torchtitan"
    if "trainer/global_step" in names:
        return "lightning"
    if "train/global_step" in names or {"train/epoch", "train/learning_rate"} <= names:
        return "huggingface"
    if any(name.startswith(("actor/", "critic/")) for name in names):
        return "verl"
    return ""
