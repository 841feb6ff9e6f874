"""All modes to choose from, each with a sentence."""

from __future__ import annotations

from cbtui.screens.confirm import Answer, AskScreen
from engine.scheduling.modes import MODES
from engine.stream.records import Provenance


def ask_mode(current: str, whose: Provenance | None = None) -> AskScreen[str]:
    """The screen that asks for a mode; dismissed with its name.

    Args:
        whose: the server that is observed; None: this engine.
    """

    def words(name: str, summary: str) -> str:
        if whose is not None and (why := whose.why_not(name)):
            return f"not on {whose.engine}: {why}"
        return summary + (" (now)" if name == current else "")

    answers = [
        Answer((str(number),), str(number), name, name, words(name, mode.summary))
        for number, (name, mode) in enumerate(MODES.items(), 1)
    ]
    question = "Nothing is restarted; only what happens next changes."
    if whose is not None:
        question = f"{whose.engine} decides how it batches when it starts."
    return AskScreen("Mode", question, answers)
