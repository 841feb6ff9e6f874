"""The box in the middle while there is nothing to show yet: what to do, what is loading, what went wrong."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from cbtui.looks.tokens import clip, prose
from cbtui.telling.words import size as progress
from engine.live.state import EngineState, Failure
from engine.runner import Loading
from engine.stream.records import Provenance

#: Marks every panel that shows the recording.
RECORDED = "RECORDED"
#: Cells of a line that another program printed.
SAID_CELLS = 68
#: Cells of the progress bar.
BAR_CELLS = 40


def welcome() -> Content:
    """What to do first."""
    return Content.assemble(
        ("Type a prompt", "bold"),
        ", or ",
        ("↑", "$accent bold"),
        " for an example; ",
        ("Enter", "$accent bold"),
        " sends it.\nThen another, while the first one runs.\n",
        ("Esc d", "$accent bold"),
        ": the tutorial's six requests\n",
        ("Esc l", "$accent bold"),
        ": lessons   ",
        ("F1", "$accent bold"),
        ": keys",
    )


def following(provenance: Provenance, no_prompts: str) -> Content:
    """What to do first where a server is followed.

    Args:
        no_prompts: why it can be sent none from here; empty: it can.
    """
    parts: list[Content | str | tuple[str, str]] = [
        ("Following ", "bold"),
        (prose(provenance.engine), "bold"),
        "\n",
        prose(provenance.address),
        "\nIt stays as it is. Steps are drawn as its clients ask.\n",
    ]
    if not no_prompts:
        parts += [("Type a prompt", "bold"), ": it is sent as any client sends one.\n"]
    parts += [("Esc space", "$accent bold"), ": hold its steps back, and read what is inferred.\n"]
    if no_prompts:
        parts += [f"{_capital(no_prompts)}."]
    else:
        parts += [("Esc d", "$accent bold"), ": the tutorial's six requests."]
    return Content.assemble(*parts)


def loading_text(loading: Loading | None, *, is_paused: bool = False) -> Content:
    """Stage, progress and what is next."""
    waits = "You can type already: prompts wait for the model."
    if is_paused:
        waits += "\n‖ Paused: once it is there they wait for space."
    if loading is None:
        return Content.assemble(("Loading the model", "bold"), "\n", (waits, "$foreground 55%"))
    parts: list[Content | str | tuple[str, str]] = [(_capital(loading.stage), "bold")]
    if loading.total:
        done = min(BAR_CELLS, BAR_CELLS * loading.done // loading.total)
        parts += [
            "\n",
            ("━" * done, "$accent"),
            ("━" * (BAR_CELLS - done), "$foreground 20%"),
            f"  {progress(loading.done, loading.total, loading.unit)}",
        ]
    elif loading.done:
        parts += [f"  {progress(loading.done, 0, loading.unit)}"]
    if loading.then:
        parts += ["\n", ("then: ", "$foreground 55%"), loading.then]
    for line in loading.said:
        parts += ["\n", (clip(line, SAID_CELLS), "$foreground 55%")]
    parts += ["\n", (waits, "$foreground 55%")]
    return Content.assemble(*parts)


def over_recording(loading: Loading | None) -> Content:
    """That what plays is a recording, and what loads meanwhile; short, so that it hides little."""
    stage = "Loading the model" if loading is None else _capital(loading.stage)
    if loading is not None and loading.done:
        stage += f" {progress(loading.done, loading.total, loading.unit)}"
    return Content.assemble(
        (f" {RECORDED} ", "$warning bold reverse"),
        " the tutorial's six requests. Any key ends it.\n",
        (stage, "bold"),
        (" · prompts you type wait for it", "$foreground 55%"),
    )


def failure_text(failure: Failure) -> Content:
    """Stage, cause, a command that may help, and the keys."""
    if failure.retry_s is not None:
        return _lost_text(failure, failure.retry_s)
    parts: list[Content | str | tuple[str, str]] = [
        (f"The model cannot run: {failure.stage}", "$text-error bold"),
        "\n",
        _capital(failure.message),
    ]
    if failure.hint:
        parts += ["\n\n", ("This may help:\n", "$foreground 55%"), ("  " + failure.hint, "bold")]
    parts += ["\n\n", ("Esc R", "$accent bold"), " try again"]
    if failure.hint:
        parts += ["   ", ("Esc y", "$accent bold"), " copy the command"]
    parts += [("   prompts stay queued", "$foreground 55%")]
    return Content.assemble(*parts)


def stuck_text(words: str) -> Content:
    """The engine's thread does not come back: from what, and what there is to do."""
    return Content.assemble(
        ("The engine stands still", "$text-error bold"),
        "\n",
        prose(_capital(words)),
        ".\nNothing goes on before it does.\n\n",
        ("ctrl+c ctrl+c", "$accent bold"),
        " quits; unfinished requests are lost",
    )


def _lost_text(failure: Failure, retry_s: float) -> Content:
    """A server that does not answer: why, and when it is tried again."""
    when = f"in {retry_s:.0f} s" if retry_s >= 1 else "now"
    return Content.assemble(
        (failure.title, "$text-error bold"),
        "\n",
        prose(failure.message),
        f"\n\nIt is tried again {when}, then after longer waits.\n",
        ("Esc R", "$accent bold"),
        " tries now",
        ("   what was seen stays", "$foreground 55%"),
    )


def _capital(text: str) -> str:
    """As a sentence begins, unless it begins with somebody's name for something."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def centre_text(state: EngineState, is_untouched: bool) -> Content | None:
    """What the middle says; None: nothing, the panels have it.

    Args:
        is_untouched: nothing was asked of the engine yet.
    """
    if state.stuck:
        return stuck_text(state.stuck)
    if state.failure is not None:
        return failure_text(state.failure)
    if state.status == "loading":
        return loading_text(state.loading, is_paused=state.paused)
    if is_untouched and state.provenance is not None and state.is_attached:
        return following(state.provenance, state.why_refused("prompts"))
    return welcome() if is_untouched else None


class Centre(Static):
    """Shown over the mask."""

    def say(self, text: Content, *, is_failure: bool) -> None:
        """Show a text; nothing happens when it is the same."""
        self.set_class(is_failure, "-failure")
        if text != self.content:
            self.update(text, layout=False)


def lines_of(text: Content, width: int) -> int:
    """Lines a text takes in a box of that outer width, its border and padding included."""
    return text.get_height({}, max(1, width - 6)) + 4
