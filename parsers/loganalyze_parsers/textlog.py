"""Text logs: every dialect looks at the same lines, and every line is accounted for.

A file may mix trainers, launchers, ranks and crash messages. The driver splits blocks into lines
(LF) and lines into pieces (CR, for progress bars), takes off prefixes, offers each piece to the
dialects whose marker it holds, and counts the line as read, ignored by a named rule, or unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from loganalyze.model import Account, Batch, LineRef, Problem, Reading
from loganalyze_parsers.ahead import ahead
from loganalyze_parsers.api import NO_NUMBER, Dialect, Line, Look, Reader, Taken
from loganalyze_parsers.blocks import Block
from loganalyze_parsers.commas import spelled
from loganalyze_parsers.frames import Names, joined_rows
from loganalyze_parsers.learnt_bulk import LearntBulk
from loganalyze_parsers.learnt_lines import Said
from loganalyze_parsers.line_pieces import MAX_UNREAD, pieces, rest_left_out, text_of
from loganalyze_parsers.markers import MarkerIndex, bits_of
from loganalyze_parsers.prefixes import clean_line, ranks_per_node
from loganalyze_parsers.prepared import Prepared, prepared
from loganalyze_parsers.seen_lines import SeenLines
from loganalyze_parsers.tally import Fate, Tally
from loganalyze_parsers.tqdm_bar import redrawn

#: Lines without markers whose fate is remembered: noise repeats itself.
_MAX_SEEN = 50_000
_MAX_SEEN_BYTES = 4096  # of one such line
_MOST_LINES = 200_000  # looked at together: a block may be nothing but line ends
_MOST_SHOWN = 64  # lines that went by in bulk, to a reader that waits for more (a traceback: 30)


class TextLog:
    """Reads one text input through a fixed list of dialects."""

    def __init__(
        self,
        dialects: Sequence[Dialect],
        ignore_rule: Callable[[str], str | None],
        source: int,
    ) -> None:
        """Fresh readers for one input; ignore_rule names why a left-over line may be ignored."""
        self._dialects = dialects
        self._readers: list[Reader] = [dialect.reader() for dialect in dialects]
        self._markers = MarkerIndex(dialects)
        self._bulks = [dialect.bulk() if dialect.bulk else None for dialect in dialects]
        self._ignore_rule = ignore_rule
        self._seen_noise: dict[bytes, str | None] = {}
        self._seen_lines = SeenLines()
        self._source = source
        self._made: Counter[str] = Counter()
        self._ranks_per_node = 0
        self.names = Names()
        self.whole: Callable[[int, int], None] | None = None  # see batches()
        self._followers = [i for i, dialect in enumerate(dialects) if dialect.follows]
        self._stateless = sum(1 << i for i, one in enumerate(dialects) if one.stateless)
        self._open = 0  # bits of the readers that wait for more
        self._told_unclear = False
        self._goes_on = False  # the line at hand, in the next block
        self._begun: Fate | None = None  # what became of the beginning of such a line
        self._learnt = LearntBulk(lambda ranks: self._fresh(ranks).alone, self._one_by_one)

    def _fresh(self, ranks_per_node: int) -> TextLog:
        """Another one that has read nothing, for what is learnt."""
        log = TextLog(self._dialects, self._ignore_rule, self._source)
        log._ranks_per_node = ranks_per_node
        return log

    def _one_by_one(self, block: Block, ranks_per_node: int) -> pl.DataFrame | None:
        """The rows of an input's first block without what is learnt."""
        log = self._fresh(ranks_per_node)
        log._learnt.leave_off()
        return log.feed(block).readings

    def alone(self, raw: bytes) -> Said | None:
        """What a dialect, and no other, says of a line whose meaning no other line decides."""
        self._made.clear()
        taken = self._line(raw, (0, 1), self._markers.wanted([raw])[0], Tally())
        if self._open or len(taken) != 1 or len(taken[0].readings) != 1 or len(self._made) != 1:
            return None
        ((said,), (name,)) = taken[0].readings, self._made
        owner = next(i for i, one in enumerate(self._dialects) if one.name == name)
        if taken[0].events or taken[0].problems or said.ref.length != len(raw):
            return None
        step, values = said.step, said.values
        if not self._stateless >> owner & 1:
            alone = getattr(self._readers[owner], "alone", None)
            line = clean_line(raw.decode("utf-8", "replace"), said.ref, self._ranks_per_node)
            if alone is None or (place := alone(line)) is None:
                return None
            step, values = place.step, {**values, **place.values}
        return Said(owner=owner, step=step, rank=said.rank, wall_s=said.wall_s, values=values)

    def batches(self, blocks: Iterator[Block]) -> Iterator[Batch]:
        """One batch a block, and a last one for what was open at the end.

        May be called again for the next part of a rotated log, after turn_to(). `whole` is called
        with the next offset and line when all lines with a newline were read, and no more.
        """
        offset, line, told = 0, 1, self.whole is None
        for block, looks in ahead(self._look, blocks):
            if not told and self.whole is not None and not block.data.endswith(b"\n"):
                self.whole(block.offset, block.first_line)
                told = True
            yield self._batch(self._prepared(block, looks))
            offset = block.offset + len(block.data)
            line = block.first_line + len(block.bounds[0])
        if not told and self.whole is not None:
            self.whole(offset, line)
        yield self.finish()

    def feed(self, block: Block) -> Batch:
        """The batch of one block, at once; blocks come in order, each of whole lines."""
        return self._batch(self._prepared(block, self._look(block)))

    def finish(self) -> Batch:
        """What was still open at the end of the input."""
        tally = Tally()
        if self._begun is not None:
            tally.line(self._begun)
            self._begun = None
        return self._gather([one.finish() for one in self._readers], [], tally.account())

    def turn_to(self, source: int) -> None:
        """The next lines are of another input."""
        self._source = source

    def _look(self, block: Block) -> list[Look | None]:
        """What each bulk way sees in a block; runs in threads, in any order."""
        per_node, source = self._per_node(block), self._source
        looks = [bulk.look(block, source, per_node) if bulk else None for bulk in self._bulks]
        rows = (one.rows(look) for one, look in zip(self._bulks, looks, strict=True) if one)
        known = [frame for frame in rows if frame is not None]
        return [*looks, self._learnt.look(block, source, per_node, known)]

    def _per_node(self, block: Block) -> int:
        """Ranks on a node, by the input's first block (which is looked at before all others)."""
        if not self._ranks_per_node:
            self._ranks_per_node = ranks_per_node(block.data)
        return self._ranks_per_node

    def _prepared(self, block: Block, looks: Sequence[Look | None]) -> Prepared:
        """The lines that a dialect takes by the column."""
        made = prepared(block)
        for index, (bulk, look) in enumerate(zip(self._bulks, looks[:-1], strict=True)):
            frame = bulk.settle(look) if bulk and look is not None else None
            if frame is not None and len(frame):
                self._take(made, index, frame)
        for index, frame in self._learnt.settle(looks[-1], self._readers):
            if len(frame := self.names.kept(made.free(frame))):
                self._take(made, index, frame)
        return made

    def _take(self, made: Prepared, index: int, frame: pl.DataFrame) -> None:
        made.take(index, frame)
        self._made[self._dialects[index].name] += len(frame)

    def _batch(self, prepared: Prepared) -> Batch:
        """Reads the other lines."""
        starts = prepared.block.bounds[0]
        rest = np.flatnonzero(~prepared.taken)
        done = len(starts) - len(rest)
        tally = Tally(lines=done, read=done)
        taken: list[Taken] = []
        self._goes_on = prepared.block.goes_on
        if len(starts) and (self._goes_on or self._begun is not None):
            rest = self._part_of_line(prepared, rest, taken, tally)
        told = 0  # lines before this one that the readers know to have gone by
        for first in range(0, len(rest), _MOST_LINES):
            told = self._some(prepared, rest[first : first + _MOST_LINES], told, taken, tally)
        taken.extend(self._pass(prepared, told, len(starts)))
        return self._gather(taken, prepared.frames, tally.account())

    def _some(
        self, prepared: Prepared, rest: npt.NDArray[np.int64], told: int,
        taken: list[Taken], tally: Tally,
    ) -> int:  # fmt: skip
        """Lines one by one, but for those whose fate is remembered; what `told` is now."""
        block, starts, ends = prepared.block, *prepared.block.bounds
        kinds, fresh = self._seen_lines.look(block, rest, self._seen_noise)
        bits = dict(zip(fresh, self._markers.wanted([*fresh.values()]), strict=True))
        known = np.zeros(len(rest), dtype=bool)  # lines whose fate is remembered
        at = 0
        for one in [*fresh, len(rest)]:
            if not self._open:
                known[at:one] = True
                at = one
            for i in range(at, min(one + 1, len(rest))):
                index, wanted = int(rest[i]), bits.get(i, 0)
                raw = block.data[starts[index] : ends[index]]
                if not wanted and not self._open and raw in self._seen_noise:
                    kinds[i], known[i] = self._seen_lines.kind(self._seen_noise[raw]), True
                    continue
                if wanted or self._open:
                    taken.extend(self._pass(prepared, told, index))
                    told = index + 1
                place = (block.offset + int(starts[index]), block.first_line + index)
                taken.extend(self._line(raw, place, wanted, tally))
            at = one + 1
        tally.known(self._seen_lines.counted(kinds[known]))
        return told

    def _pass(self, prepared: Prepared, first: int, end: int) -> list[Taken]:
        """Tell the readers of the last of the lines in [first, end) that went by in bulk.

        Those that wait for more are shown the first of them, which may be the end of something.
        """
        found = self._show(prepared, first, end) if self._open else []
        for dialect, step in prepared.passed(first, end):
            reader = self._readers[dialect]
            getattr(reader, "went", reader.passed)(step)
            self._note_open(dialect)
            for index in self._followers:
                if index != dialect and step >= 0:
                    self._readers[index].passed(step)
        return found

    def _show(self, prepared: Prepared, first: int, end: int) -> list[Taken]:
        block, starts, ends = prepared.block, *prepared.block.bounds
        found: list[Taken] = []
        for at in (first + np.flatnonzero(prepared.taken[first:end])[:_MOST_SHOWN]).tolist():
            raw = block.data[starts[at] : ends[at]]
            place = block.first_line + at, block.offset + int(starts[at])
            ref = LineRef(source=self._source, line=place[0], offset=place[1], length=len(raw))
            line = clean_line(raw.decode("utf-8", "replace"), ref, self._ranks_per_node)
            for index in bits_of(self._open):
                if prepared.is_of(index, at):
                    continue
                taken = self._fed(index, line)
                self._note_open(index)
                found.extend([taken] if taken is not None and not taken.readings else [])
        return found

    def _note_open(self, index: int) -> None:
        bit = 1 << index
        self._open = self._open | bit if self._readers[index].open else self._open & ~bit

    def _line(self, raw: bytes, place: tuple[int, int], bits: int, tally: Tally) -> list[Taken]:
        quiet = not bits & ~self._stateless and not self._open and self._begun is None
        fate, self._begun = self._begun or Fate(), None
        taken: list[Taken] = []
        again = redrawn(pieces(raw)) if raw.count(b"\r") > 1 else ()
        unread = 0
        for piece, start in pieces(raw):
            if start in again and not self._open:
                continue
            ref = LineRef(
                source=self._source, line=place[1], offset=place[0] + start, length=len(piece)
            )
            if unread >= MAX_UNREAD:
                taken.append(rest_left_out(ref))
                break
            line = clean_line(text_of(piece), ref, self._ranks_per_node, fate.rank)
            fate.rank = line.rank
            found, unclear = self._offer(line, bits)
            if unclear:
                self._tell_unclear(found, ref, fate.rules)
            if found:
                taken.extend(found)
                fate.taken(found)
                continue
            fate.left(self._ignore_rule(line.text), line.text)
            unread += 1
        if self._goes_on:
            self._begun = fate
            return taken
        if quiet and not taken and len(raw) < _MAX_SEEN_BYTES and len(self._seen_noise) < _MAX_SEEN:
            self._seen_noise[raw] = fate.rule
        tally.line(fate)
        return taken

    def _part_of_line(
        self, prepared: Prepared, rest: npt.NDArray[np.int64], taken: list[Taken], tally: Tally
    ) -> npt.NDArray[np.int64]:
        """Read the first line of a block that goes on in the next, or began before this one; the
        lines after it."""
        if prepared.taken[0]:
            self._begun = Fate(read=True) if self._goes_on else None
            if self._goes_on:
                tally.lines = tally.read = 0  # it is counted with its end
            return rest
        block = prepared.block
        raw = block.data[: block.bounds[1][0]]
        bits = self._markers.wanted([raw])[0]
        taken.extend(self._line(raw, (block.offset, block.first_line), bits, tally))
        return rest[1:]

    def _tell_unclear(self, found: list[Taken], ref: LineRef, rules: list[str]) -> None:
        """Say that a number was left out of a line: once an input, in the account each time."""
        if not any(taken.readings for taken in found):
            rules.append("number with an unclear comma")
        elif not self._told_unclear:
            self._told_unclear = True
            message = "a number whose comma may be decimal, thousands or a list is left out"
            found.append(Taken(problems=[Problem(rule="unclear_comma", message=message, ref=ref)]))

    def _offer(self, line: Line, bits: int) -> tuple[list[Taken], bool]:
        """What the readers make of a line, and whether a number's comma in it was unclear."""
        found: list[Taken] = []
        indices = bits_of(bits | self._open)
        others, unclear = spelled(line) if indices else ({}, False)
        left_out, claimed = unclear, False
        for index in indices:
            if claimed and index in self._followers:
                continue  # it reads what nobody knows
            commas = self._dialects[index].commas
            taken = self._fed(index, others.get(commas, line))
            self._note_open(index)
            if taken is None:
                continue
            left_out = unclear and not commas
            found.append(taken)
            own = taken.ignored not in ("", NO_NUMBER)
            claimed = claimed or (own and not self._open >> index & 1)
            if taken.readings or taken.held:
                self._made[self._dialects[index].name] += len(taken.readings)
                self._tell_followers(index, taken.readings)
                break  # a line has one owner of its numbers; crash words are offered no numbers
        return found, left_out

    def _tell_followers(self, owner: int, readings: Sequence[Reading]) -> None:
        """Of the last step that the owner of a line read."""
        steps = [reading.step for reading in readings if reading.step is not None]
        for index in self._followers if steps else ():
            if index != owner:
                self._readers[index].passed(steps[-1])

    def _fed(self, index: int, line: Line) -> Taken | None:
        """What a reader makes of a line; None too where a number in it is beyond all bounds."""
        try:
            return self._readers[index].feed(line)
        except (ValueError, OverflowError):  # 1.2.3, or ten thousand digits
            return None

    def _gather(self, taken: list[Taken], bulk: list[pl.DataFrame], account: Account) -> Batch:
        readings = self.names.admitted([r for t in taken for r in t.readings])
        return Batch(
            readings=joined_rows(bulk, readings),
            events=tuple(e for t in taken for e in t.events),
            problems=tuple(p for t in taken for p in t.problems),
            account=account,
            framework=self._made.most_common(1)[0][0] if self._made else "",
        )
