"""`python -m echomq.worker`: its options, its exit codes, its log."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from echomq import transitions
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call
from echomq.worker import __main__ as command
from tests.worker import jobs_app
from tests.worker.processes import ROOT, let_go, wait_until, worker_process
from tests.worker.support import Peek

QUICK = ("--lease", "5", "--grace", "0.3", "--cleanup", "0.5")


def put(peek: Peek, task: str, *args: Any, **options: Any) -> str:
    """Enqueue a job from here, without an event loop."""
    job = NewJob(task=task, payload=orjson.dumps({"args": args}), **options)
    (verdict,) = peek.run(transitions.enqueue(peek.keys, Call("test"), [job]))
    assert verdict.code == "admitted"
    return job.id


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such_module:app"], "no module 'no_such_module'"),
        (["tests.worker.no_such:app"], "no module 'tests.worker.no_such'"),
        (["tests.worker.jobs_app:nothing"], "no echomq App named 'nothing'"),
        (["tests.worker.jobs_app:something"], "no echomq App named 'something'"),
        (["tests.worker.jobs_app:empty", "--url", "redis://127.0.0.1:1"], "no tasks"),
        ([":app"], "module"),
        (["..jobs:app"], "module"),
        (["tests.worker.jobs_app:app", "--leese", "3"], "No such option"),
        (["tests.worker.jobs_app:app", "--lease", "soon"], "not a valid float"),
        (["tests.worker.jobs_app:app", "--lease", "0"], "lease is 0.0; it must be"),
        (["tests.worker.jobs_app:app", "--concurrency", "0"], "concurrency is 0; it must be"),
        (["tests.worker.jobs_app:app", "--threads", "0"], "threads is 0; it must be"),
        (["tests.worker.jobs_app:app", "--pool", "many"], "not a valid integer"),
        (["tests.worker.jobs_app:app", "--processes", "0"], "processes is 0; it must be 1 to 1000"),
        (["tests.worker.jobs_app:app", "--processes", "2", "--lease", "0"], "lease is 0.0; it must be"),
        (["tests.worker.jobs_app:app", "--processes", "2", "--health-port", "65535"], "must be at most 65534"),
        (["tests.worker.jobs_app:app", "--max-jobs", "0"], "max_jobs is 0; it must be 1 to"),
        (["tests.worker.jobs_app:app", "--max-rss", "1", "--url", "redis://127.0.0.1:1"], "max_rss is 1 MiB, and"),
        (["tests.worker.jobs_app:app", "--reload", "--burst"], "either --reload or --burst"),
        (["tests.worker.jobs_app:app", "--reload-dir", "."], "say --reload, too"),
        (["tests.worker.jobs_app:app", "--reload", "--reload-dir", "no/where"], "does not exist"),
        (["tests.worker.jobs_app:app", "--queue", "a b"], "'a b'"),
        (["tests.worker.jobs_app:batches", "--concurrency", "9"], "batches of up to 10 jobs"),
        (
            ["tests.worker.jobs_app:asking", "--url", "redis://127.0.0.1:1"],
            "task 'asks' asks for Pool by its parameter",
        ),
        (
            ["tests.worker.jobs_app:app", "--queue", "mispelt", "--url", "redis://127.0.0.1:1"],
            "no task on queue 'mispelt'",
        ),
        (["tests.worker.jobs_app:app", "--url", "http://x"], "http"),
        (["tests.worker.jobs_app:app", "--log-format", "xml"], "'xml'"),
        (["tests.worker.jobs_app:app"], "ECHOMQ_URL"),
        ([], "Missing argument"),
    ],
)
def test_command_refuses_bad_arguments_in_one_line(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    """What is wrong is said in one line, with exit code 2 and no stack."""
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)  # ours stays as it is
    monkeypatch.delenv("ECHOMQ_URL", raising=False)
    monkeypatch.setattr(jobs_app.app, "url", None)
    done = CliRunner().invoke(command.main, arguments)
    assert done.exit_code == 2, done.output
    last = done.output.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert words in last


def test_command_says_what_reload_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without watchfiles: the extra that brings it."""
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.delitem(sys.modules, "echomq.worker.reload", raising=False)
    done = CliRunner().invoke(command.main, ["tests.worker.jobs_app:app", "--reload"])
    assert done.exit_code == 2
    assert done.output.strip().endswith("Error: --reload needs watchfiles: pip install 'echomq[reload]'")


def test_command_refuses_in_one_line_also_as_a_process() -> None:
    """The same, end to end."""
    done = subprocess.run(
        [sys.executable, "-m", "echomq.worker", "no_such_module:app"],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("Error: there is no module 'no_such_module'")


def test_command_runs_until_the_queue_is_empty(server_url: str, queue_name: str, peek: Peek) -> None:
    """`--burst` ends with code 0; every line of the JSON log is an object that names worker, queue, job and attempt."""
    jobs = [put(peek, "quick") for _ in range(3)]
    failing = put(peek, "failing", max_attempts=1)
    put(peek, "blocker", 2.2)
    with worker_process(server_url, queue_name, "--burst", "--name", "me", *QUICK) as worker:
        assert worker.wait() == 0
        assert sorted(worker.told()) == sorted(f"ran {job} 1" for job in jobs)
        lines = worker.log()
    assert {line["worker"] for line in lines} == {"me"}
    # Once for whoever blocks; a machine that stands still may block it, too.
    assert ["in blocker" in line["stack"] for line in lines if line["event"] == "event_loop_blocked"].count(True) == 1
    (failed,) = [line for line in lines if line["event"] == "job_failed"]
    assert (failed["queue"], failed["job"], failed["task"], failed["attempt"]) == (queue_name, failing, "failing", 1)
    (dead,) = [line for line in lines if line["event"] == "job_dead"]
    assert (dead["job"], dead["level"]) == (failing, "error")


def test_command_serves_the_named_queue_only(server_url: str, queue_name: str, peek: Peek) -> None:
    """`--queue` may name any of the app's."""
    put(peek, "quick")
    with worker_process(server_url, queue_name, "--burst", "--queue", queue_name, *QUICK) as worker:
        assert worker.wait() == 0
        assert worker.log("worker_started")[0]["queues"] == [queue_name]


def test_command_brings_its_own_server(queue_name: str) -> None:
    """`--embedded --burst` needs no server at all and ends."""
    with worker_process("redis://127.0.0.1:1", queue_name, "--embedded", "--burst", *QUICK) as worker:
        assert worker.wait() == 0
        assert worker.log("embedded_server")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_handlers_end(server_url: str, queue_name: str, peek: Peek, number: signal.Signals) -> None:
    """Within grace a handler ends by itself; no more is claimed; code 0."""
    job = put(peek, "gated")
    with worker_process(server_url, queue_name, "--grace", "30", "--concurrency", "1") as worker:
        worker.wait_told(f"began {job}")
        late = put(peek, "quick")
        worker.signal(number)
        worker.wait_for("worker_stopping")
        let_go(peek.client, queue_name)
        assert worker.wait() == 0
        assert worker.told()[-1] == f"ended {job} 1"
    assert peek.state(late) == "pending"
    assert peek.active() == {}


def test_signal_gives_unfinished_work_back(server_url: str, queue_name: str, peek: Peek) -> None:
    """Beyond grace the handler is cancelled with its reason, the job is claimable at once, and no budget is spent."""
    job = put(peek, "sleeper", 60)
    with worker_process(server_url, queue_name, *QUICK) as worker:
        worker.wait_told(f"began {job}")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.told()[-1] == f"stopped {job} shutdown"
    record = peek.record(job)
    assert (peek.state(job), record.failures, record.stalls) == ("pending", 0, 0)


def test_second_signal_skips_the_waiting(server_url: str, queue_name: str, peek: Peek) -> None:
    """Grace may be long; a second signal cancels the handlers now."""
    job = put(peek, "sleeper", 60)
    with worker_process(server_url, queue_name, "--grace", "600") as worker:
        worker.wait_told(f"began {job}")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker_stopping")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert peek.state(job) == "pending"


@pytest.mark.parametrize("task", ["stubborn", "in_thread"])
def test_handlers_that_will_not_end_are_named_and_the_process_ends_hard(
    server_url: str, queue_name: str, peek: Peek, task: str
) -> None:
    """At its deadline the process exits with code 70; the log names the handler and where it is; its lease expires."""
    job = put(peek, task, 60)
    with worker_process(server_url, queue_name, *QUICK) as worker:
        worker.wait_told(f"began {job}")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 70
        (line,) = worker.log("handler_will_not_end")
        assert (line["job"], line["task"], line["queue"], line["attempt"]) == (job, task, queue_name, 1)
        assert "time.sleep" in line["stack"] if task == "in_thread" else "in stubborn" in line["stack"]
        assert worker.log("hard_exit")[0]["code"] == 70
        assert all("worker" in line for line in worker.log())
    assert list(peek.active()) == [job]


def test_signal_before_the_server_was_ever_up_ends_in_order(queue_name: str) -> None:
    """A worker that has never reached its server ends with code 0."""
    with worker_process("redis://127.0.0.1:1", queue_name, *QUICK) as worker:
        worker.wait_for("cannot_connect")
        worker.signal(signal.SIGTERM)
        assert worker.wait(15) == 0


def test_failure_of_the_worker_itself_is_code_1(server_url: str, queue_name: str, peek: Peek) -> None:
    """A queue of another protocol: one clear line, code 1."""
    peek.client.hset(peek.keys.meta, "protocol", "9.0")
    with worker_process(server_url, queue_name, *QUICK) as worker:
        assert worker.wait() == 1
        (line,) = worker.log("worker_failed")
        assert "9.0" in line["error"]


def test_ctrl_c_in_a_handler_gives_its_job_back(server_url: str, queue_name: str, peek: Peek) -> None:
    """KeyboardInterrupt raised by a handler ends the worker in order, as a failure."""
    job = put(peek, "interrupted")
    with worker_process(server_url, queue_name, *QUICK) as worker:
        worker.wait_told("began")
        assert worker.wait() == 1
    record = peek.record(job)
    assert (peek.state(job), record.failures, record.stalls) == ("pending", 0, 0)


def test_self_snoozing_job_does_not_keep_a_worker_from_ending(server_url: str, queue_name: str, peek: Peek) -> None:
    """A job that comes back without delay, and one that fails: the signal is heard, and nothing is held."""
    put(peek, "snoozer")
    failing = put(peek, "failing", max_attempts=1000)
    with worker_process(server_url, queue_name, *QUICK) as worker:
        wait_until(lambda: peek.record(failing).failures)
        worker.signal(signal.SIGINT)
        assert worker.wait(10) == 0
    assert peek.active() == {}


def test_worker_process_leaves_no_client_on_the_server(server_url: str, queue_name: str, peek: Peek) -> None:
    """After an orderly end none of its connections stands."""
    with worker_process(server_url, queue_name, *QUICK) as worker:
        worker.wait_for("worker_started")
        before = _clients(peek)
        assert before
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    wait_until(lambda: not _clients(peek) & before)


def _clients(peek: Peek) -> set[str]:
    found: Any = peek.client.client_list()
    return {each["id"] for each in found if each["name"].startswith("echomq-")}
