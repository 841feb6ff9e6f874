"""Everything about one request in lines, at the newest step and looking back."""

from __future__ import annotations

from cbtui.looks.pieces import line_width, plain
from cbtui.telling.request_story import StoryLines
from tests.widgets.stage import Stage


def told(stage: Stage, request_id: str, step: int | None = None, cells: int = 56) -> list[str]:
    lines = StoryLines(stage.frame(step=step), request_id, cells)
    made = [lines.line(y) for y in range(lines.count)]
    assert all(line_width(line) <= cells for line in made)
    return [plain(line).rstrip() for line in made]


def section(lines: list[str], name: str) -> list[str]:
    start = next(n for n, line in enumerate(lines) if line.startswith(name)) + 1
    stop = next((n for n, line in enumerate(lines) if n > start and not line), len(lines))
    return lines[start:stop]


def test_states_come_in_order_with_their_steps() -> None:
    states = section(told(Stage().tutorial().step(40), "r3"), "States")[1:]
    assert [line.split()[0] for line in states] == ["0", "7", "7", "36", "36"]
    words = " / ".join(" ".join(line.split()[3:]) for line in states)
    assert words == (
        "arrived, 10 prompt tokens / entered slot 0 after 6 steps of waiting / first token / "
        "finished (length) / slot 0 free"
    )


def test_looking_back_says_nothing_of_what_came_later() -> None:
    stage = Stage().tutorial().step(40)
    lines = told(stage, "r3", step=10)
    assert not any("finished" in line or "free" in line for line in lines)
    assert "Tokens 4 of 30, newest first" in lines
    assert told(stage, "r3", step=3)[-1] == "Tokens 0 of 30, newest first"
    assert section(told(stage, "r3", step=3), "States")[1:] == ["    0    0.0 ms  arrived, 10 prompt tokens"]


def test_a_request_of_one_token_ends_after_it() -> None:
    stage = Stage()
    stage.submit(("one", 1))
    states = section(told(stage.step(1), "r0"), "States")[1:]
    assert ["first token" in line for line in states] == [False, False, True, False, False]


def test_latencies_and_a_column_for_every_gap() -> None:
    latency = section(told(Stage().tutorial().step(60), "r1"), "Latency")
    assert "queue 0.0 ms" in latency[0] and "TTFT 55 ms" in latency[0] and "E2E 2.8 s" in latency[0]
    assert "TPOT 55 ms" in latency[1] and "largest 55 ms" in latency[1]
    assert latency[2] == " time before each token, 2 to 50:"
    assert len(latency) == 3 + 4 and "█" * 30 in latency[-1]


def test_blocks_are_those_of_the_shown_step() -> None:
    stage = Stage().tutorial().step(60)
    assert section(told(stage, "r2", step=30), "KV blocks")[0].startswith(" 3 blocks, 36 of 48 places")
    assert section(told(stage, "r0"), "KV blocks") == [" none in this step"]


def test_tokens_stand_newest_first_with_the_step_that_made_them() -> None:
    lines = told(Stage().tutorial().step(40), "r0")
    tokens = lines[lines.index("Tokens 6 of 6, newest first") + 1 :]
    assert [line.split()[0] for line in tokens] == ["6", "5", "4", "3", "2", "1"]
    assert all(line.split()[1:3] == ["step", str(6 - n)] for n, line in enumerate(tokens))


def test_giving_way_and_coming_back_are_told() -> None:
    stage = Stage(num_blocks=6, block_size=8)
    stage.submit(*[(f"a b c d {n}", 20) for n in range(3)])
    stage.drain()
    tired = next(story for story in stage.ledger.stories.values() if story.num_preemptions)
    lines = told(stage, tired.request_id)
    assert any("gave way:" in line for line in lines) and any("back, in slot" in line for line in lines)


def test_only_the_lines_asked_for_are_made() -> None:
    stage = Stage().tutorial().step(200)
    lines = StoryLines(stage.frame(), "r2", 56)
    assert lines.count == len(lines.head) + 200
    assert lines.line(lines.count) == ()
