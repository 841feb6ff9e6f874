"""`python -m engine.model_store`: prepare the default model now, with progress in plain lines."""

from __future__ import annotations

import sys
import time

from engine.model_store import resolve
from engine.runner import Loading, ModelLoadError


class Lines:
    """Prints a line when the stage changes and, on a terminal, redraws it while the stage goes on."""

    def __init__(self) -> None:
        self.stage = ""
        self.width = 0
        self.redraws = sys.stdout.isatty()

    def __call__(self, loading: Loading) -> None:
        """Show this much progress."""
        if loading.stage != self.stage:
            self.end_line()
            self.stage, self.width = loading.stage, 0
        elif not self.redraws:
            return
        text = f"  {loading.stage}{_amount(loading, self.redraws)}"
        sys.stdout.write(("\r" if self.width else "") + text.ljust(self.width))
        self.width = len(text)
        sys.stdout.flush()

    def end_line(self) -> None:
        """Go on to a new line, if one was begun."""
        if self.stage:
            sys.stdout.write("\n")


def _amount(loading: Loading, live: bool) -> str:
    if loading.unit == "bytes":
        done = f"{loading.done / 1e6:.0f} of " if live else ""
        return f"  {done}{loading.total / 1e6:.0f} MB"
    return f"  {loading.done} of {loading.total}" if loading.total else ""


def main() -> int:
    """Exit code 0 if the model is ready, 1 if it cannot be had, 130 if interrupted."""
    lines = Lines()
    begun = time.monotonic()
    try:
        model = resolve(None, lines)
    except ModelLoadError as error:
        lines.end_line()
        print(f"{error}\n  {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        lines.end_line()
        print("interrupted; the next start takes it up again", file=sys.stderr)
        return 130
    lines.end_line()
    print(f"  {model.name} is ready ({time.monotonic() - begun:.1f} s) in {model.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
