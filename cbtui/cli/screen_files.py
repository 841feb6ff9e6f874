"""The requests a screen begins with: read before it opens, their bad lines said once it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cbtui.cli.sources import Workload
    from engine.live.commands import PromptRequest


def screen_workload(
    file: str | None, max_tokens: int | None, limit: int | None, asked: PromptRequest | None = None
) -> Workload | None:
    """The requests of a file for a screen; None: there is no file.

    Raises:
        CommandError, WorkloadError: there is nothing in it to run.
    """
    from cbtui.cli.sources import FileOptions, runnable, take_keys_from_terminal, workload_of
    from cbtui.options import DEFAULT_MAX_TOKENS

    if file is None:
        return None
    options = FileOptions(source=file, max_tokens=max_tokens, limit=limit)
    workload = runnable(workload_of(options, DEFAULT_MAX_TOKENS, asked))
    if file == "-":
        take_keys_from_terminal()
    return workload


def with_bad(code: int, workload: Workload | None) -> int:
    """Once the screen is closed: say the bad lines of its file, which the screen would have covered."""
    from cbtui.cli.sources import Complaints

    if workload is None or not workload.bad:
        return code
    Complaints(workload.name).add_bad(workload.bad)
    return code or 1
