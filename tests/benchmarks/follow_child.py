"""Follows a server as `cbtui attach` does, without a screen, until its standard input is closed.

    python -m tests.benchmarks.follow_child ADDRESS

Prints `following` once it is attached, and then for every line it is given how many steps it has seen and
what processor seconds it has taken, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from engine.attach.address import Key, read_address
from engine.attach.loop import AttachLoop
from engine.attach.opening import source_of
from engine.live.channels import CommandQueue, History, Mailbox
from engine.live.commands import Close
from engine.stream.records import StepRecord

PATIENCE_S = 30.0


def main() -> None:
    """Attach, say so, say what was seen as often as asked."""
    commands, mailbox, history = CommandQueue(), Mailbox(), History(100_000)
    source = source_of(read_address(sys.argv[1]), Key())
    loop = AttachLoop(source, commands=commands, mailbox=mailbox, history=history)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while mailbox.latest().model is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"{sys.argv[1]} could not be followed: {mailbox.latest().failure}")
        time.sleep(0.01)
    print("following", flush=True)
    for _ in sys.stdin:
        steps = sum(isinstance(record, StepRecord) for record in history.since(0)[1])
        print(json.dumps({"steps": steps, "cpu_s": time.process_time()}), flush=True)
    commands.put(Close())
    thread.join(5)


if __name__ == "__main__":
    main()
