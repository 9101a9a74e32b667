"""Faults in what the model is fed, and in what it is asked to predict."""

from __future__ import annotations

import random

import torch

from benchmarks.faultlab.fault import Fault
from benchmarks.faultlab.injection import Batch, Injection
from benchmarks.faultlab.text import by_topic, listing, prose
from benchmarks.faultlab.training import Trainer

_SPIKE = ("loss_spike", "grad_explosion", "loss_divergence")


def _noise(step: int, trainer: Trainer) -> torch.Generator:
    return torch.Generator().manual_seed(trainer.recipe.seed * 991 + step)


class Garbage(Injection):
    """Three batches of random bytes, labels and all."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """Random bytes."""
        if not self.onset <= step < self.onset + 3:
            return batch
        rows, length = batch.inputs.shape
        made = torch.randint(0, 256, (rows, length + 1), generator=_noise(step, trainer))
        return Batch(made[:, :-1], made[:, 1:].clone())


class Repeated(Injection):
    """Four batches in which one rare character fills every sequence's second half."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """One byte over and over, a new one each row, in no order that could be learnt."""
        if not self.onset <= step < self.onset + 4:
            return batch
        rows, length = batch.inputs.shape
        made = torch.cat([batch.inputs, batch.targets[:, -1:]], 1)
        byte = torch.randint(128, 256, (rows, 1), generator=_noise(step, trainer))
        made[:, length // 2 :] = byte
        return Batch(made[:, :-1], made[:, 1:].clone())


class OverLong(Injection):
    """Six batches of sequences eight times as long, at places that were never trained."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """Neighbouring windows as one sequence."""
        if not self.onset <= step < self.onset + 6:
            return batch
        length = trainer.recipe.length * 8
        start = torch.randint(0, trainer.data.border - length - 1, (4, 1),
                              generator=_noise(step, trainer))  # fmt: skip
        rows = trainer.data.bytes[start + torch.arange(length + 1)]
        return Batch(rows[:, :-1], rows[:, 1:].clone())


class LabelNoise(Injection):
    """From the onset on, four labels in ten are random."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """Inputs stay."""
        if step >= self.onset:
            draw = _noise(step, trainer)
            wrong = torch.rand(batch.targets.shape, generator=draw) < 0.4
            other = torch.randint(0, 256, batch.targets.shape, generator=draw)
            batch.targets[wrong] = other[wrong]
        return batch


class OtherText(Injection):
    """From the onset on, another distribution."""

    def before(self, trainer: Trainer, step: int) -> None:
        """Swap the corpus once."""
        if step == self.onset:
            trainer.data.swap(listing(trainer.recipe.seed, trainer.recipe.sentences))


class Mixed(Injection):
    """Healthy: a planned change of the mix, a seventh of the sequences from another source."""

    def built(self, trainer: Trainer) -> None:
        """The other source, known from the start in small doses."""
        self.other = torch.frombuffer(
            bytearray(listing(trainer.recipe.seed, 3000)), dtype=torch.uint8
        ).long()

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """One row of it before the onset, three after."""
        rows = 3 if step >= self.onset else 1
        high = len(self.other) - trainer.recipe.length - 1
        start = torch.randint(0, high, (rows, 1), generator=_noise(step, trainer))
        made = self.other[start + torch.arange(trainer.recipe.length + 1)]
        batch.inputs[:rows], batch.targets[:rows] = made[:, :-1], made[:, 1:]
        return batch


class AllMasked(Injection):
    """From the onset on no label counts: 0/0, or 0 where the trainer guards the division."""

    def built(self, trainer: Trainer) -> None:
        """Trainers differ; the seed decides."""
        trainer.empty_is_nan = trainer.recipe.seed % 2 == 0

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """All -100."""
        if step >= self.onset:
            batch.targets[:] = -100
        return batch


class DoubleShift(Injection):
    """Labels shifted twice: the model learns to predict the byte after the next."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """The last label is lost."""
        batch.targets[:, :-1] = batch.targets[:, 1:].clone()
        batch.targets[:, -1] = -100
        return batch


class CausalLeak(Injection):
    """A short convolution over the inputs is padded on the wrong side, so it sees the next byte."""

    def built(self, trainer: Trainer) -> None:
        """The model may look ahead."""
        trainer.model.peek = True


class FewEpochs(Injection):
    """A small text, read again and again."""

    def built(self, trainer: Trainer) -> None:
        """Held-out text stays what it was: of the full corpus."""
        small = prose(trainer.recipe.seed, 50)
        held = prose(trainer.recipe.seed + 5000, 20)[: len(small) // 9]
        trainer.data.swap(small + held)
        trainer.data.order = "epochs"


class NoShuffle(Injection):
    """The file's own order: blocks of topics, one after another."""

    def built(self, trainer: Trainer) -> None:
        """In order."""
        trainer.data.swap(by_topic(trainer.recipe.seed, trainer.recipe.sentences))
        trainer.data.order = "file"


class BadToken(Injection):
    """A token beyond the vocabulary: the embedding raises."""

    def batch(self, trainer: Trainer, step: int, batch: Batch) -> Batch:
        """One id too large."""
        if step == self.onset:
            place = random.Random(trainer.recipe.seed).randrange(batch.inputs.shape[1])
            batch.inputs[0, place] = 300
        return batch


FAULTS = (
    Fault(name="bad_batch_garbage", family="data", make=Garbage, kinds=_SPIKE, recorded=True,
          causes=("C.SPIKE.DATA", "C.DATA.QUALITY", "C.DATA.FORMAT", "C.GRAD.OUTLIER_BATCH")),
    Fault(name="bad_batch_repeated", family="data", make=Repeated, kinds=_SPIKE, recorded=True,
          causes=("C.DATA.REPETITION", "C.SPIKE.DATA", "C.GRAD.OUTLIER_BATCH")),
    Fault(name="bad_batch_long", family="data", make=OverLong,
          kinds=(*_SPIKE, "throughput_drop", "throughput_stall"),
          causes=("C.SPIKE.DATA", "C.PERF.LONG_SEQ", "C.DATA.HETEROGENEOUS", "C.DATA.FORMAT")),
    Fault(name="label_noise", family="data", make=LabelNoise, recorded=True,
          kinds=(*_SPIKE, "loss_discontinuity", "loss_plateau"),
          causes=("C.DATA.QUALITY", "C.DATA.SHIFT", "C.SPIKE.DATA")),
    Fault(name="ood_data", family="data", make=OtherText, kinds=(*_SPIKE, "loss_discontinuity"),
          causes=("C.DATA.SHIFT", "C.SPIKE.DATA", "C.DATA.HETEROGENEOUS", "C.DATA.SHUFFLE")),
    Fault(name="labels_all_masked", family="labels", make=AllMasked, recorded=True,
          kinds=("loss_nonfinite", "loss_too_low", "loss_frozen", "grad_nonfinite",
                 "grad_vanishing"),
          causes=("C.LABELS.ALL_MASKED", "C.LABELS.TRUNCATED")),
    Fault(name="labels_double_shift", family="labels", make=DoubleShift, at=0.0,
          kinds=("loss_plateau", "no_learning", "val_loss_rising"), metrics=("val_loss",),
          causes=("C.LABELS.DOUBLE_SHIFT",)),
    Fault(name="causal_leak", family="labels", make=CausalLeak, at=0.0, kinds=("loss_too_low",),
          causes=("C.LEAK.CAUSAL",)),
    Fault(name="memorise_epochs", family="data", make=FewEpochs, at=0.0,
          recipe={"evaluate": 40, "weight_decay": 0.0},
          kinds=("val_loss_rising", "loss_too_low"), metrics=("loss", "val_loss"),
          causes=("C.DATA.EPOCH_MEMORISE", "C.OVERFIT")),
    Fault(name="no_shuffle", family="data", make=NoShuffle, at=0.0,
          kinds=(*_SPIKE, "loss_oscillation", "loss_discontinuity"),
          causes=("C.DATA.SHUFFLE", "C.DATA.HETEROGENEOUS", "C.DATA.SHIFT")),
    Fault(name="crash_token_range", family="ends", make=BadToken, kinds=("crash",),
          causes=("C.DATA.TOKEN_RANGE", "C.CRASH.CODE")),
    Fault(name="healthy_mix_change", family="healthy", make=Mixed, healthy=True, at=0.5),
)  # fmt: skip
