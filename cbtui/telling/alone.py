"""What came of checking a request alone, in words and as a mark. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cbtui.following.frame import Frame
from cbtui.looks.pieces import Line, Piece
from cbtui.looks.tokens import prose
from engine.stream.ledger import Ledger
from engine.stream.records import NEAR_TIE, AloneVerdict, Verification

#: A sign a verdict, and its style.
MARKS: dict[AloneVerdict, Piece] = {
    "same": ("✓", "strong"),
    "near_tie": ("≈", "strong"),
    "half_precision": ("≈", "dim"),
    "differs": ("✗", "warn"),
    "unchecked": ("?", "dim"),
}


#: Verdicts as they are counted in a sentence, the gravest first.
COUNTED: dict[AloneVerdict, str] = {
    "differs": "DIFFER",
    "half_precision": "other in half precision",
    "near_tie": "the same but for a near tie",
    "unchecked": "not checked",
    "same": "the same",
}


def is_told(frame: Frame) -> bool:
    """Whether verdicts have a place on the screen: they are being made, or the records have some."""
    return frame.state.verifying is not None or any(
        frame.ledger[one].verified for one in frame.ledger.finished[-1:]
    )


def mark(verification: Verification | None) -> Piece:
    """One cell: the verdict's sign, empty where there is none."""
    return (" ", "") if verification is None else MARKS[verification.verdict]


def tally(verifications: Iterable[Verification | None]) -> str:
    """How many verdicts there are of each sign: `✓ 5 ✗ 1`."""
    counts = Counter(MARKS[one.verdict][0] for one in verifications if one is not None)
    signs = dict.fromkeys(sign for sign, _ in MARKS.values())
    return " ".join(f"{sign} {counts[sign]:,}" for sign in signs if counts[sign])


def counted(verifications: Iterable[Verification]) -> str:
    """The same in words: `1 DIFFER, 5 the same`."""
    counts = Counter(one.verdict for one in verifications)
    return ", ".join(f"{counts[verdict]:,} {words}" for verdict, words in COUNTED.items() if counts[verdict])


def short_words(verification: Verification) -> str:
    """The verdict in half a line; a place is an output token, counted from 1, and its step."""
    match verification.verdict:
        case "same":
            return "alone the same"
        case "unchecked":
            return "not checked alone"
    where = f"output {_place(verification)}, step {verification.step or 0:,}, gap {_gap(verification)}"
    tie = "near tie" if verification.verdict == "near_tie" else "differs"
    return f"alone: {tie} at {where}"


def verdict_words(verification: Verification, ledger: Ledger) -> str:
    """The verdict in a sentence or two."""
    count = verification.num_tokens
    all_of = f"all {count:,} output tokens are" if count > 1 else "its output token is"
    match verification.verdict:
        case "same":
            return f"{all_of} what the model gives alone; log probabilities within {verification.drift:.1g}"
        case "unchecked":
            return f"not checked: {prose(verification.error)}"
    served, alone = (_token(ledger, token) for token in (verification.token_id, verification.alone_token_id))
    where = f"output {_place(verification)} (step {verification.step or 0:,})"
    if verification.token_id == verification.alone_token_id:
        return f"at {where} the token is the same, but its log probability is {verification.drift:.2g} away"
    text = f"at {where} {served} was served, alone it is {alone}; logit gap {_gap(verification)}"
    if verification.verdict == "near_tie":
        return f"{text}: a near tie (below {NEAR_TIE:g}), which rounding may decide either way"
    if verification.verdict == "half_precision":
        return f"{text}; in half precision a batch can do that, so nothing is claimed"
    return text


def verdict_line(verification: Verification, ledger: Ledger) -> Line:
    """The mark and the sentence."""
    sign, style = mark(verification)
    return ((sign + " ", style), (verdict_words(verification, ledger), ""))


def _place(verification: Verification) -> str:
    return f"{(verification.output_index or 0) + 1:,}"


def _gap(verification: Verification) -> str:
    return "unknown" if verification.gap is None else f"{verification.gap:.2g}"


def _token(ledger: Ledger, token_id: int | None) -> str:
    if token_id is None:
        return "nothing"
    text = ledger.decode([token_id])
    return f"“{prose(text)}” ({token_id})" if text else f"token {token_id}"
