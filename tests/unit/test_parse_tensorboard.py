"""TensorBoard event files: framing, checksums, scalars of every form, rows."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from build_tfevents import (
    crc32c,
    event,
    events_file,
    masked,
    record,
    session_start,
    simple,
    tensor,
    text_summary,
    version,
)
from build_wandb import field, varint
from hypothesis import given, settings
from hypothesis import strategies as st
from loganalyze_parsers.tfevents_crc import MARGIN, masked_of_lengths, masked_of_spans
from loganalyze_parsers.tfevents_records import RecordBlock, record_blocks
from loganalyze_parsers.tfevents_scalars import odd, tensor_number, usual
from trackers import parsed, rows, rules

from loganalyze.model import Batch

NAME = "events.out.tfevents.1700000000.node-3.example.77.0"


def read(tmp_path: Path, data: bytes) -> Batch:
    """The one batch of an event file with these bytes."""
    path = tmp_path / NAME
    path.write_bytes(data)
    (batch,) = parsed(path)
    return batch


def megatron(count: int, first: int = 1) -> list[bytes]:
    """Scalars as Megatron-LM writes them, with the twins over samples."""
    made = []
    for step in range(first, first + count):
        wall = 1.7e9 + step
        made += [
            event(wall, step, simple("lm loss", 4.0 - step / 256)),
            event(wall, 64 * step, simple("lm loss vs samples", 4.0 - step / 256)),
            event(wall, step, simple("grad-norm", 1.5)),
            event(wall, step, simple("throughput", 212.0)),
        ]
    return made


def test_checksum_of_the_standard_example() -> None:
    """CRC-32C of '123456789' is 0xE3069283 (RFC 3720 gives the polynomial)."""
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [4, 5, 31, 32, 33, 36, 63, 64, 65, 200, 1000, 1025, 1280, 5003])
def test_checksums_side_by_side_equal_one_by_one(size: int) -> None:
    """The array way gives what the bit by bit way gives, whatever stands around the span."""
    noise = np.random.default_rng(size).integers(0, 256, MARGIN + 3 * size + 9, dtype=np.uint8)
    starts = np.array([MARGIN, MARGIN + size + 4, MARGIN + 2 * size + 9])
    sizes = np.array([size, max(4, size - 3), size])
    want = [masked(noise[at : at + n].tobytes()) for at, n in zip(starts, sizes, strict=True)]
    assert masked_of_spans(noise, starts, sizes).tolist() == want


def test_checksums_of_lengths() -> None:
    """Those of the eight bytes of a length as well."""
    lengths = [0, 1, 42, 300, 2**33]
    want = [masked(struct.pack("<Q", length)) for length in lengths]
    assert masked_of_lengths(np.array(lengths, dtype=np.uint64)).tolist() == want


def test_scalars_of_a_step_are_one_row(tmp_path: Path) -> None:
    """Tags get canonical names, twins over samples are left out, values are float32."""
    batch = read(tmp_path, events_file(megatron(300)))
    frame = rows(batch)
    assert frame["step"].to_list() == list(range(1, 301))
    assert frame["loss"][255] == 3.0
    assert frame["tflops_per_gpu"][0] == 212.0
    assert frame["wall_s"][1] == 1.7e9 + 2
    assert batch.framework == "megatron"
    assert batch.account.read == 900
    assert batch.account.ignored == {"file header": 1, "twin over samples or tokens": 300}
    assert rules(batch) == []


def test_place_of_a_row_is_that_of_its_records(tmp_path: Path) -> None:
    """From the first of the step's framed records to the end of the last: all its numbers."""
    data = events_file(megatron(3))
    frame = rows(read(tmp_path, data))
    start, length = frame["offset"][1], frame["length"][1]
    wanted = b"".join(record(one) for one in megatron(3)[4:8])  # a twin stands between them
    assert data[start : start + length] == wanted
    assert frame["line"][1] == 6


def test_step_zero_and_large_steps(tmp_path: Path) -> None:
    """Step 0 is left out of the message; large ones take more bytes."""
    steps = [0, 1, 127, 128, 20_000, 3_000_000, 2**33]
    data = events_file([event(1.0 + step, step, simple("loss", 0.5)) for step in steps])
    assert rows(read(tmp_path, data))["step"].to_list() == steps


@pytest.mark.parametrize("content", [True, False])
def test_scalars_as_tensors(tmp_path: Path, content: bool) -> None:
    """TensorFlow 2's form is read in full, not ten points of it."""
    made = [event(5.0, step, tensor("epoch_loss", step / 4, content=content)) for step in range(99)]
    frame = rows(read(tmp_path, events_file(made)))
    assert frame["loss"].to_list() == [step / 4 for step in range(99)]


def test_several_values_in_one_event(tmp_path: Path) -> None:
    """A summary may hold more than one scalar."""
    both = event(3.0, 4, simple("loss", 1.0), simple("lr", 0.25))
    frame = rows(read(tmp_path, events_file([both])))
    assert (frame["loss"][0], frame["lr"][0]) == (1.0, 0.25)


def test_texts_are_skipped_by_name(tmp_path: Path) -> None:
    """Text summaries (arguments, user names) are neither read nor copied."""
    words = text_summary("args", "--user someone")
    batch = read(tmp_path, events_file([event(1.0, 0, words), *megatron(2)]))
    assert batch.account.ignored["text, image, histogram or hparams"] == 1
    assert "someone" not in repr(batch)


def test_bad_checksum_in_the_middle_costs_one_record(tmp_path: Path) -> None:
    """The damaged record is skipped and told; all others are read."""
    events = [event(1.0, step, simple("loss", 2.0)) for step in range(1, 101)]
    data = bytearray(events_file(events))
    at = len(events_file(events[:50])) + 20
    data[at] ^= 0x10
    batch = read(tmp_path, bytes(data))
    assert len(rows(batch)) == 99
    assert rules(batch) == ["damaged_record"]
    assert batch.account.unknown == 1


def test_bad_length_is_passed(tmp_path: Path) -> None:
    """After a damaged length the next sound record is found."""
    events = [event(1.0, step, simple("loss", 2.0)) for step in range(1, 101)]
    data = bytearray(events_file(events))
    data[len(events_file(events[:50])) + 1] ^= 0x7F
    batch = read(tmp_path, bytes(data))
    assert rows(batch)["step"].to_list() == [*range(1, 51), *range(52, 101)]
    assert rules(batch) == ["damaged_record"]


@pytest.mark.parametrize("tail", [b"", bytes(5), bytes(5000)])
def test_torn_or_zero_filled_tail(tmp_path: Path, tail: bytes) -> None:
    """What precedes a torn record or a tail of zeros is kept."""
    events = [event(1.0, step, simple("loss", 2.0)) for step in range(1, 11)]
    batch = read(tmp_path, events_file(events)[:-9] + tail)
    assert rows(batch)["step"].to_list() == list(range(1, 10))
    assert "input_breaks_off" in rules(batch)


def test_step_that_comes_again_is_a_second_row(tmp_path: Path) -> None:
    """Rewritten steps are kept in order; the writer's mark becomes an event."""
    first = [event(1.0 + s, s, simple("loss", 5.0)) for s in range(10)]
    second = [event(50.0 + s, s, simple("loss", 4.0)) for s in range(6, 12)]
    batch = read(tmp_path, events_file([*first, event(49.0, 6, session_start()), *second]))
    assert rows(batch)["step"].to_list() == [*range(10), *range(6, 12)]
    assert [found.step for found in batch.events] == [6]


def test_epoch_given_twice_is_no_second_row(tmp_path: Path) -> None:
    """The Trainer's summary repeats the epoch of the last step with the same number."""
    made = [
        event(1.0, 7, simple("train/loss", 2.0)),
        event(1.0, 7, simple("train/epoch", 1.0)),
        event(2.0, 7, simple("train/epoch", 1.0)),
        event(2.0, 7, simple("train/train_loss", 3.0)),
    ]
    frame = rows(read(tmp_path, events_file(made)))
    assert frame["loss"].to_list() == [2.0]
    assert frame["raw/train/train_loss"].to_list() == [3.0]


def test_tags_written_one_after_the_other_join_by_step(tmp_path: Path) -> None:
    """A converter's file (all of one tag, then all of the next) has one row a step."""
    made = [event(1.0, s, simple("loss", 1.0)) for s in range(5)]
    made += [event(1.0, s, simple("lr", 0.5)) for s in range(5)]
    frame = rows(read(tmp_path, events_file(made)))
    assert frame["step"].to_list() == list(range(5))
    assert frame["lr"].null_count() == 0


def test_validation_folder(tmp_path: Path) -> None:
    """Keras writes the same tag into `validation/`: it is the validation loss there."""
    folder = tmp_path / "validation"
    folder.mkdir()
    data = events_file([event(1.0, 1, tensor("epoch_loss", 2.0, content=True))])
    assert rows(read(folder, data))["val_loss"].to_list() == [2.0]


def test_samples_axis_is_told(tmp_path: Path) -> None:
    """DeepSpeed's monitor counts samples: the user hears of it."""
    data = events_file([event(1.0, 512, simple("Train/Samples/train_loss", 2.0))])
    assert rules(read(tmp_path, data)) == ["steps_are_samples"]


def test_file_without_scalars(tmp_path: Path) -> None:
    """A failed start of one record has no rows and no problem."""
    batch = read(tmp_path, version())
    assert batch.readings is None
    assert rules(batch) == []


def test_unknown_fields_are_stepped_over(tmp_path: Path) -> None:
    """Fields that came later do not disturb."""
    made = event(1.0, 3, simple("loss", 2.0), field(77, "new"))
    assert rows(read(tmp_path, events_file([made])))["loss"].to_list() == [2.0]


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_no_damage_can_raise(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever bytes are changed behind the header, all records are accounted for."""
    file = bytearray(events_file([*megatron(9), event(1.0, 3, tensor("x", 1.0, content=True))]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(40, len(file) - 1))
        file[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    batch = read(tmp_path_factory.mktemp("tb"), bytes(file))
    assert batch.account.lines >= 1


@pytest.mark.parametrize("at", [40, 141, 145])
def test_damage_that_leaves_no_scalar(at: int, tmp_path: Path) -> None:
    """A file of which damage leaves no scalar at all is accounted for, not a crash."""
    file = bytearray(events_file([*megatron(9), event(1.0, 3, tensor("x", 1.0, content=True))]))
    file[at:at] = b"\x00"
    del file[40]
    assert read(tmp_path, bytes(file)).account.lines >= 1


def test_sixteen_bit_tensors_and_integers() -> None:
    """Scalars of other types: half, bfloat16, int64, packed or as content."""
    half = field(1, 19) + field(4, struct.pack("<e", 1.5))
    brain = field(1, 14) + field(4, struct.pack("<f", 1.5)[2:])
    whole = field(1, 9) + field(10, varint(7))
    double = field(1, 2) + field(6, struct.pack("<d", 0.25))
    two = field(1, 1) + field(5, struct.pack("<ff", 1.0, 2.0))
    found = [tensor_number(one) for one in (half, brain, whole, double, two, field(1, 7))]
    assert found == [1.5, 1.5, 7.0, 0.25, None, None]


@pytest.mark.parametrize("content", [True, False])
def test_both_forms_are_of_the_usual_layout(content: bool) -> None:
    """Single values and float tensors are decoded side by side; what that gives is the same."""
    events = [*megatron(5), *(event(1.0, s, tensor("x/y", s / 8, content=content)) for s in (0, 9))]
    (block,) = record_blocks(io.BytesIO(events_file(events)))
    assert isinstance(block, RecordBlock)
    scalars, is_usual = usual(block)
    assert np.flatnonzero(~is_usual).tolist() == [0]
    for at, index in enumerate(scalars.record.tolist()):
        one = odd(block, index)
        assert one.step == scalars.step[at]
        assert one.wall_s == scalars.wall_s[at]
        assert one.scalars == ((scalars.tag[scalars.tag_of[at]], scalars.value[at]),)
