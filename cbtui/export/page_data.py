"""What the HTML page knows of a run, as plain lists: compact, for it travels inside the page.

Tokens stand once a request (its prompt and its outputs); a segment's tokens are a piece of that, wherever
they are what was fed. What changes little from step to step (who waits, who stands by) is written only where
it changes; 0 stands for `as before`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbtui.drawing.mask_words import layers_title, layers_words
from cbtui.export.run import RecordedRun
from cbtui.following.frame import Frame
from cbtui.looks.colours import shape_colour, text_on
from cbtui.looks.theme import CBTUI_DARK, CBTUI_LIGHT
from cbtui.looks.tokens import prose, visible
from cbtui.telling.naming import PALETTE
from cbtui.telling.provenance import mark
from cbtui.telling.step_story import step_sentences
from cbtui.telling.waiting import MOMENTARY, why
from cbtui.telling.words import ENDS
from engine.live.state import EngineState
from engine.step.mask import layer_kinds
from engine.stream.ledger import RequestStory
from engine.stream.metrics import MetricsSnapshot
from engine.stream.records import Provenance, Record, Segment, StepRecord

KINDS = ("prefill", "decode", "dead")
AS_BEFORE = 0
#: Records before a step that its sentences may look at.
_LOOKBACK = 8


def page_data(run: RecordedRun) -> dict[str, Any]:
    """Everything, ready for JSON. `page.js` reads it under the same names."""
    numbers = {story.request_id: place for place, story in enumerate(run.stories)}
    kinds = layer_kinds(run.header.layer_windows)
    teller = _Teller(run)
    steps = _Steps(run, numbers)
    return {
        "header": {
            "model": prose(run.header.model),
            "device": run.header.device,
            "dtype": run.header.dtype,
            "machine": prose(run.header.machine),
            "threads": run.header.num_threads,
            "engine": prose(run.header.provenance.engine) if run.header.provenance else "",
            "unsure": _unsure(run.header.provenance),
            "maskDoubt": mark(run.header.provenance, "mask"),
        },
        "modes": run.modes,
        "windows": [kind.window for kind in kinds],
        "layers": [[layers_title(kinds, n), layers_words(kinds, n)] for n in range(len(kinds))],
        "numbers": [step.step for step in run.steps],
        "colours": _colours(),
        "requests": [_request(run, story) for story in run.stories],
        "tokens": {
            token: [data.decode("latin-1"), visible(data)] for token, data in run.ledger.token_bytes.items()
        },
        "numSlots": run.num_slots,
        "lanes": [
            [one.slot, KINDS.index(one.kind), numbers[one.request_id], one.first, one.last]
            for one in run.stretches()
        ],
        "marks": [list(mark) for mark in run.marks()],
        "events": [place for place, step in enumerate(run.steps) if _is_eventful(step)],
        "steps": [steps.row(step) for step in run.steps],
        "stories": [teller.tell(step) for step in run.steps],
        "reasons": steps.reasons,
    }


def _unsure(provenance: Provenance | None) -> list[str]:
    """What of an observed server's records is not its own word, a sentence each."""
    if provenance is None:
        return []
    facts = [("inferred", *fact) for fact in provenance.inferred]
    facts += [("not told", *fact) for fact in provenance.absent]
    return [prose(f"{fact.replace('_', ' ')} {how}: {why}") for how, fact, why in facts]


def _colours() -> list[list[str]]:
    """A request colour's shade and the ink on it, in the light and in the dark theme."""
    grounds = [theme.background or "" for theme in (CBTUI_LIGHT, CBTUI_DARK)]
    shades = [[shape_colour(colour, ground) for ground in grounds] for colour in PALETTE]
    return [[light, text_on(light), dark, text_on(dark)] for light, dark in shades]


def _request(run: RecordedRun, story: RequestStory) -> dict[str, Any]:
    request, finish, badge = story.request, story.finish, run.badge(story.request_id)
    return {
        "id": prose(story.request_id),
        "letter": badge.letter,
        "colour": PALETTE.index(badge.colour),
        "label": prose(request.label),
        "prompt": prose(request.prompt_text),
        "output": prose(run.ledger.output_text(story)),
        "ids": [*request.prompt_token_ids, *story.output_token_ids],
        "numPrompt": len(request.prompt_token_ids),
        "maxTokens": request.max_tokens,
        "reason": ENDS.get(finish.reason, prose(finish.reason)) if finish else "",
        "error": prose(finish.error) if finish else "",
        "submitted": story.submitted_step,
        "first": story.first_step,
        "last": story.token_steps[-1] if story.token_steps else None,
        "queue": _ms(story.queue_s),
        "ttft": _ms(story.ttft_s),
        "tpot": _ms(story.tpot_s),
        "e2e": _ms(story.e2e_s),
        "preemptions": story.num_preemptions,
        "dead": story.dead_steps,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)


def _is_eventful(step: StepRecord) -> bool:
    events = step.events
    return bool(
        events.admitted or events.finished or events.preempted or events.changed or events.barrier
        or events.errors
    )  # fmt: skip


class _Steps:
    """Writes steps one after the other."""

    def __init__(self, run: RecordedRun, numbers: dict[str, int]) -> None:
        self._run = run
        self._numbers = numbers
        self._modes = {mode: place for place, mode in enumerate(run.modes)}
        #: Why requests wait, in words, and whether it says anything how long.
        self.reasons: list[list[Any]] = []
        self._places: dict[str, int] = {}
        self._waiting: list[list[int]] = []
        self._standing_by: list[list[int]] = []

    def row(self, step: StepRecord) -> list[Any]:
        """A step; `page.js` takes the fields in this order."""
        tokens = step.tokens
        held = sum(slot.held for slot in step.slots)
        waiting = [
            [
                self._numbers[one.request_id],
                self._reason(one, held, step.draining),
                self._run.ledger[one.request_id].waits_since(step.step),
            ]
            for one in step.waiting
        ]
        fed = {segment.slot for segment in step.segments}
        standing_by = [
            [one.slot, self._numbers[one.request_id], one.num_output_tokens]
            for one in step.slots
            if one.slot not in fed
        ]
        row = [
            self._modes[step.mode],
            int(step.layout != "ragged"),
            round(1000 * step.start_s, 3),
            round(1000 * (step.end_s - step.start_s), 3),
            *step.shape,
            step.num_keys,
            [tokens.prompt, tokens.decode, tokens.recomputed, tokens.dead, tokens.padding, tokens.rejected],
            step.max_num_seqs,
            step.max_num_batched_tokens,
            step.num_blocks - step.reserved_blocks - step.free_blocks,
            step.num_blocks - step.reserved_blocks,
            step.waiting_count,
            AS_BEFORE if waiting == self._waiting else waiting,
            AS_BEFORE if standing_by == self._standing_by else standing_by,
            [self._segment(segment) for segment in step.segments],
        ]
        self._waiting, self._standing_by = waiting, standing_by
        return row

    def _reason(self, waiting: Any, num_held: int, draining: int) -> int:
        words = why(self._run.badges, waiting, num_held=num_held, draining=draining)
        if words not in self._places:
            self._places[words] = len(self.reasons)
            self.reasons.append([words, waiting.reason not in MOMENTARY])
        return self._places[words]

    def _segment(self, segment: Segment) -> list[Any]:
        story = self._run.ledger[segment.request_id]
        begin, stop = segment.position, segment.position + segment.q_len
        known = (*story.request.prompt_token_ids, *story.output_token_ids) if segment.q_len > 1 else None
        is_known = (
            known[begin:stop] == segment.token_ids
            if known is not None
            else self._token_at(story, begin) == segment.token_ids[0]
        )
        row: list[Any] = [
            self._numbers[segment.request_id],
            segment.slot,
            KINDS.index(segment.kind),
            segment.row,
            segment.q_start,
            segment.q_len,
            segment.kv_start,
            segment.kv_len,
            begin,
            segment.num_prompt_left,
            segment.sampled,
            None if segment.logprob is None else round(segment.logprob, 4),
            [[token, round(logprob, 3)] for token, logprob in segment.top],
        ]
        drafts = segment.drafts
        if not is_known or drafts:
            row.append(None if is_known else list(segment.token_ids))
        if drafts:
            row.append([drafts.fed, drafts.accepted, drafts.used])
        return row

    @staticmethod
    def _token_at(story: RequestStory, place: int) -> int | None:
        prompt = story.request.prompt_token_ids
        if place < len(prompt):
            return prompt[place]
        place -= len(prompt)
        return story.output_token_ids[place] if place < len(story.output_token_ids) else None


class _Teller:
    """A step in the screen's own sentences: pieces of text, each with the request it names, if any."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._places = {id(record): place for place, record in enumerate(run.records)}
        self._letters = {run.badge(story.request_id).letter: place for place, story in enumerate(run.stories)}

    def tell(self, step: StepRecord) -> list[list[Any]]:
        place = self._places[id(step)]
        sentences = step_sentences(
            self._frame(step, self._run.records[max(0, place - _LOOKBACK) : place + 1])
        )
        return [[self._piece(text, style) for text, style in sentence if text] for sentence in sentences]

    def _piece(self, text: str, style: str) -> Any:
        if style.startswith("badge:"):
            return self._letters[text]
        return text

    def _frame(self, step: StepRecord, records: Sequence[Record]) -> Frame:
        return Frame(
            state=_NO_ENGINE,
            record=step,
            is_live=False,
            records=records,
            ledger=self._run.ledger,
            badges=self._run.badges,
            metrics=_NO_METRICS,
            runs=(),
            run=None,
        )


_NO_ENGINE, _NO_METRICS = EngineState(is_recording=True), MetricsSnapshot()
