"""DeepSpeed-Chat: the three steps of its RLHF example.

    epoch: 0|step: 40|ppo_ep: 1|act_loss: -0.01|cri_loss: 0.02|unsuper_loss: 0.0
    average reward score: 1.23
    |E2E latency=9.1s |Gather latency=0.0s (0.0%) |Generate time=5.1s (56.0%) |Training
        time=3.2s (35.2%) |Others=0.8 (8.8%)|CurSamplesPerSec=1.7 |AvgSamplesPerSec=1.6
    Model Parameters: 1.316 B, Latency: 0.49s, TFLOPs: 0.57, Samples/sec: 4.06, Time/seq 0.25s, ...
    ***** Evaluating perplexity, Epoch 1/4 *****
    ppl: 4.21, loss: 1.437

Actor and critic losses may be negative; the actor's is no training loss in the sense of `loss`,
so all three are aux_loss/<name>. The step counts generation batches from 0 and starts again in
every epoch. A perplexity line has no step: it gets that of the last line before it.
"""

from __future__ import annotations

from loganalyze import lazy
from loganalyze_parsers.api import Line, Taken
from loganalyze_parsers.deepspeed_state import State, event, parsed, reading
from loganalyze_parsers.numbers import NUMBER, number

_PPO = lazy.pattern(
    r"epoch: (\d{1,15})\|\s*step: (\d{1,15})\|\s*ppo_ep: (\d{1,15})\|"
    rf"\s*act_loss: ({NUMBER})\|\s*cri_loss: ({NUMBER})\|\s*unsuper_loss: ({NUMBER})"
)
_REWARD = lazy.pattern(rf"average reward score: ({NUMBER})")
_PHASE = lazy.pattern(
    rf"\|\s*(E2E latency|Gather latency|Generate time|Training time|Others)=({NUMBER})s?"
    rf"(?:\s*\(({NUMBER})%\))?"
)
_RATE = lazy.pattern(rf"\|\s*(CurSamplesPerSec|AvgSamplesPerSec)=({NUMBER})")
_MICRO = lazy.pattern(
    rf"Model Parameters: ({NUMBER}) B, Latency: ({NUMBER})s, TFLOPs: ({NUMBER}), "
    rf"Samples/sec: ({NUMBER}), Time/seq:? ({NUMBER})s, Batch Size: ({NUMBER}), "
    rf"(?:Total Seq. Length|Sequence Length): ({NUMBER})"
)
_PERPLEXITY = lazy.pattern(rf"(?:^|\s)ppl: ({NUMBER})(?:, loss: ({NUMBER}))?")
_SCORES = lazy.pattern(
    rf"chosen_last_scores \(higher is better\) : ({NUMBER}),"
    rf"(?: rejected_last_scores \(lower is better\) : ({NUMBER}),)?"
    rf" acc \(higher is better\) : ({NUMBER})"
)
_EPOCH_LOSS = lazy.pattern(rf"Epoch (\d{{1,15}})/(\d{{1,15}}) with loss ({NUMBER})")
_BEGIN = lazy.pattern(
    r"Beginning of Epoch (\d{1,15})/(\d{1,15}), Total (Micro|Generation) Batches (\d{1,15})"
)
_EVALUATING = lazy.pattern(r"\*{5} Evaluating (\w+), Epoch (\d{1,15})/(\d{1,15}) \*{5}")
_MICRO_NAMES = (
    "parameters_billion", "micro_latency_s", "micro_tflops", "micro_samples_per_s",
    "time_per_sequence_s", "micro_batch_size", "micro_seq_len",
)  # fmt: skip


def take_chat(line: Line, state: State) -> Taken | None:
    """PPO rows, rewards, latencies, perplexities and reward-model scores."""
    return _ppo(line, state) or _evaluation(line, state) or _micro(line)


def _ppo(line: Line, state: State) -> Taken | None:
    match = _PPO.search(line.text)
    if match is not None:
        state.chat, state.timed_elsewhere = True, True
        state.chat_step = int(match[2])
        values = {
            "raw/epoch_count": parsed(match[1]),
            "raw/ppo_ep": parsed(match[3]),
            "aux_loss/act_loss": parsed(match[4]),
            "aux_loss/cri_loss": parsed(match[5]),
            "aux_loss/unsuper_loss": parsed(match[6]),
        }
        return Taken(readings=[reading(line, state.chat_step, values)])
    match = _REWARD.search(line.text)
    if match is not None:
        return Taken(readings=[reading(line, state.chat_step, {"reward": parsed(match[1])})])
    return _latency(line, state)


def _latency(line: Line, state: State) -> Taken | None:
    phases = _PHASE.findall(line.text)
    if not phases:
        return None
    values: dict[str, float] = {}
    for name, seconds, percent in phases:
        short = name.lower().replace(" ", "_")
        values["step_time_s" if name == "E2E latency" else f"raw/{short}_s"] = parsed(seconds)
        if percent:
            values[f"raw/{short}_share"] = parsed(percent) / 100.0
    for name, raw in _RATE.findall(line.text):
        values["samples_per_s" if name == "CurSamplesPerSec" else f"raw/{name}"] = parsed(raw)
    return Taken(readings=[reading(line, state.chat_step, values)])


def _evaluation(line: Line, state: State) -> Taken | None:
    text = line.text
    match = _PERPLEXITY.search(text)
    if match is not None:
        values = {"perplexity": parsed(match[1])}
        loss = number(match[2] or "")
        if loss is not None:
            values["val_loss"] = loss
        return Taken(readings=[reading(line, state.step, values)])
    match = _SCORES.search(text)
    if match is not None:
        names = ("chosen_last_scores", "rejected_last_scores", "accuracy")
        found = {
            f"raw/{n}": parsed(raw) for n, raw in zip(names, match.groups(), strict=True) if raw
        }
        return Taken(readings=[reading(line, state.step, found)])
    match = _EPOCH_LOSS.search(text)
    if match is not None:  # mean over the epoch: not a row of the loss curve
        mean = {"raw/epoch_loss": parsed(match[3]), "raw/epoch_count": parsed(match[1])}
        return Taken(readings=[reading(line, state.step, mean)])
    match = _EVALUATING.search(text)
    if match is not None:
        return Taken(events=[event(line, "evaluation", state.step, epoch=int(match[2]))])
    match = _BEGIN.search(text)
    if match is not None:
        state.chat = state.chat or match[3] == "Generation"
        detail = {"num_train_epochs": int(match[2]), f"{match[3].lower()}_batches": int(match[4])}
        return Taken(events=[event(line, "config", state.step, **detail)])
    return None


def _micro(line: Line) -> Taken | None:
    """One per micro step, without a step of its own: kept, but not drawn."""
    match = _MICRO.search(line.text)
    if match is None:
        return None
    values = {f"raw/{n}": parsed(raw) for n, raw in zip(_MICRO_NAMES, match.groups(), strict=True)}
    return Taken(readings=[reading(line, None, values)])
