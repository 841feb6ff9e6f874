"""`cbtui settings`: where the settings file is, and all that may stand in it, commented out."""

from __future__ import annotations

import typer


def settings() -> int:
    """Where your settings file is, and what may stand in it.

    What is printed is a file to begin with.

    Exit code 2, and the reason in one sentence, where the file there is cannot be used.
    """
    from cbtui.looks.tokens import prose
    from cbtui.settings import VARIABLE, read_settings, settings_path

    path = settings_path()
    if path is None:
        typer.echo(f"# {VARIABLE} is empty: no settings file is read.")
    else:
        read_settings(path)
        state = "in use" if path.exists() else "not there yet"
        typer.echo(f"# {prose(str(path))}  ({state})")
    typer.echo(template())
    return 0


def template() -> str:
    """A commented file with every setting at its default; each line works once its `#` is gone."""
    from cbtui.keymap import remappable
    from cbtui.options import DEFAULT_HISTORY, DEFAULT_MAX_TOKENS, DEFAULT_SPEED, DEFAULT_STORIES
    from cbtui.settings import THEME_NAMES
    from engine.config import EngineConfig
    from engine.scheduling.modes import MODES

    config = EngineConfig()
    lines = [
        "# Take the # away before what you want to change. Options of the command line go before this file.",
        "",
        f'# theme = "dark"            # {", ".join(THEME_NAMES)}',
        f'# speed = {DEFAULT_SPEED:g}                 # steps a second at most, or "max"',
        f"# slots = {config.max_num_seqs}                 # requests that run at once",
        f"# budget = {config.max_num_batched_tokens}             # token positions in one step at most",
        f'# mode = "{config.mode}"       # {", ".join(MODES)}',
        f"# max_tokens = {DEFAULT_MAX_TOKENS}           # output tokens of a typed prompt at most",
        "# chat = true              # prompts go through the model's chat template",
        f"# history = {DEFAULT_HISTORY}          # steps kept to go back to",
        f"# stories = {DEFAULT_STORIES}           # finished requests kept, with their texts and times",
        "",
        "# Your own keys: several with commas, as `f5`, `ctrl+s`, `space`, `?`.",
        "# [keys]",
    ]
    for key in remappable().values():
        about = f"  # {key.tooltip}" if key.tooltip else ""
        lines.append(f'# "{key.id}" = "{key.keys}"{about}')
    return "\n".join(lines)
