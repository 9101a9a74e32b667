"""Bars and printed dictionaries of OpenRLHF and EasyLM."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from trackers import parsed, rows

_TRAIN = "Train epoch [1/1]:  50%|#####     | {done}/2 [00:{done:02d}<00:01,  3.00s/it, {said}]"


def read(tmp_path: Path, text: str) -> tuple[pl.DataFrame, int]:
    """The rows of a console, and how many of its lines nobody knew."""
    path = tmp_path / "console.log"
    path.write_text(text)
    made = parsed(path)
    frames = [rows(batch) for batch in made if batch.readings is not None]
    return pl.concat(frames, how="diagonal"), sum(batch.account.unknown for batch in made)


def test_bars_of_updates_in_full_words(tmp_path: Path) -> None:
    """Steps are counted through the updates; the rollouts' bar says means and is no row."""
    said = "policy_loss=-0.25, reward=1.5, kl=0.125, glen=230, actor_lr=5e-07, critic_loss=0.5"
    rollout = "Episode [1/2]:  25%|##5       | 1/4 [00:40<02:00, 40.0s/it, policy_loss=-0.5]"
    text = "\n".join([*(_TRAIN.format(done=done, said=said) for done in (1, 2)), rollout] * 2)
    frame, unknown = read(tmp_path, text + "\n")
    assert frame["step"].to_list() == [1, 2, 3, 4]
    wanted = {
        "loss": -0.25, "reward": 1.5, "kl": 0.125, "response_length": 230.0, "lr": 5e-7,
        "aux_loss/value": 0.5,
    }  # fmt: skip
    first = frame.row(0, named=True)
    assert {name: first[name] for name in wanted} == wanted
    assert unknown == 0


def test_bars_of_updates_in_short_words(tmp_path: Path) -> None:
    """`pg` is the policy's loss; beside it `rm` is the reward, `cri` the critic's loss."""
    said = "pg=-0.25, rm=1.5, ret=1.25, glen=230, tlen=400, kl=0.125, act_lr=5e-07, cri=0.5, vals=1"
    frame, _ = read(tmp_path, _TRAIN.format(done=1, said=said) + "\n")
    wanted = {"loss": -0.25, "reward": 1.5, "lr": 5e-7, "aux_loss/value": 0.5, "raw/return": 1.25}
    first = frame.row(0, named=True)
    assert {name: first[name] for name in wanted} == wanted


def test_updates_are_no_rows_beside_the_trainers_own_steps(tmp_path: Path) -> None:
    """Lines with the trainer's step come behind the bars of its updates, from the first on."""
    said = "policy_loss=-0.25, reward=1.5, kl=0.125"
    bars = [_TRAIN.format(done=done, said=said) for done in (1, 2)]
    own = "INFO | Global step {}: {{'policy_loss': -0.5, 'reward': 1.25, 'kl': 0.125}}"
    text = "\n".join([*bars, own.format(1), *bars, own.format(2)])
    frame, unknown = read(tmp_path, text + "\n")
    assert frame["step"].to_list() == [1, 2]
    assert frame["loss"].to_list() == [-0.5, -0.5]
    assert unknown == 0


def test_a_single_update_is_read_to_its_end(tmp_path: Path) -> None:
    """Several epochs of one update, and no more: held rows come at the end."""
    said = "policy_loss=-0.25, reward=1.5"
    first = [_TRAIN.format(done=done, said=said) for done in (1, 2)]
    second = [bar.replace("[1/1]", "[2/2]") for bar in first]
    frame, unknown = read(tmp_path, "\n".join([*first, *second]) + "\n")
    assert frame["step"].to_list() == [1, 2, 3, 4]
    assert frame["line"].to_list() == [1, 2, 3, 4]
    assert unknown == 0


def test_a_dictionary_printed_over_several_lines(tmp_path: Path) -> None:
    """EasyLM's keys are sorted, its numbers are arrays, and bars are drawn in between."""

    def record(step: int) -> str:
        return (
            f" 1%|1  | {step}/500 [00:03<03:30,  3.00s/it]\n"
            "{'accuracy': array(0.5, dtype=float32),\n"
            " 'dataset_example_index': 40,\n"
            " 'gradient_norm': array(0.25, dtype=float32),\n"
            " 'learning_rate': array(1e-05, dtype=float32),\n"
            f" 'loss': array(2.{step}, dtype=float32),\n"
            " 'param_norm': array(1024.5, dtype=float32),\n"
            f" 'step': {step}}}\n\n"
        )  # fmt: skip

    frame, unknown = read(tmp_path, record(10) + record(20))
    assert frame["step"].to_list() == [10, 20]
    assert frame["loss"].to_list() == [2.1, 2.2]
    assert frame["grad_norm"].to_list() == [0.25, 0.25]
    assert frame["params_norm"].to_list() == [1024.5, 1024.5]
    assert frame["line"].to_list() == [2, 11]
    assert unknown == 0
