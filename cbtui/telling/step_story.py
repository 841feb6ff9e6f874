"""One step in full sentences, for a reader who has stopped to look: who entered, what went through the
model, what another layout or mode would have made of it, who ended. Pure.
"""

from __future__ import annotations

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, say
from cbtui.looks.tokens import prose
from cbtui.telling.provenance import source_sentences, step_doubts
from cbtui.telling.words import count, names
from engine.stream.drafts import Drafts
from engine.stream.records import END_NOT_TOLD, Finish, Release, Segment, StepRecord

#: Sequences with drafts that are told of one by one.
_DRAFTED_TOLD = 4
#: Up to so many sequences a sum is written out.
_SUMMANDS = 6
#: Why a request gave its KV back.
_LACKED = {
    "slots": "There were more requests than slots: ",
    "kv_blocks": "There were not enough free KV blocks: ",
    "reset": "The server was told to empty its KV cache: ",
}


def step_sentences(frame: Frame) -> list[Line]:
    """The shown step, a sentence or two a line."""
    record = frame.record
    if record is None:
        return []
    teller = _Teller(frame, record)
    lines = [
        *teller.failed(),
        *teller.switched(),
        *teller.gave_way(),
        *teller.entered(),
        *teller.ended(),
        *teller.dead(),
        *teller.drained(),
        *teller.fed(),
        *teller.shape(),
        *step_doubts(record),
        *source_sentences(frame.state.provenance),
    ]
    return [line for line in lines if line]


def lasting_sentences(frame: Frame) -> list[Line]:
    """What stays true for many steps and can be read while they run: dead slots, and who they keep out."""
    if frame.record is None:
        return []
    teller = _Teller(frame, frame.record)
    return [*teller.dead(), *teller.drained()]


def dead_in_brief(frame: Frame) -> Line:
    """How many slots are dead and who could be in one; nothing if none is."""
    if frame.record is None:
        return ()
    return _Teller(frame, frame.record).dead_in_brief()


class _Teller:
    """Sentences about one record."""

    def __init__(self, frame: Frame, record: StepRecord) -> None:
        self.frame = frame
        self.record = record
        self.ledger = frame.ledger
        segments = record.segments
        self.prefills = [one for one in segments if one.kind == "prefill"]
        self.decodes = [one for one in segments if one.kind == "decode"]
        self.dead_ones = [one for one in segments if one.kind == "dead"]
        #: Slots are held by static batching; else by a server that schedules ahead of its tokens.
        self.is_in_wave = record.mode == "static"
        self.drafted = [(one, one.drafts) for one in segments if one.drafts]

    def _name(self, *request_ids: str) -> Line:
        return names(self.frame.badges, request_ids)

    # -- who came -----------------------------------------------------------------------------

    def switched(self) -> list[Line]:
        lines = []
        for change in self.record.events.changed:
            if change.name == "mode":
                lines.append(
                    say("The mode changed from ", change.before, " to ", (change.after, "strong"), ".")
                )
            elif change.name == "max_num_seqs":
                lines.append(say(f"The number of slots changed from {change.before} to {change.after}."))
        return lines

    def entered(self) -> list[Line]:
        fresh = [one for one in self.record.events.admitted if not one.resumed]
        back = [one for one in self.record.events.admitted if one.resumed]
        lines = []
        if fresh and self.record.mode == "static":
            who = self._name(*(one.request_id for one in fresh))
            if len(fresh) > 1:
                lines.append(
                    say(
                        "A wave begins: ",
                        who,
                        " entered. Nobody else may enter before the last of them ends.",
                    )
                )
            else:
                lines.append(say("A wave begins: ", who, " entered. Nobody else may enter before it ends."))
        elif len(fresh) == 1:
            lines.append(self._entered_alone(fresh[0].request_id, fresh[0].slot))
        elif fresh:
            who = self._name(*(one.request_id for one in fresh))
            lines.append(say(who, " entered free slots."))
        for one in back:
            lines.append(
                say(
                    self._name(one.request_id),
                    f" is back, in slot {one.slot}: its prompt and what it had written are fed again.",
                )
            )
        return lines

    def _entered_alone(self, request_id: str, slot: int) -> Line:
        left = next((one for one in self._released_before() if one.slot == slot), None)
        if left is not None:
            return say(
                self._name(left.request_id),
                f" ended in step {self.record.step - 1} and freed slot {slot}; ",
                self._name(request_id),
                " entered it at once.",
            )
        return say(self._name(request_id), f" entered slot {slot}, which was free.")

    def _released_before(self) -> tuple[Release, ...]:
        """Slots freed by the step before (and between that and this one)."""
        freed: tuple[Release, ...] = ()
        for record in reversed(self.frame.records):
            if record.step < self.record.step - 1:
                break
            if record.step == self.record.step - 1:
                freed += record.events.released
        return freed

    # -- what went through the model ----------------------------------------------------------

    def failed(self) -> list[Line]:
        if not self.record.failed:
            return []
        why = self.record.events.errors[-1] if self.record.events.errors else "no cause was given"
        return [say(("The forward pass failed", "warn"), f": {prose(why).rstrip('.')}. Its requests ended.")]

    def fed(self) -> list[Line]:
        lines = []
        decoding = self._name(*(one.request_id for one in self.decodes))
        if self.prefills and self.decodes:
            rides = "rides" if len(self.prefills) == 1 else "ride"
            beside = f" {rides} in the same pass as the next token{'s' * bool(self.drafted)} of "
            lines.append(say(*self._prompts(), beside, decoding, self._sum()))
        elif self.prefills:
            verb = "goes" if len(self.prefills) == 1 else "go"
            lines.append(say(*self._prompts(), f" {verb} through the model in one pass", self._sum()))
        elif len(self.decodes) == 1 and self.decodes[0].drafts is None:
            text = " feeds the token it chose last, looks back at its cached tokens, and chooses the next"
            lines.append(say(decoding, text, self._sum()))
        elif len(self.decodes) > 1:
            is_all = len(self.drafted) == len(self.decodes)
            what = "token they chose last and drafts" if is_all else "token they chose last"
            text = f" each feed the {what}, look back at their cached tokens, and choose the next"
            lines.append(say(decoding, text, self._sum()))
        lines += self._drafts()
        for one in self.prefills:
            if one.num_prompt_left:
                lines.append(
                    say(
                        "Only ",
                        f"{one.q_len:,} prompt tokens of ",
                        self._name(one.request_id),
                        f" fit into this step's budget of {self.record.max_num_batched_tokens:,}; "
                        f"{one.num_prompt_left:,} follow.",
                    )
                )
        return lines

    def _drafts(self) -> list[Line]:
        """`A was fed its last token and 3 drafts: 2 were right, so it gained 3 tokens.`"""
        lines = []
        for one, drafts in self.drafted[:_DRAFTED_TOLD]:
            own = "its last token" if one.kind == "decode" else count(one.q_len - one.num_drafts, "token")
            was_fed = f" was fed {own} and {count(drafts.fed, 'draft')}: "
            lines.append(say(self._name(one.request_id), was_fed, _right(drafts), _gained(one, drafts)))
        everyone = [drafts for _, drafts in self.drafted]
        if len(everyone) > _DRAFTED_TOLD:
            fed, accepted = sum(one.fed for one in everyone), sum(one.accepted for one in everyone)
            lines.append(say(f"In all, {accepted:,} of {count(fed, 'draft')} were right."))
        if any(one.rejected for one in everyone):
            lines.append(say("Keys of rejected drafts are given up: the next step writes over them."))
        return lines

    def _prompts(self) -> list[Line | str]:
        """`D's 10-token prompt`, `the prompts of A, B and C (5, 5 and 7 tokens)`."""
        if len(self.prefills) == 1:
            one = self.prefills[0]
            what = "prompt" if not self._is_again(one) else "stretch of tokens"
            return [self._name(one.request_id), f"'s {one.q_len - one.num_drafts:,}-token {what}"]
        who = self._name(*(one.request_id for one in self.prefills))
        return ["The prompts of ", who]

    def _is_again(self, segment: Segment) -> bool:
        return segment.position + segment.q_len - segment.num_drafts > len(
            self.ledger[segment.request_id].request.prompt_token_ids
        )

    def _sum(self) -> Line:
        """`: T = 10 + 1 + 1 = 12.` for a packed row, a full stop for a rectangle."""
        lengths = [one.q_len for one in self.record.segments]
        if self.record.layout != "ragged" or len(lengths) < 2:
            return (((".", "")),)
        if len(lengths) <= _SUMMANDS:
            return say(": T = ", " + ".join(f"{n:,}" for n in lengths), f" = {sum(lengths):,} tokens.")
        return say(f": T = {sum(lengths):,} tokens.")

    # -- the shape ----------------------------------------------------------------------------

    def shape(self) -> list[Line]:
        """What the tensor's shape costs, and what the other layout would have cost."""
        record = self.record
        rows = len(record.segments)
        longest = max((one.q_len for one in record.segments), default=0)
        fed = sum(one.q_len for one in record.segments)
        area = rows * longest
        counts = record.tokens
        if fed != counts.total - counts.padding:
            return []  # not all of its requests are known
        if record.layout == "ragged":
            if rows < 2:
                return []
            waste = f"{area - fed:,} of them padding" if area > fed else "no padding"
            return [say(f"As a rectangle: {rows} × {longest:,} = {count(area, 'position')}, ", waste, ".")]
        parts = [f"{fed - record.tokens.dead:,} useful"]
        if record.tokens.padding:
            parts.append(f"{record.tokens.padding:,} padding")
        if record.tokens.dead:
            parts.append(f"{record.tokens.dead:,} dead")
        if len(parts) == 1:
            return []
        line = say(f"The rectangle is {rows} × {longest:,} = {count(area, 'position')}: {', '.join(parts)}.")
        if record.tokens.padding:
            line = say(line, f" One packed row would need {fed:,}.")
        return [line]

    # -- dead slots ---------------------------------------------------------------------------

    def dead(self) -> list[Line]:
        """Held slots, why they are dead, and who would have been in them."""
        if not self.dead_ones:
            return []
        held = sorted(self.dead_ones, key=lambda one: self._end(one.request_id))
        first = held[0]
        end = self._end(first.request_id)
        until = (
            "yet its row goes through the model until the wave ends."
            if self.is_in_wave
            else "when its next row had been scheduled already: that one's token is thrown away."
        )
        lines = [
            say(
                (f"Slot {first.slot} is dead", "warn"),
                ": ",
                self._name(first.request_id),
                f" ended at step {end:,}, {until}",
            )
        ]
        if (successor := self._successor()) is not None:
            _, head, start = successor
            lines.append(
                say("In continuous mode ", self._name(head), f" would have entered it at step {start:,}.")
            )
        if len(held) > 1:
            waiting = self.record.waiting_count
            waits = (
                f" while {count(waiting, 'request')} {'waits' if waiting == 1 else 'wait'}" if waiting else ""
            )
            lines.append(
                say(f"In all, {len(held)} of {self.record.max_num_seqs} slots do no useful work{waits}.")
            )
        return lines

    def dead_in_brief(self) -> Line:
        """`2 of 3 slots are dead; in continuous mode D would be in slot 0 since step 7`."""
        if not self.dead_ones:
            return ()
        number, slots = len(self.dead_ones), self.record.max_num_seqs
        line = say(
            (f"{number} of {slots} slots", "warn"), (" is dead" if number == 1 else " are dead", "warn")
        )
        successor = self._successor()
        if successor is None:
            return line
        slot, head, start = successor
        return say(
            line, "; in continuous mode ", self._name(head), f" would be in slot {slot} since step {start:,}"
        )

    def _successor(self) -> tuple[int, str, int] | None:
        """The slot that was dead first, and who would have entered it at which step; None: nobody waits.

        Only the first slot's successor is certain: later ones depend on how long that one runs.
        """
        if not self.dead_ones or not self.record.waiting or not self.is_in_wave:
            return None
        first = min(self.dead_ones, key=lambda one: self._end(one.request_id))
        head = self.record.waiting[0].request_id
        start = max(self._end(first.request_id), self.ledger[head].submitted_step) + 1
        return (first.slot, head, start) if start <= self.record.step else None

    def _end(self, request_id: str) -> int:
        return self.ledger[request_id].finish_step or 0

    # -- who went -----------------------------------------------------------------------------

    def gave_way(self) -> list[Line]:
        return [
            say(
                _LACKED[one.reason],
                self._name(one.request_id),
                f" gave its own back and waits again; {count(one.lost_tokens, 'token')} must be fed anew.",
            )
            for one in self.record.events.preempted
        ]

    def _how_ended(self, finish: Finish) -> str:
        """Of an end that a step made; empty: this is another."""
        tokens = count(finish.num_output_tokens, "token")
        match finish.reason:
            case "length":
                most = self.ledger[finish.request_id].request.max_tokens
                return f"made its last token ({finish.num_output_tokens:,} of {most:,})"
            case "stop":
                return f"chose to stop after {tokens}"
            case reason if reason == END_NOT_TOLD:
                return f"ended after {tokens}, and the server does not tell why,"
        return ""

    def ended(self) -> list[Line]:
        events = self.record.events
        freed = {one.request_id for one in events.released}
        lines = []
        for finish in events.finished:
            how = self._how_ended(finish)
            if finish.slot is None or not how:
                continue
            line = say(self._name(finish.request_id), f" {how}")
            if events.barrier:
                line = say(line, ".")
            elif finish.request_id in freed:
                line = say(line, f" and frees slot {finish.slot}.")
            else:
                until = "until the wave ends" if self.is_in_wave else "for a row that was scheduled before"
                line = say(line, f"; slot {finish.slot} ", ("stays held", "warn"), f" {until}.")
            lines.append(line)
        if events.barrier:
            lines.append(self._barrier())
        return lines

    def _barrier(self) -> Line:
        """The end of a wave, and how long its early ones have been ready."""
        record = self.record
        early = [one for one in record.events.released if self._end(one.request_id) < record.step]
        line = say(("The wave is over", "strong"), ": all its slots are free again.")
        if early:
            first = min(early, key=lambda one: self._end(one.request_id))
            end = self._end(first.request_id)
            line = say(
                line,
                " ",
                self._name(first.request_id),
                f" had been ready since step {end:,}, {count(record.step - end, 'step')} ago.",
            )
        return line

    def drained(self) -> list[Line]:
        left = self.record.draining
        if not left or not self.record.waiting_count:
            return []
        return [
            say(
                f"Static batching starts a wave of its own only when {count(left, 'running request')} "
                f"{'has' if left == 1 else 'have'} ended; until then nobody enters."
            )
        ]


def _right(drafts: Drafts) -> str:
    """How many drafts were right: `none was right`, `2 were right`, `all 3 were right`."""
    if not drafts.accepted:
        return "it was not right" if drafts.fed == 1 else "none was right"
    if drafts.accepted == drafts.fed:
        return "it was right" if drafts.fed == 1 else f"all {drafts.fed} were right"
    return f"{drafts.accepted} {'was' if drafts.accepted == 1 else 'were'} right"


def _gained(segment: Segment, drafts: Drafts) -> str:
    """What that gave: a token more than drafts were right, but where it ended before."""
    made = len(segment.outputs)
    if not made:
        return ", but it had to give way and gained nothing."
    gained = f"gained {count(made, 'token')}"
    return f", but it {gained} and ended there." if segment.sampled is None else f", so it {gained}."
