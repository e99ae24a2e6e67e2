"""`lrbs bench search`: its client, and a whole run of it, very small."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.bench.load import LoadPlan, LoadProcess, LoadResult, run_load
from app.cli.main import cli
from tests.app.waiting import wait_for
from tests.benchmarks import processes
from tests.benchmarks.__main__ import benchmarks
from tests.benchmarks.load import Step, carried_rate


def test_a_whole_run_reports_speed_recall_and_latencies():
    small = ["--items", "200", "--dim", "4", "--clients", "2", "--seconds", "0.2", "--rounds", "1"]
    small += ["--pictures", "2", "--texts", "40", "--queries", "10"]
    options = ["--during", "replay,import", "--lists", "--json"]
    run = CliRunner().invoke(cli, ["bench", "search", *small, *options])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert (report["items"], report["rank"]) == (200, 4)
    assert report["recall_at_10"] == 1.0
    for name in ("http_qps", "raw_index_qps", "bare_endpoint_qps", "p50", "p95", "p99", "seconds_to_ready"):
        assert report[name] > 0.0
    assert (report["server_cpu_ms_per_search"] is None) == (not Path("/proc/self/stat").is_file())
    assert report["seconds_to_train_and_index"] > 0.0
    kinds = [name.split(",")[0] for name in report["loads"]]
    assert (kinds.count("typed"), kinds.count("vectors"), kinds.count("bare")) == (2, 6, 2)
    assert (report["typed_collection"], report["typed_items"], report["typed_texts"]) == ("sample", 72, 40)
    if report["server_cpu_ms_per_search"] is not None:
        assert report["loads"]["bare, 1 client"]["times_bare"] == 1.0
        assert report["loads"]["typed, 1 client"]["times_bare"] > 0.0
    for name, load in report["loads"].items():
        # The open loop goes on at its rate, even if the machine is held up: what is too many gets a 503.
        assert set(load["failures"]) <= ({"503"} if "open loop" in name else set())


def test_rates_are_raised_while_items_are_written():
    small = ["--items", "200", "--dim", "4", "--clients", "2", "--seconds", "0.2", "--writes", "1000"]
    run = CliRunner().invoke(benchmarks, ["load", *small, "--p99", "60000", "--errors", "1", "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    closed, *steps = report["loads"]
    assert closed["rate"] is None
    assert [step["rate"] / closed["load"]["qps"] for step in steps] == pytest.approx(
        [0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    )
    assert report["carried_per_second"] == steps[-1]["load"]["qps"] > 0.0
    assert all(step["items_written"] > 0 and step["write_p99"] > 0.0 for step in report["loads"])


def test_numbers_of_processes_are_compared_in_turns(monkeypatch):
    monkeypatch.setattr(processes, "_WARM_SECONDS", 0.2)
    small = ["--items", "200", "--dim", "4", "--seconds", "0.2", "--rounds", "1", "--typed", "--json"]
    run = CliRunner().invoke(benchmarks, ["processes", *small, "--processes", "2", "--clients", "1,2"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["queries"] == "texts"
    assert [load["clients"] for load in report["loads"]] == [1, 2]
    for load in report["loads"]:
        assert load["qps"]["2"] > 0.0
        assert load["times_the_first"] == {"2": 1.0}
        assert load["failures"] == 0
    if Path("/proc/self/smaps_rollup").is_file():
        # Beside each server of the tests lies the process that its own are forked from.
        assert len(report["idle_mib"]) == 1 + 1
        assert len(report["memory_mib"]["2"]) == 3 + 1, "the processes and what started them"
    for wrong in ("", "1,none", "0"):
        assert CliRunner().invoke(benchmarks, ["processes", "--processes", wrong]).exit_code == 2


def test_what_is_carried_ends_at_the_first_rate_out_of_bounds():
    def step(rate, p99, failures):
        load = LoadResult(rate or 900.0, 99, {"503": failures}, p99=p99)
        return Step(rate, load, items_written=0, writes_refused=0, write_p99=None)

    steps = [step(None, 500.0, 50), step(100.0, 10.0, 0), step(200.0, 50.0, 1), step(300.0, 51.0, 0)]
    assert carried_rate([*steps, step(400.0, 10.0, 0)], 50.0, 0.01) == 200.0
    assert carried_rate(steps, 50.0, 0.009) == 100.0
    assert carried_rate(steps, 9.0, 1.0) is None


def test_an_unknown_disturbance_is_refused():
    assert CliRunner().invoke(cli, ["bench", "search", "--during", "lunch"]).exit_code == 2


class TestClient:
    @pytest.fixture
    def answering(self):
        """Return the function that starts a server, which answers with statuses in turn, and a load on it."""
        servers = []

        def start(*statuses, **plan):
            requests = []

            class Handler(BaseHTTPRequestHandler):
                protocol_version = "HTTP/1.1"

                def do_POST(self):
                    requests.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                    self.send_response(statuses[len(requests) % len(statuses)])
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")

                def log_message(self, *_):
                    pass

            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            servers.append(server)
            threading.Thread(target=server.serve_forever).start()
            url = f"http://127.0.0.1:{server.server_port}/search"
            return LoadPlan(url, "lrbs_key", **plan), requests

        yield start
        for server in servers:
            server.shutdown()
            server.server_close()

    def test_bodies_are_sent_in_turn_and_answers_counted_by_status(self, answering):
        bodies = ['{"k": 1}', '{"k": 2}']
        plan, requests = answering(200, 503, bodies=bodies, connections=1, seconds=0.3)
        result = run_load(plan)
        assert requests[:3] == ['{"k": 1}', '{"k": 2}', '{"k": 1}']
        assert result.requests > 0
        assert abs(result.failures["503"] - result.requests) <= 1
        assert 0.0 < result.p50 <= result.p95 <= result.p99

    def test_an_open_loop_keeps_its_rate(self, answering):
        plan, requests = answering(200, bodies=["{}"], connections=8, seconds=0.5, rate=100.0)
        result = run_load(plan)
        assert 40 <= len(requests) <= 51
        assert result.failures == {}

    def test_a_load_ends_when_it_is_stopped(self, answering):
        plan, requests = answering(200, bodies=["{}"], connections=2, seconds=600.0)
        with LoadProcess(plan) as load:
            wait_for(lambda: requests)
            result = load.stop()
        assert 0 < result.requests <= len(requests)
