"""The admission log: who entered which slot when, and who ended, as the tutorial prints it.

    ++ [step 6]   slot 0 <- D (cap 30): "Once upon a time in a land far away,"
    -- [step 36]  slot 0 done D (length, 30 tokens): " there was a beautiful princess…"

The number is that of completed steps: a request admitted at [step 6] is first fed in step 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from cbtui.cli.console import Look, badge, listed
from cbtui.telling.naming import letter_of
from engine.stream.ledger import Ledger
from engine.stream.records import Finish, Record, StepRecord

#: A longer log keeps this many lines at each end.
ENDS_SHOWN = 15


def admission_log(records: Sequence[Record], ledger: Ledger, look: Look) -> list[Text]:
    """A line an event, in order; `ledger` has taken all records in."""
    log = _Log(ledger, look, len(f"[step {ledger.step}]"))
    lines: list[Text] = []
    for record in records:
        before = record.step - 1 if isinstance(record, StepRecord) else record.step
        events = record.events
        for preemption in events.preempted:
            lines.append(
                log.preempted(before, preemption.request_id, preemption.slot, preemption.lost_tokens)
            )
        for admission in events.admitted:
            lines.append(log.admitted(before, admission.request_id, admission.slot, admission.resumed))
        for finish in events.finished:
            lines.append(log.finished(before if finish.slot is None else record.step, finish))
        if events.barrier:
            lines.append(log.barrier(record.step, [release.slot for release in events.released]))
    if len(lines) > 2 * ENDS_SHOWN + 1:
        left_out = Text(f"   {look.ellipsis} {len(lines) - 2 * ENDS_SHOWN:,} more lines", style="dim")
        lines = [*lines[:ENDS_SHOWN], left_out, *lines[-ENDS_SHOWN:]]
    return lines


class _Log:
    """Writes the lines; `step_cells` is what the longest `[step n]` takes."""

    def __init__(self, ledger: Ledger, look: Look, step_cells: int) -> None:
        self._ledger = ledger
        self._look = look
        self._step_cells = step_cells

    def _head(self, sign: str, style: str, step: int, what: str) -> Text:
        number = f"[step {step}]".ljust(self._step_cells)
        return Text.assemble((sign, style), (f" {number} ", "dim"), what)

    def _name(self, request_id: str) -> Text:
        index = self._ledger[request_id].index
        return Text(letter_of(index)) if self._look.is_plain else badge(index)

    def _ending(self, line: Text, text: str) -> Text:
        """The line with as much of a text as there is room for."""
        return line.append(self._look.quoted(text, self._look.width - line.cell_len), "dim")

    def admitted(self, step: int, request_id: str, slot: int, resumed: bool) -> Text:
        request = self._ledger[request_id].request
        line = self._head("++", "green", step, f"slot {slot} <- ").append_text(self._name(request_id))
        if resumed:
            return line.append(" again, all its tokens are fed anew")
        return self._ending(line.append(f" (cap {request.max_tokens}): "), request.prompt_text)

    def finished(self, step: int, finish: Finish) -> Text:
        story = self._ledger[finish.request_id]
        where = "never ran" if finish.slot is None else f"slot {finish.slot} done"
        line = self._head("--", "red", step, f"{where} ").append_text(self._name(finish.request_id))
        if finish.error:
            return line.append(f" ({finish.reason}): {finish.error}")
        count = finish.num_output_tokens
        line.append(f" ({finish.reason}, {count} token{'' if count == 1 else 's'}): ")
        return self._ending(line, self._ledger.output_text(story))

    def preempted(self, step: int, request_id: str, slot: int, lost: int) -> Text:
        line = self._head("!!", "yellow", step, f"slot {slot} taken from ")
        return line.append_text(self._name(request_id)).append(f", {lost} computed tokens lost")

    def barrier(self, step: int, slots: Sequence[int]) -> Text:
        line = self._head("==", "bold", step, "the wave is over: ")
        return line.append(
            f"slot{'s' * (len(slots) > 1)} {listed([str(slot) for slot in sorted(slots)])} free"
        )
