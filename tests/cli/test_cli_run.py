"""`cbtui run` on a fake model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ended
from tests.cli.word_runner import Forgetful, WordRunner

Cbtui = Callable[..., Ended]


def results(ended: Ended) -> list[dict[str, object]]:
    return [json.loads(line) for line in ended.out.splitlines()]


def test_piped_prompts_run_and_print_as_they_end(cbtui: Cbtui):
    ended = cbtui("run", "--max-tokens", "3", stdin=b"The capital\n\nis so\n")
    assert (ended.code, ended.err) == (0, "")
    heads = [line for line in ended.out.splitlines() if line.startswith("[")]
    assert [head.split(",")[:2] for head in heads] == [
        ["[A] length", " 3 tokens"],
        ["[B] length", " 3 tokens"],
    ]
    assert heads[0].endswith('"The capital"')


def test_a_text_file_is_a_prompt_a_line(cbtui: Cbtui, tmp_path: Path):
    (tmp_path / "prompts.txt").write_text("The\ncapital\nis\n")
    ended = cbtui("run", str(tmp_path / "prompts.txt"), "--json", "--max-tokens", "2")
    assert sorted(str(result["prompt"]) for result in results(ended)) == ["The", "capital", "is"]


def test_json_results_come_in_the_order_they_end(cbtui: Cbtui):
    lines = [("a", 9), ("b", 2), ("c", 5), ("d", 1)]
    data = "\n".join(
        json.dumps({"custom_id": label, "prompt": "is so", "output_tokens": n}) for label, n in lines
    )
    ended = cbtui("run", "-", "--json", stdin=data.encode())
    assert [result["label"] for result in results(ended)] == ["b", "d", "c", "a"]
    first = results(ended)[0]
    assert (first["finish_reason"], first["output_tokens"], first["index"]) == ("length", 2, 1)
    assert len(first["token_ids"]) == 2  # type: ignore[arg-type]
    assert first["e2e_s"] > first["ttft_s"] > 0  # type: ignore[operator]


def test_static_mode_gives_the_same_outputs(cbtui: Cbtui):
    def outputs(mode: str) -> dict[object, object]:
        ended = cbtui("run", "--mode", mode, "--json", stdin=b"The\ncapital\nis\nso\n")
        return {result["index"]: result["token_ids"] for result in results(ended)}

    assert outputs("static") == outputs("continuous") == outputs("continuous-padded")


def test_bad_lines_are_named_the_others_run_and_the_code_is_1(cbtui: Cbtui):
    data = b'{"prompt": "The"}\nnonsense\n{"prompt": "so", "output_tokens": 2}\n{"prompt": ""}\n'
    ended = cbtui("run", "-", "--json", "--max-tokens", "3", stdin=data)
    assert ended.code == 1
    assert sorted(str(result["prompt"]) for result in results(ended)) == ["The", "so"]
    said = ended.err.splitlines()
    assert [line.split(":")[1] for line in said] == [" standard input, line 2", " standard input, line 4"]


def test_requests_that_cannot_run_are_named_and_the_code_is_1(cbtui: Cbtui):
    ended = cbtui("run", "--num-blocks", "1", "--max-tokens", "2", stdin=b"The\nunspeakable\n" + b"is " * 40)
    assert ended.code == 1
    assert "request 2 cannot be encoded: it is unspeakable" in ended.err
    assert "ended as ignored" in ended.err


def test_max_tokens_caps_what_a_line_asks_for(cbtui: Cbtui):
    data = b'{"prompt": "The", "output_tokens": 9}\n{"prompt": "so"}'
    assert {r["output_tokens"] for r in results(cbtui("run", "--json", "--max-tokens", "3", stdin=data))} == {
        3
    }
    assert {r["output_tokens"] for r in results(cbtui("run", "--json", stdin=data))} == {9, 64}


@pytest.mark.parametrize(
    ("has_template", "arguments", "expected"), [(True, [], 3), (True, ["--raw"], 1), (False, [], 1)]
)
def test_prompts_go_through_the_chat_template_if_there_is_one(
    cbtui: Cbtui, has_template: bool, arguments: list[str], expected: int
):
    ended = cbtui(
        "run",
        "--json",
        *arguments,
        stdin=b"The\n",
        runner=lambda: WordRunner(has_chat_template=has_template),
    )
    assert results(ended)[0]["prompt_tokens"] == expected


def test_the_token_that_stops_a_request_is_not_in_its_text(cbtui: Cbtui):
    whole = results(cbtui("run", "--json", stdin=b"The\n"))[0]
    stop = whole["token_ids"][4]  # type: ignore[index]
    ended = cbtui("run", "--json", stdin=b"The\n", runner=lambda: WordRunner(eos_token_id=stop))
    stopped = results(ended)[0]
    assert (stopped["finish_reason"], stopped["output_tokens"]) == ("stop", 5)
    assert stopped["text"] == "".join(str(whole["text"]).partition(f" t{stop}")[:1])
    on = cbtui("run", "--json", "--ignore-eos", stdin=b"The\n", runner=lambda: WordRunner(eos_token_id=stop))
    assert results(on)[0]["text"] == whole["text"]


def test_a_seed_repeats_a_sampled_run_and_differs_between_its_requests(cbtui: Cbtui):
    def sampled(*seed: str) -> list[object]:
        ended = cbtui("run", "--json", "--temperature", "1", *seed, stdin=b"The\nThe\n")
        return [result["token_ids"] for result in results(ended)]

    once = sampled("--seed", "5")
    assert once == sampled("--seed", "5")
    assert once != sampled("--seed", "6")
    assert once[0] != once[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "standard input holds no requests"),
        (["--temperature", "-1"], "--temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--temperature", "1", "--top-k", "-1"], "--top-k"),
        (["--temperature", "1", "--top-p", "0"], "top_p"),
        (["--mode", "fast"], "no mode 'fast'"),
        (["nowhere.txt"], "cannot read nowhere.txt"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(cbtui: Cbtui, arguments: list[str], words: str):
    ended = cbtui("run", *arguments, stdin=b"The\n" if "--temperature" in arguments else b"")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert words in ended.err


def test_a_stop_string_cuts_the_text_and_keeps_the_ids(cbtui: Cbtui):
    whole = json.loads(cbtui("run", "--json", "--max-tokens", "6", "--raw", stdin=b"The capital").out)
    word = whole["text"].split()[2]
    cut = json.loads(
        cbtui("run", "--json", "--max-tokens", "6", "--raw", "--stop", word, stdin=b"The capital").out
    )
    assert cut["finish_reason"] == "stop"
    assert cut["text"] == whole["text"][: whole["text"].index(word)]
    assert cut["token_ids"] == whole["token_ids"][:3]


def test_priority_of_a_file_decides_who_enters_first(cbtui: Cbtui):
    lines = [{"prompt": f"The {n}", "output_tokens": 2, "priority": -n} for n in range(3)]
    data = "\n".join(map(json.dumps, lines)).encode()
    for policy, order in (("fcfs", [0, 1, 2]), ("priority", [2, 1, 0])):
        ended = cbtui("run", "-", "--json", "--slots", "1", "--policy", policy, stdin=data)
        assert [json.loads(line)["index"] for line in ended.out.splitlines()] == order


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "lifo"], "no policy 'lifo'; there are fcfs, priority, shortest-first"),
        (["--stop", ""], "a stop string must not be empty"),
        (["--top-p", "2"], "top_p must be above 0 and at most 1"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(cbtui: Cbtui, arguments: list[str], words: str):
    ended = cbtui("run", *arguments, stdin=b"The capital")
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err and ended.err.count("\n") == 1


def test_finished_requests_are_checked_alone_when_asked_and_counted(cbtui: Cbtui, tmp_path: Path):
    trace = tmp_path / "run.jsonl"
    ended = cbtui("run", "--verify", "--record", str(trace), "--max-tokens", "6", stdin=b"The\ncapital\nis\n")
    assert (ended.code, ended.err) == (0, "cbtui: checked alone: 3 the same\n")
    assert trace.read_text().count('"verdict":"same"') == 3
    drawn = cbtui("run", "--verify", "--temperature", "1", "--max-tokens", "6", stdin=b"The\n")
    assert drawn.err == "cbtui: checked alone: nothing: no greedy request has made a token\n"


def test_a_request_that_differs_alone_is_named_and_the_code_is_1(cbtui: Cbtui):
    lines = b"The capital of France\nThe capital of\nis so\n"
    ended = cbtui("run", "--verify", "--max-tokens", "6", "--raw", stdin=lines, runner=Forgetful)
    assert ended.code == 1
    count, said = ended.err.splitlines()
    assert "request 2 alone: at output 4 (step 4)" in said and "logit gap 1" in said
    assert count == "cbtui: checked alone: 1 DIFFER, 2 the same"
