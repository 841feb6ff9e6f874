"""The rules of the Trace Event Format that the exporter's kinds of events fall under.

From the format's document (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)
and what catapult and Perfetto refuse or count as errors when they read one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

Event = dict[str, Any]


def checked(data: bytes) -> list[Event]:
    """The events of a trace, if it keeps every rule."""
    trace = json.loads(data.decode("utf-8"))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in trace["otherData"].values())
    events = trace["traceEvents"]
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    open_waits: dict[tuple[str, int], Event] = {}
    for event in events:
        assert {"ph", "name", "pid", "tid", "args"} <= set(event), event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        match event["ph"]:
            case "M":
                assert event["name"] in (
                    "process_name", "process_sort_index", "thread_name", "thread_sort_index"
                )  # fmt: skip
            case "X":
                assert event["ts"] >= 0 and event["dur"] >= 0
                tracks[event["pid"], event["tid"]].append(event)
            case "b":
                key = (event["cat"], event["id"])
                assert key not in open_waits
                open_waits[key] = event
            case "e":
                begin = open_waits.pop((event["cat"], event["id"]))
                assert begin["name"] == event["name"] and begin["ts"] <= event["ts"]
            case "C":
                assert event["args"]
                assert all(isinstance(value, int | float) for value in event["args"].values())
            case "i":
                assert event["s"] in ("g", "p", "t")
            case other:
                raise AssertionError(f"an event of kind {other}")
    assert not open_waits
    for spans in tracks.values():
        _nested(spans)
    return events


def _nested(spans: list[Event]) -> None:
    """Spans of a track lie within each other or side by side, never across."""
    ends: list[float] = []
    for span in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
        while ends and ends[-1] <= span["ts"] + 1e-2:
            ends.pop()
        end = span["ts"] + span["dur"]
        assert not ends or end <= ends[-1] + 1e-2, span
        ends.append(end)
