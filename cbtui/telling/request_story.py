"""Everything about one request at a step, in lines: its states, its latencies, its KV blocks, its tokens.

Pure. The head is made anew at every frame; of the tokens only the lines asked for are made.
"""

from __future__ import annotations

from bisect import bisect_right

from cbtui.drawing.gaps import all_gaps
from cbtui.drawing.token_cells import percent, token_line
from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, clip_line, fit, line_width, wrap
from cbtui.looks.tokens import prose
from cbtui.telling.alone import verdict_line
from cbtui.telling.words import count, ended, seconds
from cbtui.telling.words import percent as share
from engine.stream.ledger import RequestStory, Turn
from engine.stream.metrics import percentile
from engine.stream.records import NO_BLOCK, Segment

#: Lines of the plot of gaps between tokens.
PLOT_HEIGHT = 4


class StoryLines:
    """The lines of a request at the shown step, for a width. Tokens come last, the newest first."""

    def __init__(self, frame: Frame, request_id: str, cells: int) -> None:
        self.frame = frame
        self.story = frame.ledger[request_id]
        self.colour = frame.badges[request_id].colour
        self.cells = cells
        step = frame.step if frame.record is not None else frame.state.step
        self.num_tokens = bisect_right(self.story.token_steps, step)
        self.turns = [turn for turn in self.story.turns if frame.is_live or turn.step <= step]
        self.head = [
            *self._states(),
            (),
            *self._latencies(),
            (),
            *self._blocks(),
            (),
            *self._drafts(),
            *self._alone(),
            _heading(f"Tokens {self.num_tokens:,} of {self.story.request.max_tokens:,}, newest first"),
        ]

    @property
    def count(self) -> int:
        return len(self.head) + self.num_tokens

    def line(self, y: int) -> Line:
        """A line by its number."""
        if y < len(self.head):
            return clip_line(self.head[y], self.cells)
        number = self.num_tokens - 1 - (y - len(self.head))
        return clip_line(self._token(number), self.cells) if number >= 0 else ()

    # -- states -------------------------------------------------------------------------------

    def _states(self) -> list[Line]:
        """Every turn with its step and time, the first token among them."""
        arrival = self.story.request.arrival_s
        told = [(turn.time_s, turn.step, _turn_words(self.story, turn)) for turn in self.turns]
        if self.num_tokens:
            first = (self.story.token_times[0], self.story.token_steps[0], "first token")
            place = next((n for n, one in enumerate(told) if one[:2] > first[:2]), len(told))
            # What ended it came with or after its last token, even at the very same moment.
            ends = [n for n, turn in enumerate(self.turns) if turn.kind in ("ended", "left")]
            told.insert(min([place, *ends]), first)
        steps = max((len(f"{step:,}") for _, step, _ in told), default=1)
        lines = [_heading("States"), _dim(f" {'step'.rjust(max(4, steps))}     after")]
        for time_s, step, words in told:
            after = seconds(max(0.0, time_s - arrival))
            head = f" {f'{step:,}'.rjust(max(4, steps))}  {after.rjust(8)}  "
            first_line, *rest = wrap(((words, ""),), max(8, self.cells - len(head)))
            lines.append(((head, "dim"), *first_line))
            lines += [((" " * len(head), ""), *line) for line in rest]
        return lines

    def _alone(self) -> list[Line]:
        """What came of running it again alone."""
        verified = self.story.verified
        if verified is None:
            return []
        words = wrap(verdict_line(verified, self.frame.ledger), max(8, self.cells - 2))
        return [_heading("Checked alone"), *(((" ", ""), *line) for line in words), ()]

    # -- latencies ----------------------------------------------------------------------------

    def _latencies(self) -> list[Line]:
        times = self.story.token_times[: self.num_tokens]
        gaps = self.story.gaps_s(self.num_tokens)
        arrival = self.story.request.arrival_s
        entered = next((turn.time_s for turn in self.turns if turn.kind == "entered"), None)
        ended = next((turn.time_s for turn in self.turns if turn.kind == "ended"), None)
        lines = [
            _heading("Latency"),
            _figures(
                ("queue", None if entered is None else entered - arrival),
                ("TTFT", times[0] - arrival if times else None),
                ("E2E", None if ended is None else ended - arrival),
            ),
            _figures(
                ("TPOT", (times[-1] - times[0]) / (len(times) - 1) if gaps else None),
                ("ITL p50", percentile(gaps, 0.5)),
                ("largest", max(gaps, default=None)),
            ),
        ]
        if len(gaps) > 1:
            each = "step's tokens" if self.story.num_drafts else f"token, 2 to {self.num_tokens:,}"
            lines.append(_dim(f" time before each {each}:"))
            lines += [((" ", ""), *line) for line in all_gaps(gaps, self.colour, self.cells - 2, PLOT_HEIGHT)]
        return lines

    # -- blocks -------------------------------------------------------------------------------

    def _segment(self) -> Segment | None:
        record = self.frame.record
        if record is None:
            return None
        return next((one for one in record.segments if one.request_id == self.story.request_id), None)

    def _blocks(self) -> list[Line]:
        """The block table it had in the shown step."""
        segment = self._segment()
        hits = self.story.num_cached_tokens
        lines = [_heading("KV blocks")]
        if segment is None or not segment.block_ids:
            whose = self.frame.state.provenance
            why = whose.why_absent("blocks") if whose else ""
            lines.append(_dim(f" {prose(why)}" if why else " none in this step"))
        else:
            size = self.frame.state.config.block_size
            left = segment.block_ids.count(NO_BLOCK)
            held = segment.position + segment.num_kept - left * size
            table = " ".join("–" if block == NO_BLOCK else str(block) for block in segment.block_ids)
            lines.append(
                (
                    (f" {count(len(segment.block_ids) - left, 'block')}", "strong"),
                    (f", {held:,} of {count((len(segment.block_ids) - left) * size, 'place')} filled", "dim"),
                )
            )
            lines += [((" ", ""), *line) for line in wrap(((table, ""),), max(8, self.cells - 2))[:4]]
        if hits:
            lines.append(_dim(f" {count(hits, 'token')} found in shared prefix blocks"))
        return lines

    def _drafts(self) -> list[Line]:
        """How many guesses at its next tokens were right."""
        fed, accepted = self.story.num_drafts, self.story.num_accepted
        if not fed:
            return []
        words = f" {count(fed, 'draft')} fed, {accepted:,} accepted ({share(accepted / fed)})"
        return [_heading("Drafts"), ((words, ""),), ()]

    # -- tokens -------------------------------------------------------------------------------

    def _token(self, number: int) -> Line:
        """One output token: its number, step, text, probability and the time before it."""
        story = self.story
        token = story.output_token_ids[number]
        logprob = story.logprobs[number]
        before = story.request.arrival_s if number == 0 else story.token_times[number - 1]
        text = token_line(self.frame.ledger.token_bytes.get(token), "")
        is_with = number > 0 and story.token_steps[number] == story.token_steps[number - 1]
        waited = "same step" if is_with else seconds(story.token_times[number] - before)
        room = max(6, self.cells - 36)
        text = clip_line(text, room)
        return (
            (f"{number + 1:>6,}", "dim"),
            (f"  step {story.token_steps[number]:<6,}", "dim"),
            *text,
            (" " * (room - line_width(text)), ""),
            (("" if logprob is None else percent(logprob)).rjust(6), ""),
            (waited.rjust(9), "dim"),
        )


def _turn_words(story: RequestStory, turn: Turn) -> str:
    """What happened, in words."""
    match turn.kind:
        case "arrived":
            return "arrived, " + count(len(story.request.prompt_token_ids), "prompt token")
        case "entered":
            waited = turn.step - 1 - story.submitted_step
            return f"entered slot {turn.slot}" + (
                f" after {count(waited, 'step')} of waiting" if waited else ""
            )
        case "back":
            return f"back, in slot {turn.slot}"
        case "gave way":
            return f"gave way: {count(turn.tokens, 'token')} to be fed again"
        case "left":
            return f"slot {turn.slot} free"
    finish = story.finish
    assert finish is not None
    words = ended(finish.reason)
    return f"{words}: {prose(finish.error)}" if finish.error else words


def _heading(text: str) -> Line:
    return ((text, "accent"),)


def _dim(text: str) -> Line:
    return ((text, "dim"),)


def _figures(*figures: tuple[str, float | None]) -> Line:
    """Three figures in columns."""
    line: Line = ((" ", ""),)
    for name, value in figures:
        line = (*line, (f"{name} ", "dim"), (fit(seconds(value), 15 - len(name)), "strong"))
    return line
