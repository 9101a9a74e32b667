"""A tiny transformers Trainer run with a poisoned sample, recorded by the callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import replay_lab as lab
import torch
from torch import Tensor, nn

from loganalyze.replay import trainer_callback
from loganalyze.replay.recipe import Step

SAMPLES, STEPS, BAD, SAVE = 8, 64, 56, 48
BUILDER = f"{__file__}:build"


def model() -> Any:
    """A GPT-2 of a few thousand parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=lab.VOCAB, n_positions=lab.LENGTH, n_embd=lab.WIDTH, n_layer=2, n_head=2,
        bos_token_id=0, eos_token_id=0,
    ))  # fmt: skip


def build() -> Step:
    """The builder that a replay of the capsule needs."""
    made = model()
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3, weight_decay=0.0)
    return Step(model=made, optimizer=optimizer, loss_fn=loss, accumulate="sum")


def loss(made: nn.Module, batch: Any) -> Tensor:
    """The model's own loss of the recorded call."""
    value: Tensor = made(**batch).loss
    return value


def rows() -> list[dict[str, Tensor]]:
    """Samples in the order of training; one of step BAD is noise."""
    tokens = lab.text(SAMPLES * STEPS, torch.Generator().manual_seed(1))[:, : lab.LENGTH]
    generator = torch.Generator().manual_seed(9)
    tokens[SAMPLES * (BAD - 1) + 5] = torch.randint(lab.VOCAB, (lab.LENGTH,), generator=generator)
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(folder: Path) -> Any:
    """Trains in order, logging every step; gives the Trainer."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder / "out"), per_device_train_batch_size=SAMPLES, max_steps=STEPS,
        learning_rate=3e-3, lr_scheduler_type="constant", logging_steps=1, save_steps=SAVE,
        report_to=[], use_cpu=True, disable_tqdm=True, seed=0, train_sampling_strategy="sequential",
        weight_decay=0.0,
    )  # fmt: skip
    made = model()
    trainer = Trainer(
        model=made, args=arguments, train_dataset=rows(),
        optimizers=(torch.optim.AdamW(made.parameters(), lr=3e-3, weight_decay=0.0), None),
        callbacks=[trainer_callback(folder / "box", builder=BUILDER, snapshot_every=16)],
    )  # fmt: skip
    trainer.train()
    trainer.save_state()
    return trainer
