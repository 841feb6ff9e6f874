"""Metrics over HTTP, read as a Prometheus server would, held against what the records say."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families as parse

from cbtui.following.driver import LoopDriver
from cbtui.following.overheard import overheard
from cbtui.options import LaunchOptions
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake import FakeRunner
from engine.live.commands import Close, PromptRequest
from engine.prometheus import MetricsError, MetricsServer
from engine.prometheus.server import MOST_AT_A_TIME, is_loopback
from engine.prometheus.totals import Distribution, Totals
from engine.request import SamplingParams
from engine.session import drain
from engine.stream.ledger import Ledger
from engine.stream.records import Record, StepRecord
from engine.stream.trace_files import read_trace
from tests.cli.conftest import Ended

DATA = Path(__file__).parents[1] / "data"


@contextmanager
def serving() -> Iterator[MetricsServer]:
    server = MetricsServer(0)
    try:
        yield server
    finally:
        server.close()


def asked(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


def samples(families: Iterator[Metric]) -> dict[str, float]:
    """Every value by its name and its labels, those that all have left out."""
    found = {}
    for family in families:
        for name, labels, value, *_ in family.samples:
            own = {key: text for key, text in labels.items() if key not in ("model_name", "engine")}
            found[name + "".join(f" {key}={text}" for key, text in sorted(own.items()))] = value
    return found


def until(port: int, reached: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """What is served once it says so: records are folded in a thread of their own."""
    for _ in range(1000):
        found = samples(parse(asked(port)[1]))
        if reached(found):
            return found
        threading.Event().wait(0.01)
    raise AssertionError(found)


def engine_with_requests(mode: str = "continuous") -> Engine:
    runner = FakeRunner()
    runner.start()
    engine = Engine(EngineConfig(mode=mode), runner, runner.info)
    for number in range(8):
        engine.add_request(
            list(b"prompt %d" % number), SamplingParams(max_tokens=3 + 5 * (number % 3), ignore_eos=True)
        )
    return engine


@pytest.mark.parametrize("mode", ["static", "continuous", "continuous-padded", "chunked"])
def test_a_running_engine_is_scraped_and_the_figures_are_those_of_its_records(mode: str) -> None:
    with serving() as server:
        tell = server.reader("fake")
        records: list[Record] = []
        for record in drain(engine_with_requests(mode)):
            records.append(record)
            tell(record)
            if record.step == 2:
                now = until(server.port, lambda found: found.get("cbtui:steps_total") == 2)
                assert now["cbtui:num_requests_running"] == 3
                assert now["cbtui:num_requests_waiting"] == 5
                assert now["cbtui:num_slots"] == 3
                assert 0 < now["cbtui:kv_cache_usage_perc"] < 1
                assert now[f"cbtui:batching_info mode={mode} policy=fcfs"] == 1
        steps = [record for record in records if isinstance(record, StepRecord)]
        end = until(server.port, lambda found: found.get("cbtui:steps_total") == len(steps))
    stories = list(Ledger.of(records).stories.values())
    outputs = sum(len(story.output_token_ids) for story in stories)
    assert (end["cbtui:num_requests_running"], end["cbtui:num_requests_waiting"]) == (0, 0)
    assert end["cbtui:generation_tokens_total"] == outputs
    assert end["cbtui:prompt_tokens_total"] == sum(len(s.request.prompt_token_ids) for s in stories)
    assert end["cbtui:request_success_total finished_reason=length"] == len(stories)
    assert end["cbtui:dead_tokens_total"] == sum(step.tokens.dead for step in steps)
    assert end["cbtui:padding_tokens_total"] == sum(step.tokens.padding for step in steps)
    assert end["cbtui:iteration_tokens_total_count"] == len(steps)
    assert end["cbtui:time_to_first_token_seconds_count"] == len(stories)
    assert end["cbtui:time_to_first_token_seconds_sum"] == pytest.approx(sum(s.ttft_s or 0 for s in stories))
    assert end["cbtui:inter_token_latency_seconds_count"] == outputs - len(stories)
    assert end["cbtui:inter_token_latency_seconds_bucket le=+Inf"] == outputs - len(stories)
    assert end["cbtui:e2e_request_latency_seconds_sum"] == pytest.approx(sum(s.e2e_s or 0 for s in stories))
    assert end["cbtui:request_queue_time_seconds_sum"] == pytest.approx(sum(s.queue_s or 0 for s in stories))
    tpot = [story.tpot_s for story in stories if story.tpot_s is not None]
    assert end["cbtui:request_time_per_output_token_seconds_sum"] == pytest.approx(sum(tpot))


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("trace-*.jsonl")))
def test_any_trace_comes_to_the_ledgers_figures_and_leaves_nothing_behind(name: str) -> None:
    records = read_trace(DATA / name).records
    totals = Totals()
    for record in records:
        totals.apply(record)
    stories = Ledger.of(records).stories.values()
    unfinished = sum(story.finish is None for story in stories)
    assert totals.running + totals.waiting == unfinished
    assert totals.preemptions == sum(story.num_preemptions for story in stories)
    assert totals.finished.total() == len(stories) - unfinished
    assert totals.generation_tokens == sum(len(story.output_token_ids) for story in stories)
    assert totals.first_token_s.count == sum(story.ttft_s is not None for story in stories)


def test_a_bound_belongs_to_its_own_bucket() -> None:
    values = Distribution((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 9.0):
        values.add(value)
    assert values.cumulative() == [(1.0, 1), (2.0, 3), (float("inf"), 4)]
    assert (values.sum, values.count) == (13.5, 4)


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "application/openmetrics-text;version=1.0.0"])
def test_names_and_labels_are_the_same_whatever_the_reader_would_like(accept: str) -> None:
    with serving() as server:
        server.reader('a "model"', "static")
        status, text = asked(server.port, Accept=accept)
    assert status == 200
    families = {family.name: family for family in parse(text)}
    assert families["cbtui:num_requests_running"].samples[0].labels == {
        "model_name": 'a "model"',
        "engine": "static",
    }
    types = {name: families[f"cbtui:{name}"].type for name in ("kv_cache_usage_perc", "generation_tokens")}
    assert types == {"kv_cache_usage_perc": "gauge", "generation_tokens": "counter"}
    assert families["cbtui:time_to_first_token_seconds"].type == "histogram"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9100", "localhost", "localhost:80"])
def test_this_machines_names_are_answered(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "evil.example:9100", "127.0.0.1.evil.example", "localhost.evil:1", ":"]
)
def test_a_request_for_another_host_is_refused(host: str | None) -> None:
    assert not is_loopback(host)
    if host:
        with serving() as server:
            assert asked(server.port, Host=host)[0] == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost.evil.example", "http://"]
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    with serving() as server:
        assert asked(server.port, Origin=origin)[0] == 403
        assert asked(server.port, Origin=f"http://127.0.0.1:{server.port}")[0] == 200


def test_those_who_say_nothing_take_no_more_than_their_places() -> None:
    with serving() as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MOST_AT_A_TIME)]
        try:
            # In order of connecting: all places are taken when this one comes.
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as late:
                assert late.recv(100).startswith(b"HTTP/1.0 503 ")
        finally:
            for one in silent:
                one.close()
        while (status := asked_at_all(server.port)) != 200:
            assert status == 503


def asked_at_all(port: int) -> int:
    """The status; 503 too where the connection is reset because what was asked was not even read."""
    try:
        return asked(port)[0]
    except ConnectionError:
        return 503


def test_other_paths_are_not_found_and_a_query_is_no_matter() -> None:
    with serving() as server:
        assert [asked(server.port, path)[0] for path in ("/", "/metrics/x", "/metrics?a=b")] == [
            404,
            404,
            200,
        ]


def test_it_listens_on_the_loopback_address_only() -> None:
    with serving() as server:
        assert server._http.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with serving() as server, pytest.raises(MetricsError, match=f"no metrics on port {server.port}"):
        MetricsServer(server.port)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MetricsError, match="pip install prometheus-client"):
        MetricsServer(0)


def test_a_screens_engine_is_counted() -> None:
    requests = tuple(PromptRequest(prompt=f"p{n}", max_tokens=3) for n in range(4))
    options = LaunchOptions(metrics=0, requests=requests, speed=None)
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("builtins.print", lambda text, **_: said.append(text))
        with overheard(options) as link:
            thread = threading.Thread(
                target=LoopDriver(options, link, lambda _: FakeRunner()).run, args=(lambda: False,)
            )
            thread.start()
            port = int(said[0].rpartition(":")[2].partition("/")[0])
            found = until(port, lambda found: found.get("cbtui:generation_tokens_total") == 12)
            link.commands.put(Close())
            thread.join(20)
    assert found["cbtui:request_success_total finished_reason=length"] == 4


def test_the_real_command_is_scraped_while_it_runs(tmp_path: Path) -> None:
    trace = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,12,4\n600,12,4\n"
    (tmp_path / "vidur.csv").write_text(trace)
    words = [sys.executable, "-m", "cbtui", "run", str(tmp_path / "vidur.csv"), "--arrivals", "1"]
    process = subprocess.Popen(
        [*words, "--metrics", "0"],
        env=os.environ | {"CBTUI_TEST_RUNNER": "tests.cli.word_runner:WordRunner"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stderr
    try:
        where = process.stderr.readline()
        assert where.startswith("cbtui: metrics at http://127.0.0.1:")
        port = int(where.rpartition(":")[2].partition("/")[0])
        # It now waits ten minutes for the second request.
        found = until(
            port, lambda found: found.get("cbtui:request_success_total finished_reason=length") == 1
        )
        assert found["cbtui:generation_tokens_total"] == 4
        process.terminate()
        process.wait(20)
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()


def test_compare_counts_each_mode_as_an_engine_of_its_name(
    cbtui: Callable[..., Ended],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []
    close = MetricsServer.close

    def read_and_close(server: MetricsServer) -> None:
        until(server.port, lambda found: found.get("cbtui:num_requests_waiting") == 0)
        closed.append(asked(server.port)[1])
        close(server)

    monkeypatch.setattr(MetricsServer, "close", read_and_close)
    ended = cbtui("compare", "--modes", "static,continuous", "--max-tokens", "8", "--metrics", "0", "--json")
    assert ended.code == 0 and "metrics at http://127.0.0.1:" in ended.err
    made = {
        labels["engine"]: value
        for family in parse(closed[0])
        for name, labels, value, *_ in family.samples
        if name == "cbtui:steps_total"
    }
    modes = json.loads(ended.out)["modes"]
    assert made == {mode: result["steps"] for mode, result in modes.items()}


@pytest.mark.parametrize("port", ["-1", "65536", "many"])
def test_a_port_that_cannot_be_is_a_sentence(cbtui: Callable[..., Ended], port: str) -> None:
    ended = cbtui("run", "--metrics", port, stdin=b"The\n")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
