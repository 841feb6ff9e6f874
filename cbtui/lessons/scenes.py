"""The six lessons. Every figure in the words that depends on the run is filled in from the run."""

from __future__ import annotations

from cbtui.lessons.lesson import Lesson, Stop, Until
from engine.config import EngineConfig
from engine.live.commands import PromptRequest
from engine.racing.race import LaneSpec

_FIVE = (
    ("The capital of France is", 3),
    ("Today the weather is so", 8),
    ("In the morning the old keeper", 16),
    ("Once upon a time", 4),
    ("Behind the garden stands", 5),
)
_SIX = (
    ("The capital of France is", 3),
    ("Today the weather is so", 8),
    ("In the morning the old keeper", 16),
    ("Once upon a time", 4),
    ("Behind the garden stands", 12),
    ("The history of the harbour began", 6),
)
_BESIDE = (
    ("The capital of France is", 2),
    ("Today the weather is so", 10),
    ("In the morning the old keeper", 12),
    ("Once upon a time in a land far away,", 6),
)
_STORY = (
    "At the mouth of the river stands an old lighthouse, and beside it a small house with a green door. "
    "The keeper wakes before the sun, climbs ninety steps and puts out the lamp. Then he writes down the "
    "weather: wind from the west, a calm sea, two ships on their way to the harbour. In summer his "
    "granddaughter counts them with him. She asks why the ships do not all leave at once, and he explains "
    "that the pilot boat can only guide three at a time. When one of them has reached the open sea, the "
    "pilot turns around and fetches the next. In the evening they cook soup with fish and potatoes, read "
    "the letters that came with the mail, and listen to the radio. Outside the light begins to turn"
)
_LONG = (("Today the weather is so", 22), ("The capital of France is", 4), (_STORY, 4))


def _lane(
    mode: str, requests: tuple[tuple[str, int], ...], *, slots: int = 3, budget: int = 2048, name: str = ""
) -> LaneSpec:
    config = EngineConfig(mode=mode, max_num_seqs=slots, max_num_batched_tokens=budget)
    entries = tuple(
        PromptRequest(prompt=text, max_tokens=cap, seed=0, ignore_eos=True) for text, cap in requests
    )
    return LaneSpec(name or mode, config, entries)


def _finished(*indices: int) -> Until:
    """The step that ends one of these requests."""
    ids = {f"r{index}" for index in indices}
    return lambda lane, record: any(finish.request_id in ids for finish in record.events.finished)


def _admitted(index: int) -> Until:
    return lambda lane, record: any(one.request_id == f"r{index}" for one in record.events.admitted)


def _step(number: int) -> Until:
    return lambda lane, record: record.step == number


LESSONS: tuple[Lesson, ...] = (
    Lesson(
        "The wave barrier",
        "What does static batching do with a slot whose request has ended?",
        "Static batching: three slots, five requests. A wants 3 tokens, B 8, C 16; D and E wait for a slot.",
        "run until A has its last token",
        (_lane("static", _FIVE),),
        ("slots", "waiting", "row", "timeline"),
        (
            Stop(
                _finished(0),
                "A has its three tokens and is done, but slot 0 is not given away: in static batching slots "
                "belong to the wave. From the next step on A's row is dead work (░): it goes through the "
                "model like any other, and its result is thrown away.",
                "run until B is done, too",
                "slots",
            ),
            Stop(
                _finished(1),
                "B is done, too, so two of three rows will be dead. D and E could run in those slots, and "
                "yet they wait: the wave is over only when C, the longest, has its 16th token.",
                "run to the barrier",
                "waiting",
            ),
            Stop(
                lambda lane, record: record.events.barrier,
                "C has ended, the barrier falls, and all three slots are free at once. Of {slot_steps} "
                "slot-steps {dead} were dead, and D and E have waited {steps} steps for slots that did "
                "nothing useful.",
                "let D and E run",
                "timeline",
            ),
            Stop(
                _finished(4),
                "The second wave is short, because both its requests are. All five took {steps} steps; the "
                "next lesson gives the same five to continuous batching.",
                "lesson 2",
                "timeline",
            ),
        ),
    ),
    Lesson(
        "A slot refilled",
        "What does continuous batching do with the same slot?",
        "The same five requests, now in continuous batching. The scheduler looks for free slots before every "
        "step, not once a wave.",
        "run until A has its last token",
        (_lane("continuous", _FIVE),),
        ("slots", "waiting", "row", "timeline"),
        (
            Stop(
                _finished(0),
                "A has its last token, and its slot is free at once: its KV cache is released, nothing is "
                "held. D is first in the queue.",
                "one step: who is in slot 0?",
                "slots",
            ),
            Stop(
                _admitted(3),
                "D. Its four prompt tokens went through the model in the very next step, beside one token "
                "each of B and C, and its first output token is there already. In the wave it waited 16 "
                "steps.",
                "run until D is done and E takes over",
                "slots",
            ),
            Stop(
                _admitted(4),
                "D needed four steps, and E has entered slot 0 right behind it. The queue is empty now, long "
                "before C is done.",
                "run to the end",
                "waiting",
            ),
            Stop(
                _finished(2),
                "All five took {steps} steps; in waves they took 21. No slot was held for a request that had "
                "ended: the {idle} idle slot-steps (·) stood empty only because nobody was left to wait.",
                "lesson 3",
                "timeline",
            ),
        ),
    ),
    Lesson(
        "Prefill beside decodes",
        "How do a long prompt and single tokens fit into one pass through the model?",
        "A prompt has many tokens, a running request adds one at a time. Continuous batching lays them all "
        "side by side in one row.",
        "the first step",
        (_lane("continuous", _BESIDE),),
        ("row", "mask", "slots"),
        (
            Stop(
                _step(1),
                "Step 1 is all prefill: three whole prompts, {tokens} tokens in one row. Of each prompt only "
                "the last token's result is used: there the first output token is sampled (→).",
                "one more step",
                "row",
            ),
            Stop(
                _step(2),
                "Now everybody decodes: one token each, {tokens} in all. All that came before is read from "
                "the KV cache (▒), not computed again.",
                "A has ended: let D in",
                "mask",
            ),
            Stop(
                _admitted(3),
                "D's {prompt} prompt tokens ride beside one token of B and one of C: {tokens} tokens, no "
                "padding. As a rectangle the step would be 3 rows × {prompt} columns = {rectangle} "
                "positions, {padding} of them padding.",
                "run to the end",
                "row",
            ),
            Stop(
                _finished(2),
                "For the model there is no prefill phase and no decode phase: a request feeds the tokens it "
                "has not computed yet, many at first, then one a step. That is why any mix of them is one "
                "step.",
                "lesson 4",
                "slots",
            ),
        ),
    ),
    Lesson(
        "Why the mask isolates",
        "A and B share a row. Can A's text change B's answer?",
        "Two engines run in turn. A's prompt differs between them, B's is the same: will B's answer move?",
        "the first step",
        (
            _lane(
                "continuous",
                (("The capital of France is", 8), ("Today the weather is so", 8)),
                slots=2,
                name="A asks about France",
            ),
            _lane(
                "continuous",
                (("My grandmother's secret recipe for onion soup needs", 8), ("Today the weather is so", 8)),
                slots=2,
                name="A asks for soup",
            ),
        ),
        ("slots", "mask"),
        (
            Stop(
                _step(1),
                "Look at the mask: B's rows are blocked (·) in all of A's columns, in both engines. A token "
                "may look back only at tokens of its own sequence, itself included.",
                "five more steps",
                "mask",
            ),
            Stop(
                _step(6),
                "A's answers have parted, as they must: its prompts differ. B's answer is the same in both, "
                "token for token.",
                "run to the end",
                "slots",
            ),
            Stop(
                lambda lane, record: lane == 1 and record.step == 8,
                "{same_b}: B cannot see A's keys, and its positions are counted in its own sequence, "
                "wherever it stands in the row. So packing gives every request the answer it would get "
                "alone.",
                "lesson 5",
                "slots",
            ),
        ),
    ),
    Lesson(
        "Six slots for six requests",
        "Is continuous batching always faster?",
        "Both modes, the same six requests, and this time six slots. Which one needs fewer steps?",
        "run until the first one ends",
        (_lane("static", _SIX, slots=6), _lane("continuous", _SIX, slots=6)),
        ("timeline", "slots"),
        (
            Stop(
                _finished(0),
                "A has ended. Static will hold its slot and continuous will not, but nobody waits for it: "
                "all six requests have a slot of their own.",
                "run to the end",
                "timeline",
            ),
            Stop(
                _finished(2),
                "A tie: {steps} steps each, as many as the longest request has tokens. Refilling slots gains "
                "steps only where requests wait for slots; here static merely computes {dead} dead positions "
                "more, which costs time, not steps.",
                "lesson 6",
                "timeline",
            ),
        ),
    ),
    Lesson(
        "A long prompt, in chunks",
        "Why does everybody's text stutter when a long prompt enters, and what helps?",
        "A writes steadily. Soon a prompt of {long} tokens (C) will enter beside it: whole above, cut to a "
        "budget of 32 tokens a step below.",
        "run until C enters",
        (
            _lane("continuous", _LONG, slots=2, budget=2048, name="continuous"),
            _lane("chunked", _LONG, slots=2, budget=32, name="chunked, budget 32"),
        ),
        ("gaps", "timeline"),
        (
            Stop(
                _admitted(2),
                "Above, all {long} tokens went through in one step, and A had to wait for all of them: "
                "{spike} for one token instead of {usual}. Below, C got only what A's token left of the "
                "budget, and A waited {spike_chunked}.",
                "run until C's prompt is in",
                "gaps",
            ),
            Stop(
                lambda lane, record: (
                    lane == 1 and any(s.request_id == "r2" and s.sampled is not None for s in record.segments)
                ),
                "C's prompt took one step above and {chunks} below; its first token came {first_whole} after "
                "the start above and {first_chunked} below. A's longest gap: {spike} above, {spike_chunked} "
                "below.",
                "run to the end",
                "gaps",
            ),
            Stop(
                _finished(0),
                "That is the trade: chunking gives every running request a steady pace, for a first token of "
                "the newcomer that comes a little later. The token budget of a step sets the balance.",
                "the list of lessons",
                "gaps",
            ),
        ),
    ),
)
