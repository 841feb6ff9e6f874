"""`cbtui compare` on a fake model: the report, the data, the exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended
from tests.cli.word_runner import FailingRunner, Forgetful, PartingRunner, UnloadableRunner

Cbtui = Callable[..., Ended]
TUTORIAL = Path(__file__).parents[1] / "data" / "workloads" / "tutorial.jsonl"

CONTINUOUS_LOG = """\
++ [step 0]   slot 0 <- A (cap 6): "The capital of France is"
++ [step 0]   slot 1 <- B (cap 50): "Today's weather is so"
++ [step 0]   slot 2 <- C (cap 300): "In machine learning, a transformer is"
-- [step 6]   slot 0 done A (length, 6 tokens): "
++ [step 6]   slot 0 <- D (cap 30): "Once upon a time in a land far away,"
-- [step 36]  slot 0 done D (length, 30 tokens): "
++ [step 36]  slot 0 <- E (cap 180): "
-- [step 50]  slot 1 done B (length, 50 tokens): "
++ [step 50]  slot 1 <- F (cap 45): "
-- [step 95]  slot 1 done F (length, 45 tokens): "
-- [step 216] slot 0 done E (length, 180 tokens): "
-- [step 300] slot 2 done C (length, 300 tokens): "
"""
STATIC_LOG = """\
++ [step 0]   slot 0 <- A (cap 6): "
++ [step 0]   slot 1 <- B (cap 50): "
++ [step 0]   slot 2 <- C (cap 300): "
-- [step 6]   slot 0 done A (length, 6 tokens): "
-- [step 50]  slot 1 done B (length, 50 tokens): "
-- [step 300] slot 2 done C (length, 300 tokens): "
== [step 300] the wave is over: slots 0, 1 and 2 free
++ [step 300] slot 0 <- D (cap 30): "
++ [step 300] slot 1 <- E (cap 180): "
++ [step 300] slot 2 <- F (cap 45): "
-- [step 330] slot 0 done D (length, 30 tokens): "
-- [step 345] slot 2 done F (length, 45 tokens): "
-- [step 480] slot 1 done E (length, 180 tokens): "
== [step 480] the wave is over: slots 0, 1 and 2 free
"""
STEP_7 = """\
Step 7: total_q 12, total_kv 34 (22 cached + 12 new)
  D  PREFILL(10)  Once| upon| a| time| in| a| land| far| away|, -> "
  B  decode(1)     t
  C  decode(1)     t

columns: keys by owner, small letter cached; # may attend, . may not
         DDDDDDDDDDbbbbbbbbbbBccccccccccccC
  D p0   #.................................
  D p1   ##................................
  D p2   ###...............................
  D p3   ####..............................
  D p4   #####.............................
  D p5   ######............................
  D p6   #######...........................
  D p7   ########..........................
  D p8   #########.........................
  D p9   ##########........................
  B p10  ..........###########.............
  C p12  .....................#############
"""


@pytest.fixture
def report(cbtui: Cbtui) -> list[str]:
    ended = cbtui("compare")
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


def section(report: list[str], heading: str) -> list[str]:
    """The lines below a heading, up to the next one."""
    start = next(place for place, line in enumerate(report) if line.startswith(heading))
    return report[start : start + 40]


def assert_begin(lines: list[str], expected: str) -> None:
    wanted = expected.splitlines()
    for line, beginning in zip(lines, wanted, strict=False):
        assert line.startswith(beginning), (line, beginning)
    assert len(lines) >= len(wanted)


def test_the_admission_log_is_the_tutorial_s(report: list[str]):
    assert_begin(section(report, "Who entered and who ended: continuous-padded")[1:], CONTINUOUS_LOG)


def test_the_static_log_shows_the_waves(report: list[str]):
    assert_begin(section(report, "Who entered and who ended: static")[1:], STATIC_LOG)


def test_the_first_step_packs_three_prompts(report: list[str]):
    drawn = section(report, "Step 1: ")
    assert drawn[0] == "Step 1: total_q 17, total_kv 17 (0 cached + 17 new)"
    assert drawn[1].startswith("  A  PREFILL(5)   The| capital| of| France| is -> ")
    assert drawn[6:9] == [
        "        AAAAABBBBBCCCCCCC",
        "  A p0  #................",
        "  A p1  ##...............",
    ]


def test_the_first_mixed_step_is_drawn_as_the_tutorial_does(report: list[str]):
    assert_begin(section(report, "Step 7: "), STEP_7)


@pytest.mark.parametrize(
    ("label", "figures"),
    [
        ("steps", ["480", "300", "300"]),
        ("output tokens", ["611", "611", "611"]),
        ("token positions through the model", ["1,485", "692", "646"]),
        ("  of them padding", ["10", "46", "0"]),
        ("  of them dead work", ["829", "0", "0"]),
        ("slot occupancy", ["42.4", "%", "67.9", "%", "67.9", "%"]),
        ("mean TTFT, streamed, steps", ["151.0", "16.3", "16.3"]),
        ("mean completion, streamed, steps", ["251.8", "117.2", "117.2"]),
        ("  delivered at the barrier, steps", ["390.0", "-", "-"]),
    ],
)
def test_the_table_holds_the_stated_figures(report: list[str], label: str, figures: list[str]):
    row = next(line for line in report if line.startswith(label + " "))
    assert row.removeprefix(label).split() == figures


def test_outputs_are_said_to_be_identical(report: list[str]):
    assert "Identical: all 611 output tokens are the same in" in "\n".join(report)


def test_timelines_share_one_scale(report: list[str]):
    drawn = section(report, "Timeline, 8 steps a column")
    assert drawn[2] == "static: 480 steps"
    assert drawn[6] == "continuous-padded and continuous: 300 steps"
    assert [len(line) for line in drawn[3:6]] == [64] * 3
    assert [len(line) for line in drawn[7:10]] == [42] * 3
    assert drawn[3].startswith("  0 Axxxxxxxxx")
    assert drawn[7] == "  0 AD==E======================..........."
    assert drawn[8] == "  1 B=====F=====.........................."


def test_the_end_says_why_and_keeps_steps_and_milliseconds_apart(report: list[str]):
    why = " ".join(section(report, "Why"))
    for words in (
        "Steps: 480 against 300, 1.60x",
        "of 1,440 slot-steps 829 were dead work",
        "1,485 against 646, 2.30x",
        "ms in static",
        "251.8 steps in static and 117.2 in continuous; delivered at the barrier, static takes 390.0",
    ):
        assert words in why


def test_at_six_slots_the_schedule_gains_nothing_and_the_report_says_so(cbtui: Cbtui):
    out = cbtui("compare", "--slots", "6").out
    out = " ".join(out.split())
    assert "Both need 300 steps: the schedule gains none here, and nobody is complete earlier." in out


def test_piped_reports_are_plain_and_fit_80_columns(report: list[str]):
    assert max(map(len, report)) <= 80
    assert all(line.isascii() for line in report)
    assert not any("\x1b" in line for line in report)


def test_many_slots_and_long_prompts_fit_80_columns(cbtui: Cbtui):
    lines = [{"prompt": " ".join(["word"] * (1 + 37 * i % 300)), "output_tokens": 3 + i} for i in range(60)]
    data = "\n".join(map(json.dumps, lines)).encode()
    ended = cbtui("compare", "-", "--slots", "40", stdin=data)
    assert ended.code == 0
    assert max(map(len, ended.out.splitlines())) <= 80


def test_every_subset_of_modes_in_any_order_is_reported(cbtui: Cbtui):
    for modes in ("continuous", "continuous-padded", "continuous,static", "static,continuous-padded"):
        ended = cbtui("compare", "--modes", modes, "--max-tokens", "4")
        assert ended.code == 0
        assert max(map(len, ended.out.splitlines())) <= 80


def test_a_rectangle_is_drawn_with_its_padding(cbtui: Cbtui):
    report = cbtui("compare", "--modes", "continuous-padded").out.splitlines()
    drawn = section(report, "Step 7: ")
    assert drawn[0] == "Step 7: rectangle [3, 10] = 30 positions, 18 of them padding; 22 keys cached"
    assert drawn[2].startswith("  B  decode(1)    _x9  t")
    grid = drawn.index("           ---bbbbbbbbbbB")
    assert drawn[grid : grid + 4] == [
        "           ---bbbbbbbbbbB",
        "  padding  #.............",
        "  : 8 rows like these",
        "  B p10    ...###########",
    ]


def test_json_is_one_object_with_the_agreed_keys(cbtui: Cbtui):
    ended = cbtui("compare", "--json")
    assert (ended.code, ended.err) == (0, "")
    data = json.loads(ended.out)
    assert data["identical"] is True
    assert [request["max_tokens"] for request in data["requests"]] == [6, 50, 300, 30, 180, 45]
    assert list(data["modes"]) == ["static", "continuous-padded", "continuous"]
    static = data["modes"]["static"]
    assert static["steps"] == 480
    assert static["finish_steps"] == [6, 50, 300, 330, 480, 345]
    assert static["release_steps"] == [300, 300, 300, 480, 480, 480]
    assert static["output_tokens"] == 611
    assert (static["token_positions"], static["padding_tokens"], static["dead_tokens"]) == (1485, 10, 829)
    assert [len(ids) for ids in static["token_ids"]] == [6, 50, 300, 30, 180, 45]
    assert len(static["texts"]) == 6
    assert {"elapsed_s", "step_ms_median", "streaming", "at_barrier", "slot_occupancy"} <= set(static)


@pytest.mark.parametrize(("gap", "code"), [(4e-4, 0), (2e-3, 1), (None, 1)])
def test_the_exit_code_tells_a_near_tie_from_a_mismatch(cbtui: Cbtui, gap: float | None, code: int):
    ended = cbtui("compare", "--json", runner=lambda: PartingRunner(gap))
    assert ended.code == code
    assert json.loads(ended.out)["identical"] is False


def test_outputs_are_checked_alone_and_a_fault_common_to_all_modes_is_found(cbtui: Cbtui):
    ended = cbtui("compare", "--modes", "continuous,chunked", "--max-tokens", "6", runner=Forgetful)
    assert ended.code == 1
    text = " ".join(ended.out.split())
    assert "WRONG: continuous and chunked agree, but not with what the model gives a request alone." in text
    assert "Checked alone, 12 outputs of 2 modes: 2 DIFFER, 10 the same." in text
    assert re.search(r"B in continuous: at output 4 \(step 4\) “.+” \(\d+\) was served, alone it is “", text)


def test_the_check_alone_is_in_the_data_and_can_be_left_out(cbtui: Cbtui):
    def verified(*more: str) -> list[list[dict[str, object] | None]]:
        data = json.loads(cbtui("compare", "--json", "--max-tokens", "3", *more).out)
        assert data["verdict"] == "identical"
        return [mode["verified"] for mode in data["modes"].values()]

    assert [[one["verdict"] for one in mode if one] for mode in verified()] == [["same"] * 6] * 3
    assert verified("--no-verify") == [[None] * 6] * 3
    assert "Checked alone" not in cbtui("compare", "--no-verify", "--max-tokens", "3").out


def test_a_mismatch_shows_step_tokens_and_gap(cbtui: Cbtui):
    ended = cbtui("compare", runner=lambda: PartingRunner(2e-3))
    assert "MISMATCH" in ended.out
    assert 'D, output token 4: " t300" (300) in continuous-padded, step 10;' not in ended.out
    assert 'D, output token 4: " t301" (301) in continuous, step 10;' in ended.out
    assert "gap 0.002" in ended.out


def test_half_precision_claims_nothing(cbtui: Cbtui):
    ended = cbtui("compare", runner=lambda: PartingRunner(0.5, "bfloat16"))
    assert ended.code == 0
    assert "nothing is claimed" in " ".join(ended.out.split())


def test_a_failing_forward_is_reported_and_exits_1(cbtui: Cbtui):
    ended = cbtui("compare", runner=FailingRunner)
    assert ended.code == 1
    assert "Failed: the device is on fire" in ended.out


def test_max_tokens_caps_every_request(cbtui: Cbtui):
    data = json.loads(cbtui("compare", "--json", "--max-tokens", "8").out)
    assert [request["max_tokens"] for request in data["requests"]] == [6, 8, 8, 8, 8, 8]


def test_the_built_in_requests_ignore_end_of_sequence_and_those_of_a_file_do_not(cbtui: Cbtui):
    def ignoring(*arguments: str) -> set[bool]:
        data = json.loads(cbtui("compare", "--json", "--max-tokens", "2", *arguments).out)
        return {request["ignore_eos"] for request in data["requests"]}

    assert ignoring() == {True}
    assert ignoring("--no-ignore-eos") == {False}
    assert ignoring(str(TUTORIAL)) == {False}
    assert ignoring(str(TUTORIAL), "--ignore-eos") == {True}


def test_requests_are_compared_raw_unless_asked_otherwise(cbtui: Cbtui):
    def lengths(*arguments: str) -> list[int]:
        data = json.loads(cbtui("compare", "--json", "--max-tokens", "2", *arguments).out)
        return [request["prompt_tokens"] for request in data["requests"]]

    assert lengths() == lengths(str(TUTORIAL)) == [5, 5, 7, 10, 7, 7]
    assert lengths("--chat") == [7, 7, 9, 12, 9, 9]


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["-"], b"", "standard input holds no requests"),
        (["-"], b'{"prompt": 1}', "standard input, line 1: `prompt`"),
        (["-"], b'{"prompt": "unspeakable", "output_tokens": 1}', "request 1 cannot be encoded"),
        (["/nowhere/at/all"], b"", "cannot read /nowhere/at/all: No such file"),
        (["."], b"", "cannot read .: Is a directory"),
        (["--slots", "0"], b"", "--slots must be at least 1"),
        (["--budget", "2"], b"", "--budget (2) must be at least --slots (3)"),
        (["--modes", "static,fast"], b"", "no mode 'fast'"),
        (["--modes", ""], b"", "no mode ''"),
        (["--max-tokens", "0"], b"", "--max-tokens"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    cbtui: Cbtui, arguments: list[str], stdin: bytes, words: str
):
    ended = cbtui("compare", *arguments, stdin=stdin)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cbtui: ") and ended.err.count("\n") == 1
    assert words in ended.err


def test_a_bad_line_is_named_the_others_run_and_the_code_is_1(cbtui: Cbtui):
    ended = cbtui("compare", "-", "--json", stdin=b'{"prompt": "a", "output_tokens": 1}\n{"prompt": 1}')
    assert ended.code == 1
    assert ended.err == "cbtui: standard input, line 2: `prompt` must be a string, not 1\n"
    assert len(json.loads(ended.out)["requests"]) == 1


def test_a_model_that_cannot_load_is_said_with_what_may_help(cbtui: Cbtui):
    ended = cbtui("compare", runner=UnloadableRunner)
    assert ended.code == 2
    assert ended.err == "cbtui: the model cannot be loaded (fetch): it is not there; try: pip download it\n"


def test_the_runner_is_closed_whatever_happens(cbtui: Cbtui):
    for runner in (FailingRunner, UnloadableRunner):
        ended = cbtui("compare", runner=runner)
        assert ended.runner is not None and ended.runner.is_closed  # type: ignore[attr-defined]
