"""A small reinforcement loop: a policy writes bytes, is paid for digits, and is held to a reference.

REINFORCE with the group's mean as baseline and a penalty on the estimated KL divergence
k3 = exp(q - p) - (q - p) - 1 (Schulman's estimator, as TRL's GRPO logs it).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from benchmarks.faultlab.clock import Clock
from benchmarks.faultlab.injection import Injection
from benchmarks.faultlab.model import cross_entropy
from benchmarks.faultlab.recipe import Recipe
from benchmarks.faultlab.training import Exchange, Trainer

_PROMPT, _REPLY = 8, 12
_PRETRAINING_LR = 3e-3
_PRETRAINING = 100  # steps of ordinary training before


class PolicyTrainer(Trainer):
    """The same model; a step is a round of replies and one update."""

    def __init__(
        self, recipe: Recipe, injection: Injection, clock: Clock, exchange: Exchange | None = None
    ) -> None:
        """Trains for a while on text, then keeps a frozen copy as the reference."""
        self.kl_weight, self.entropy_weight = 0.05, 0.01
        self.length_pay = 0.0
        super().__init__(recipe, injection, clock, exchange)
        for group in self.optimizer.param_groups:
            group["lr"] = _PRETRAINING_LR
        for step in range(1, _PRETRAINING + 1):
            batch = self.data.batch(step)
            self.optimizer.zero_grad()
            loss = cross_entropy(self.model(batch.inputs), batch.targets)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.optimizer = self.new_optimizer()
        self.reference = copy.deepcopy(self.model).requires_grad_(False)

    def forward_loss(self, number: int, micro: int) -> Tensor:
        """Replies and rewards: what is to be differentiated."""
        self.size = self.share = 1.0
        with self.clock.phase("forward"):
            replies = self._replies(self.data.batch(number).inputs[:, :_PROMPT])
            return self._loss(replies)

    @torch.no_grad()
    def _replies(self, prompts: Tensor) -> Tensor:
        draw = torch.Generator().manual_seed(self.recipe.seed * 77 + self.advanced)
        for _ in range(_REPLY):
            odds = self.model(prompts)[:, -1].softmax(-1).nan_to_num(1e-6)
            prompts = torch.cat([prompts, torch.multinomial(odds, 1, generator=draw)], 1)
        return prompts

    def _loss(self, replies: Tensor) -> Tensor:
        own = self.model(replies[:, :-1])[:, _PROMPT - 1 :].log_softmax(-1)
        held = self.reference(replies[:, :-1])[:, _PROMPT - 1 :].log_softmax(-1)
        said = replies[:, _PROMPT:, None]
        p, q = own.gather(-1, said)[..., 0], held.gather(-1, said)[..., 0]
        kl = (torch.exp((q - p).clamp(max=20)) - (q - p) - 1).mean()
        entropy = -(own.exp() * own).sum(-1).mean()
        # paid for digits; a reply ends at its first space
        paid = ((said[..., 0] >= 48) & (said[..., 0] <= 57)).float().mean(1)
        spaces = (said[..., 0] == 32).float()
        length = (spaces.cumsum(1) == 0).float().sum(1) + 1
        paid = paid + self.length_pay * length / _REPLY
        advantage = (paid - paid.mean()) / (paid.std() + 1e-4)
        self.extra = {"reward": float(paid.mean()), "kl": float(kl.detach()), "entropy": float(entropy.detach()),
                      "length": float(length.mean())}  # fmt: skip
        gain = (advantage[:, None] * p).mean()
        return -gain + self.kl_weight * kl - self.entropy_weight * entropy
