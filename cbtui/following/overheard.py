"""A link whose records are also written to a trace or counted for a monitoring system, as they happen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from cbtui.following.link import Link
from cbtui.looks.tokens import prose
from cbtui.metrics_http import serving_metrics
from cbtui.options import LaunchOptions
from engine.live.channels import History, Mailbox
from engine.prometheus import MetricsServer
from engine.stream.records import Record
from engine.stream.trace_files import TraceRecorder, header_of

Listener = Callable[[Record], None]


class OverheardHistory(History):
    """Tells each record on, too.

    Args:
        limit: records kept in memory; listeners hear of all.
        listeners: called in the engine's thread: they must not take long.
        recorder: of the listener that writes a trace, if there is one.
    """

    def __init__(
        self, limit: int, listeners: Sequence[Listener], recorder: TraceRecorder | None = None
    ) -> None:
        super().__init__(limit)
        self._listeners = listeners
        self._recorder = recorder

    def append(self, record: Record) -> None:
        for tell in self._listeners:
            tell(record)
        super().append(record)

    @property
    def fault(self) -> str:
        """Why recording stopped early, in a sentence; empty: it did not."""
        return self._recorder.error if self._recorder else ""


def tape_fault(link: Link) -> str:
    """Why what happens behind a link is no longer recorded; empty: it is, or nobody asked for it."""
    return link.history.fault if isinstance(link.history, OverheardHistory) else ""


@contextmanager
def overheard(options: LaunchOptions) -> Iterator[Link]:
    """The link of a screen, with whatever listens as the options say.

    Raises:
        TraceError: the trace cannot be written.
        MetricsError: metrics cannot be served.
    """
    mailbox = Mailbox()
    with ExitStack() as stack:
        listeners: list[Listener] = []
        recorder: TraceRecorder | None = None
        if options.record is not None:
            recorder = TraceRecorder(options.record)
            stack.callback(_close, recorder)
            listeners.append(_taping(recorder, mailbox))
        if (server := stack.enter_context(serving_metrics(options.metrics))) is not None:
            listeners.append(_counting(server, mailbox))
        yield Link(mailbox, OverheardHistory(options.history, listeners, recorder))


def _taping(recorder: TraceRecorder, mailbox: Mailbox) -> Listener:
    """Writes records; the mailbox says which model and limits it is, by the time there are any."""

    def tape(record: Record) -> None:
        if not recorder.has_begun:
            state = mailbox.latest()
            if state.model is not None:
                recorder.begin(header_of(state.model, state.config, state.provenance))
        recorder.write(record)

    return tape


def _close(recorder: TraceRecorder) -> None:
    recorder.close()
    if recorder.error:
        print(f"cbtui: {prose(recorder.error)}", file=sys.stderr)


def _counting(server: MetricsServer, mailbox: Mailbox) -> Listener:
    """Hands records to the server, under the model's name."""
    readers: list[Listener] = []

    def count(record: Record) -> None:
        if not readers:
            model = mailbox.latest().model
            readers.append(server.reader(model.name if model else ""))
        readers[0](record)

    return count
