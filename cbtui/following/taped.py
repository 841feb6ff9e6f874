"""A link whose history is also written to a trace file, as it happens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cbtui.following.link import Link
from cbtui.options import LaunchOptions
from engine.live.channels import History, Mailbox
from engine.stream.records import Record
from engine.stream.trace_files import TraceRecorder, header_of


class TapedHistory(History):
    """Appends each record to a trace, too.

    Args:
        limit: records kept in memory; the trace has all.
        recorder: writes; it survives a full disk.
        mailbox: says which model and limits it is, by the time there are records.
    """

    def __init__(self, limit: int, recorder: TraceRecorder, mailbox: Mailbox) -> None:
        super().__init__(limit)
        self._recorder = recorder
        self._mailbox = mailbox

    def append(self, record: Record) -> None:
        if not self._recorder.has_begun:
            state = self._mailbox.latest()
            if state.model is not None:
                self._recorder.begin(header_of(state.model, state.config, state.provenance))
        self._recorder.write(record)
        super().append(record)

    @property
    def fault(self) -> str:
        """Why recording stopped early, in a sentence; empty: it did not."""
        return self._recorder.error


def tape_fault(link: Link) -> str:
    """Why what happens behind a link is no longer recorded; empty: it is, or nobody asked for it."""
    return link.history.fault if isinstance(link.history, TapedHistory) else ""


@contextmanager
def recorded(options: LaunchOptions) -> Iterator[Link]:
    """The link of a screen; where a trace is recorded, it is closed and its faults are said at the end.

    Raises:
        TraceError: the trace cannot be written.
    """
    if options.record is None:
        yield Link(history=History(options.history))
        return
    recorder = TraceRecorder(options.record)
    mailbox = Mailbox()
    try:
        yield Link(mailbox, TapedHistory(options.history, recorder, mailbox))
    finally:
        recorder.close()
        if recorder.error:
            print(f"cbtui: {recorder.error}", file=sys.stderr)
