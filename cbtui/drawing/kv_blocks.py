"""Draws the KV cache as its pool of blocks: who owns which in a step, how full each is, what is shared.

Pure. A block is two cells: its owner's letter, and how much of it is filled. Block ids come from the step's
segments; a running request that was not fed in the step keeps the table of its last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cbtui.drawing.window import merged
from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, Piece, clip_line, say
from cbtui.telling.naming import Badges
from cbtui.telling.words import badge_cell, badge_cells, count, names, percent, ranges
from engine.stream.records import NO_BLOCK, Segment, StepRecord

FREE, REUSABLE, DEAD, RESERVED = "·", "◇", "░", "×"
_EIGHTHS = "▏▏▎▍▌▋▊▉"
#: How far back the table of a request is looked for that was not fed.
_LOOK_BACK = 512
#: Groups of owners that share blocks named.
_GROUPS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Owner:
    """A request's share of the pool: its block table, the token places filled, whether it is held dead."""

    request_id: str
    block_ids: tuple[int, ...]
    filled: int
    is_dead: bool = False

    @property
    def held(self) -> list[int]:
        """The blocks it holds: a window may have left some of its table."""
        return [block for block in self.block_ids if block != NO_BLOCK]


def owners_of(frame: Frame) -> list[Owner]:
    """Who owned blocks in the shown step, in slot order."""
    record = frame.record
    if record is None:
        return []
    segments = {one.request_id: one for one in record.segments}
    missing = {slot.request_id for slot in record.slots} - segments.keys()
    if missing:
        segments |= _last_segments(frame, record, missing)
    owners = []
    for slot in record.slots:
        segment = segments.get(slot.request_id)
        if segment is not None and segment.block_ids:
            is_dead = segment.kind == "dead"
            # A dead row's token is fed to keep the shape; what it holds is what was there before.
            filled = segment.position + (0 if is_dead else segment.num_kept)
            filled -= segment.block_ids.count(NO_BLOCK) * frame.state.config.block_size
            owners.append(Owner(slot.request_id, segment.block_ids, filled, is_dead))
    return owners


def _last_segments(frame: Frame, record: StepRecord, missing: set[str]) -> dict[str, Segment]:
    found: dict[str, Segment] = {}
    for earlier in list(frame.records)[-_LOOK_BACK:][::-1]:
        if isinstance(earlier, StepRecord) and earlier.step < record.step:
            found |= {
                one.request_id: one for one in earlier.segments if one.request_id in missing - found.keys()
            }
    return found


def reusable_blocks(frame: Frame) -> frozenset[int]:
    """Free blocks that hold a prefix after the shown step; empty where the records do not say which."""
    record = frame.record
    if record is None or not record.cached_blocks:
        return frozenset()
    for earlier in reversed(frame.records[-_LOOK_BACK:]):
        if (
            isinstance(earlier, StepRecord)
            and earlier.step <= record.step
            and earlier.cached_runs is not None
        ):
            return frozenset(block for run in earlier.cached_runs for block in range(*run))
    return frozenset()


class PoolDrawing:
    """The pool of a step, for a width: lines about it and its owners, then the grid."""

    def __init__(self, frame: Frame, cells: int) -> None:
        record = frame.record
        assert record is not None
        self.badges: Badges = frame.badges
        self.size = frame.state.config.block_size
        self.num_blocks, self._num_reserved = record.num_blocks, record.reserved_blocks
        #: How long a dead row holds its blocks: in static batching, and on a server that schedules ahead.
        self._until = "until the wave ends" if record.mode == "static" else "for one more row"
        self.owners = owners_of(frame)
        self._reusable = reusable_blocks(frame)
        self._holders: dict[int, list[tuple[Owner, int]]] = {}
        for owner in self.owners:
            for place, block in enumerate(owner.block_ids):
                if block == NO_BLOCK:
                    continue
                self._holders.setdefault(block, []).append((owner, place))
        self._gutter = len(f"{self.num_blocks - 1:,}") + 1
        self.row = _blocks_a_row((cells - self._gutter) // 2, self.num_blocks)
        self.head = [clip_line(line, cells) for line in (*self._summary(record), *self._shares(), ())]

    @property
    def num_shared(self) -> int:
        """Blocks that more than one request holds."""
        return sum(len(holders) > 1 for holders in self._holders.values())

    @property
    def count(self) -> int:
        return len(self.head) + -(-self.num_blocks // self.row)

    def line(self, y: int) -> Line:
        """A line by its number."""
        if y < len(self.head):
            return self.head[y]
        first = (y - len(self.head)) * self.row
        if first >= self.num_blocks:
            return ()
        label = f"{first:,}".rjust(self._gutter - 1) + " "
        blocks = range(first, min(first + self.row, self.num_blocks))
        return merged([(label, "dim"), *(piece for block in blocks for piece in self._cell(block))])

    def _cell(self, block: int) -> Iterable[Piece]:
        holders = self._holders.get(block)
        if block < self._num_reserved:
            return ((RESERVED + " ", "dim"),)
        if holders is None:
            return ((REUSABLE + " ", "dim") if block in self._reusable else (FREE + " ", "faint"),)
        owner, place = holders[0]
        badge = self.badges[owner.request_id]
        letter: Piece = (badge.cell, f"badge:{badge.colour}")
        if len(holders) > 1:
            return letter, (str(min(9, len(holders))), "chip")
        if owner.is_dead:
            return letter, (DEAD, f"block:{badge.colour}")
        filled = min(self.size, owner.filled - place * self.size)
        if filled >= self.size:
            return letter, ("█", f"block:{badge.colour}")
        return letter, (_EIGHTHS[max(0, filled) * 8 // self.size], f"block:{badge.colour}")

    def _summary(self, record: StepRecord) -> list[Line]:
        used, pool = len(self._holders), max(1, record.num_blocks - record.reserved_blocks)
        line: Line = (
            (f"{used:,} of {count(pool, 'block')}", "strong"),
            # Some may be free again at its end.
            (" in use in the step" if used + record.free_blocks > pool else " in use", ""),
            (f" ({percent(used / pool)})", ""),
            (f" · {self.size} tokens each · {record.free_blocks:,} free after the step", "dim"),
        )
        if record.reserved_blocks:
            line = (*line, (f" · {RESERVED} never given out", "dim"))
        cached = record.cached_blocks
        if cached:
            line = (*line, (f", {cached:,} of them with a prefix to be used again", "dim"))
        lines: list[Line] = [line]
        if self.num_shared:
            lines.append(((f"{count(self.num_shared, 'block')} shared: a prefix stored once", "strong"),))
            lines += self._sharers()
        return lines

    def _sharers(self) -> list[Line]:
        """Who shares which blocks, a line for each group of owners."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for block, holders in sorted(self._holders.items()):
            if len(holders) > 1:
                groups.setdefault(tuple(owner.request_id for owner, _ in holders), []).append(block)
        lines: list[Line] = []
        for owners, blocks in list(groups.items())[:_GROUPS_SHOWN]:
            word = "block" if len(blocks) == 1 else "blocks"
            lines.append(say(("  ", ""), *names(self.badges, owners), (f": {word} {ranges(blocks)}", "dim")))
        if len(groups) > _GROUPS_SHOWN:
            lines.append(((f"  and {count(len(groups) - _GROUPS_SHOWN, 'more group')}", "dim"),))
        return lines

    def _shares(self) -> list[Line]:
        """A line an owner: its blocks, how full they are, and what is fixed waste at the end."""
        if not self.owners:
            return [(("No request owned a block in this step.", "dim"),)]
        width = badge_cells(self.badges, [owner.request_id for owner in self.owners])
        lines: list[Line] = []
        for owner in self.owners:
            held = owner.held
            places = f" {owner.filled:,} of {len(held) * self.size:,} places"
            lines.append(
                (
                    *badge_cell(self.badges[owner.request_id], width),
                    (f" {count(len(held), 'block'):<11}", ""),
                    (places.ljust(23), "dim"),
                    (ranges(held), "dim"),
                    (f"  held {self._until}" if owner.is_dead else "", "warn"),
                )
            )
        return lines


def _blocks_a_row(most: int, num_blocks: int) -> int:
    """The largest round number of blocks that fits: numbers at the left are easy to count on from."""
    for row in (200, 100, 50, 40, 20, 10):
        if row <= most:
            return min(row, num_blocks)
    return max(1, min(most, num_blocks))


#: The signs and their meaning.
LEGEND: Line = (
    ("A", "reverse"),
    ("█ full  ", "dim"),
    ("A", "reverse"),
    ("▌ so far  ", "dim"),
    ("A", "reverse"),
    ("░ dead  ", "dim"),
    ("A", "reverse"),
    ("2 shared  ", "dim"),
    (f"{REUSABLE} free, prefix kept  {FREE} free", "dim"),
)
