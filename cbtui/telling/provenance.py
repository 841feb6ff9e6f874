"""What of an observed server's steps is its own word, what is inferred and what it does not tell. Pure."""

from __future__ import annotations

from cbtui.looks.pieces import Line, say
from cbtui.looks.tokens import prose
from cbtui.telling.words import count
from engine.stream.records import Provenance, StepRecord

#: What a panel's title says of a fact that is inferred, by the fact's name.
_MARKS = {
    "mask": "derived from lengths",
    "row": "order inferred",
    "waiting": "counts only prompts sent from here",
}
#: The facts as people call them.
_NAMES = {
    "steps": "where a step ends",
    "times": "times",
    "row": "the packed row's order",
    "mask": "the mask",
    "requests": "who is in a step",
    "tokens": "how many tokens a step fed",
    "slots": "slots",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "logprobs": "probabilities",
    "drafts": "which drafts there were",
    "max_tokens": "the most tokens",
    "blocks": "block tables",
    "kv": "the KV pool",
    "budget": "the token budget",
    "waiting": "how many wait",
    "waiting_requests": "who waits",
    "finish": "how it ended",
    "mode": "the mode",
    "ranks": "what other ranks do",
}


def mark(provenance: Provenance | None, fact: str) -> str:
    """What a panel's title says of a fact; empty: it is the source's own word."""
    if provenance is None or not (provenance.why_inferred(fact) or provenance.why_absent(fact)):
        return ""
    return _MARKS.get(fact, "inferred")


def is_absent(provenance: Provenance | None, fact: str) -> bool:
    """Whether a fact is not told, so that what stands in its field means nothing."""
    return provenance is not None and bool(provenance.why_absent(fact))


def has_others(record: StepRecord) -> bool:
    """Whether a step had requests in it that are not known."""
    return "requests" in record.inferred


def is_uncounted(record: StepRecord) -> bool:
    """Whether nobody knows how many tokens a step fed: those of known requests, and more."""
    return "tokens" in record.inferred


def at_least(record: StepRecord, number: int) -> str:
    """A number of a step's tokens, as far as it is known: `3`, `3+`, `?`."""
    if not is_uncounted(record):
        return f"{number:,}"
    return f"{number:,}+" if number else "?"


def step_doubts(record: StepRecord) -> list[Line]:
    """What is inferred of this step in particular."""
    lines: list[Line] = []
    if record.missed:
        were = "was" if record.missed == 1 else "were"
        lines.append(say(f"{count(record.missed, 'step')} before it {were} ", ("missed", "warn"), "."))
    if "steps" in record.inferred:
        lines.append(say(("Rebuilt", "warn"), " from later counts: nobody saw this step by itself."))
    if has_others(record) and record.segments:
        lines.append(say("Requests of other clients were in it, too, which the server does not name."))
    if is_uncounted(record):
        lines.append(say("How many tokens it fed is ", ("not told", "warn"), "."))
    if "finish" in record.inferred:
        lines.append(say("How long the last request ran is ", ("inferred", "warn"), "."))
    return lines


def doubt_in_brief(record: StepRecord) -> str:
    """The same in a word or two."""
    parts = [f"{record.missed:,} missed before"] if record.missed else []
    return " · ".join([*parts, *(["rebuilt"] if "steps" in record.inferred else [])])


def inferred_in_brief(provenance: Provenance | None) -> str:
    """That some of a source's steps is inferred, in a word or two; empty: all is its own word."""
    return "inferred in part" if provenance is not None and provenance.inferred else ""


def source_sentences(provenance: Provenance | None) -> list[Line]:
    """Whose steps these are, what is inferred and what is not told, each with its reason."""
    if provenance is None:
        return []
    whose = f"These are steps of {prose(provenance.engine)}, followed from outside."
    lines = [say(whose)]
    for what, facts in (("Inferred: ", provenance.inferred), ("Not told: ", provenance.absent)):
        lines += [
            say((what, "warn"), f"{_NAMES.get(fact, prose(fact))} ({prose(why)}).") for fact, why in facts
        ]
    return lines
