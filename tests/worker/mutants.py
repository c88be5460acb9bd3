"""The runtime broken on purpose: tests that do not notice prove nothing.

A mutant is a small change of one module of `echomq.worker` or `echomq.wire` (or of what declares their tasks), and the tests that must fail under it. It
is made in a copy of the package that stands first on the path of a pytest of its own, so nothing here touches the
sources. A change whose text is not found any more is an error and not a mutant that was caught.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs

from tests.worker.mutants_around import AROUNDS
from tests.worker.mutants_family import FAMILIES
from tests.worker.mutants_places import PLACES
from tests.worker.mutants_running import RUNNINGS
from tests.worker.mutants_telemetry import TELEMETRIES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
SECONDS = 60
"""Longer than the tests of any mutant need. Most that hang end by pytest's own timeout, some shield themselves."""


@attrs.frozen
class Mutant:
    """One way to break the runtime."""

    name: str
    """What is wrong with it, as a sentence's beginning."""
    changes: tuple[tuple[str, str, str], ...]
    """Module (below `echomq`), text, and what stands there instead."""
    tests: tuple[str, ...]
    """The tests that must notice: `directory/file::test`, without `test_` and `.py`; one is enough."""

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class Caught:
    """How a mutant fared."""

    by: str
    """The test that failed; "" if none did."""
    seconds: float
    """What it took."""
    output: str
    """What pytest said."""


def change(source: str, module: str, old: str, new: str) -> str:
    """Change a module's text in exactly one place.

    Raises:
        LookupError: The text is not there, or more than once: the mutant is out of date.
    """
    found = source.count(old)
    if found != 1:
        msg = f"echomq/{module} has this {found} times and not once; bring the mutant in tests/worker/mutants.py up to date:\n{old}"
        raise LookupError(msg)
    return source.replace(old, new)


def changed(mutant: Mutant) -> dict[str, str]:
    """Answer the changed modules of a mutant, by path below `echomq`."""
    texts: dict[str, str] = {}
    for module, old, new in mutant.changes:
        source = texts.get(module) or (SOURCE / "echomq" / module).read_text("utf-8")
        texts[module] = change(source, module, old, new)
    for module, text in texts.items():
        compile(text, module, "exec")
    return texts


def node(test: str) -> str:
    """Answer the pytest node of a test named in short."""
    file, _, function = test.partition("::")
    directory, _, name = file.rpartition("/")
    return f"tests/{directory}/test_{name}.py::test_{function}"


def run(mutant: Mutant) -> Caught:
    """Run the tests of a mutant until one fails."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        shutil.copytree(SOURCE / "echomq", Path(directory, "echomq"))
        for module, text in changed(mutant).items():
            Path(directory, "echomq", module).write_text(text, "utf-8")
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
        env |= {"PYTHONPATH": os.pathsep.join(each for each in (directory, env.get("PYTHONPATH", "")) if each)}
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "--timeout=30", "-p", "no:cacheprovider",
            "-m", "", *map(node, mutant.tests),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            return Caught("(it hung)", time.monotonic() - began, str(error))
    output = done.stdout + done.stderr
    failed = re.search(r"^(?:FAILED|ERROR) tests/\S*::(.*?)(?: - |$)", output, re.MULTILINE)
    assert (done.returncode == 1) == (failed is not None), output
    return Caught(failed[1] if failed else "", time.monotonic() - began, output)


def _m(name: str, *changes: tuple[str, str, str], by: str) -> Mutant:
    return Mutant(name, changes, tuple(by.split()))


# --- what the worker is made of --------------------------------------------------------------------------------------

RUN, LEASE, HEARTBEAT = "worker/run.py", "worker/lease.py", "worker/heartbeat.py"
INTAKE, SETTLE, EXECUTE = "worker/intake.py", "worker/settle.py", "worker/execute.py"
CONTROL, WATCHDOG, TIMERS = "worker/control.py", "worker/watchdog.py", "worker/timers.py"
PREFLIGHT, CALLS, NOTES = "worker/preflight.py", "worker/calls.py", "worker/notes.py"

DEADLINES = (
    _m(
        "the first deadline counts from the claim's reply",
        (RUN, "deadline = sent_at + self.options.lease", "deadline = anyio.current_time() + self.options.lease"),
        by="worker/deadlines::deadline_here_is_a_margin_before_the_servers[False-trio]",
    ),
    _m(
        "the intake says a claim was sent when its reply came",
        (INTAKE, "self._begin(calls, reply, started.sent_at)", "self._begin(calls, reply, anyio.current_time())"),
        by="worker/lease::claim_that_took_as_long_as_its_lease_begins_nothing[trio]",
    ),
    _m(
        "the first deadline has no margin",
        (RUN, "deadline = sent_at + self.options.lease - self.options.margin", "deadline = sent_at + self.options.lease"),
        by="worker/deadlines::deadline_here_is_a_margin_before_the_servers[False-trio]",
    ),
    _m(
        "a renewal counts from its reply",
        (HEARTBEAT, "lease.renewed(asked_at + ", "lease.renewed(anyio.current_time() + "),
        by="worker/deadlines::deadline_here_is_a_margin_before_the_servers[True-trio]",
    ),
    _m(
        "a renewed deadline has no margin",
        (HEARTBEAT, "self._lease - self._margin)", "self._lease)"),
        by="worker/deadlines::deadline_here_is_a_margin_before_the_servers[True-trio]",
    ),
    _m(
        "a renewal moves no deadline",
        (HEARTBEAT, "        lease.renewed(asked_at + self._lease - self._margin)\n", ""),
        by="worker/deadlines::heartbeat_renews_again_and_again[trio]",
    ),
    _m(
        "a renewal after the end moves the deadline",
        (LEASE, " and not self.over(anyio.current_time()):", ":"),
        by="worker/deadlines::renewal_after_the_end_moves_nothing[trio-over]",
    ),
    _m(
        "a renewal moves the deadline of a lost lease",
        (LEASE, "and self.reason is not Reason.LEASE_LOST and", "and"),
        by="worker/deadlines::renewal_after_the_end_moves_nothing[trio-lost]",
    ),
    _m(
        "a renewal moves the deadline of an ended handler",
        (LEASE, "if self.running and self.reason is not", "if self.reason is not"),
        by="worker/deadlines::renewal_after_the_end_moves_nothing[trio-ended]",
    ),
    _m(
        "a renewal moves the deadline back",
        (LEASE, "self.deadline = max(self.deadline, deadline)", "self.deadline = deadline"),
        by="worker/deadlines::renewals_answered_out_of_order_move_the_deadline_forward_only[trio]",
    ),
    _m(
        "a timeout takes the lease's place as the scope's deadline",
        (LEASE, "timeout_at, False\n                self.scope.deadline = min(self.deadline, self.timeout_at)",
         "timeout_at, False\n                self.scope.deadline = self.timeout_at"),
        by="worker/deadlines::deadline_here_is_a_margin_before_the_servers[False-trio]",
    ),
    _m(
        "a renewal makes the scope forget the timeout",
        (LEASE, "max(self.deadline, deadline)\n            self.scope.deadline = min(self.deadline, self.timeout_at)",
         "max(self.deadline, deadline)\n            self.scope.deadline = self.deadline"),
        by="worker/deadlines::renewal_keeps_the_timeout[trio]",
    ),
    _m(
        "a claim whose reply took as long as the lease is begun",
        (RUN, " and anyio.current_time() < deadline\n", "\n"),
        by="worker/lease::claim_that_took_as_long_as_its_lease_begins_nothing[trio]",
    ),
    _m(
        "what ended by its timeout is told as lost",
        (LEASE, "if self.deadline <= self.timeout_at else Reason.TIMEOUT", "if True else Reason.TIMEOUT"),
        by="worker/verdicts::timeout_fails_the_attempt[trio-False]",
    ),
    _m(
        "what ended by its lease is told as a timeout",
        (LEASE, "Reason.LEASE_LOST if self.deadline <=", "Reason.TIMEOUT if self.deadline <="),
        by="worker/outage::outage_beyond_the_lease_costs_a_stall_and_no_retry[trio]",
    ),
)  # fmt: skip

HEARTBEATS = (
    _m(
        "the heartbeat outlives its handler",
        (HEARTBEAT, "        self._due.pop(lease, None)\n", "        pass\n"),
        (HEARTBEAT, "if not lease.running or lease.reason is Reason.LEASE_LOST:\n            return",
         "if False:\n            return"),
        by="worker/deadlines::heartbeat_of_an_ended_handler_sends_nothing[trio]",
    ),
    _m(
        "an ended handler's lease stays in the heartbeat's memory",
        (HEARTBEAT, "        self._due.pop(lease, None)\n", "        pass\n"),
        by="worker/deadlines::heartbeat_remembers_no_ended_handler[trio]",
    ),
    _m(
        "a renewal that is tried again outlives its handler",
        (HEARTBEAT, "if not lease.running or lease.reason", "if lease.reason"),
        by="worker/deadlines::heartbeat_tries_again_only_while_the_handler_runs[trio-ended]",
    ),
    _m(
        "a lost lease is renewed",
        (HEARTBEAT, "if not lease.running or lease.reason is Reason.LEASE_LOST:", "if not lease.running:"),
        by="worker/deadlines::heartbeat_tries_again_only_while_the_handler_runs[trio-lost]",
    ),
    _m(
        "an error to a renewal ends the lease",
        (HEARTBEAT, "        if not isinstance(verdict, Verdict):\n",
         "        if not isinstance(verdict, Verdict):\n            lease.stop(Reason.LEASE_LOST)\n"),
        by="worker/heartbeat::silence_and_errors_end_nothing_before_the_deadline[trio]",
    ),
    _m(
        "a renewal that got an error is not tried again",
        (HEARTBEAT, "            self._timers.at(anyio.current_time() + min(RETRY,",
         "            (anyio.current_time() + min(RETRY,"),
        by="worker/heartbeat::silence_and_errors_end_nothing_before_the_deadline[trio]",
    ),
    _m(
        "the verdict \"lost\" is not heeded",
        (HEARTBEAT, "            lease.stop(Reason.LEASE_LOST, verdict.code)\n", ""),
        by="worker/lease::lost_lease_ends_the_handler_and_writes_nothing[trio]",
    ),
    _m(
        "a renewal's answer is heeded after the handler has ended",
        (HEARTBEAT, "        if not lease.running:\n            return\n        if not isinstance",
         "        if not isinstance"),
        by="worker/deadlines::heartbeat_heeds_no_answer_after_the_end[trio-ok]",
    ),
    _m(
        "one renewal a lease, and no more",
        (HEARTBEAT, "        self._add(lease, asked_at)\n", ""),
        by="worker/deadlines::heartbeat_renews_again_and_again[trio]",
    ),
    _m(
        "the first renewal is due when the lease is over",
        (HEARTBEAT, "moment = renewed_at + self._lease / 3", "moment = renewed_at + self._lease"),
        by="worker/deadlines::heartbeat_renews_again_and_again[trio]",
    ),
    _m(
        "short jobs are renewed at once",
        (HEARTBEAT, "moment = renewed_at + self._lease / 3", "moment = renewed_at"),
        by="worker/deadlines::heartbeat_of_a_short_job_sends_nothing[trio]",
    ),
    _m(
        "a lease that is due before older ones waits for them",
        (HEARTBEAT, "if moment < self._latest - self._lease * TOGETHER:", "if False:"),
        by="worker/deadlines::heartbeat_of_a_claim_that_was_long_on_its_way_is_not_late[trio]",
    ),
    _m(
        "a cancel request in a renewal's answer is not heeded",
        (HEARTBEAT, 'if verdict.code == "cancel":', "if False:"),
        by="worker/cancel::cancel_comes_by_heartbeat_when_the_channel_is_deaf[trio]",
    ),
    _m(
        "a refused note ends nothing",
        (NOTES, "            self._lease.stop(Reason.LEASE_LOST, verdict.code)\n", "            pass\n"),
        by="worker/lease::refused_note_ends_the_lease[trio]",
    ),
    _m(
        "renewals wait behind bulk",
        ("wire/client.py", '    {"claim", "extend", "complete"', '    {"claim", "complete"'),
        by="wire/resend::verbs_that_a_lease_depends_on_have_their_own_connection[trio]",
    ),
)  # fmt: skip

ENDINGS = (
    _m(
        "a lease is given back before its handler has ended",
        (RUN, "            lease.stop(Reason.SHUTDOWN)\n",
         "            lease.stop(Reason.SHUTDOWN)\n            self._settler.release(lease)\n"),
        by="worker/shutdown::stop_cancels_what_outlives_grace_and_gives_it_back[trio]",
    ),
    _m(
        "the core is not shielded",
        (RUN, "with anyio.CancelScope(shield=True):\n                await self._core()",
         "with anyio.CancelScope():\n                await self._core()"),
        by="worker/shutdown::outside_cancellation_ends_a_worker_in_order[trio]",
    ),
    _m(
        "the last verdicts are not waited for",
        (RUN, "                await self._settler.wait_below(1)\n", ""),
        by="worker/settle::stop_waits_for_the_last_verdicts[trio]",
    ),
    _m(
        "a claim on its way is not waited for",
        (RUN, "                await self._claims_over.wait()\n", ""),
        by="worker/intake::stop_waits_for_a_claim_on_its_way[trio]",
    ),
    _m(
        "jobs of a claim that returns while stopping are begun",
        (RUN, "open_ = not self._stop.is_set() and ", "open_ = "),
        by="worker/shutdown::claim_that_returns_while_stopping_is_given_back[trio]",
    ),
    _m(
        "jobs of a claim that returns while stopping are kept",
        (RUN, "                self._settler.release(lease)\n            elif", "                pass\n            elif"),
        by="worker/shutdown::claim_that_returns_while_stopping_is_given_back[trio]",
    ),
    _m(
        "claiming goes on while stopping",
        (INTAKE, "while self._ahead is not None or not self.stopping:", "while True:"),
        (INTAKE, "if self._ahead is None and (free <= 0 or self.stopping):", "if self._ahead is None and free <= 0:"),
        (INTAKE, "if free > 0 and not self.stopping:", "if free > 0:"),
        (INTAKE, "                if self.stopping:\n                    return\n", ""),
        (INTAKE, "        self.stopping = True\n", ""),
        by="worker/shutdown::stop_lets_handlers_end_within_grace[trio]",
    ),
    _m(
        "handlers get no grace",
        (RUN, "        with anyio.move_on_after(options.grace):\n            await first_of(self._hurry.wait, self._until_drained)\n", ""),
        by="worker/shutdown::stop_lets_handlers_end_within_grace[trio]",
    ),
    _m(
        "grace has no end",
        (RUN, "with anyio.move_on_after(options.grace):", "with anyio.CancelScope():"),
        by="worker/command::signal_gives_unfinished_work_back",
    ),
    _m(
        "a second stop changes nothing",
        (RUN, "            self._hurry.set()\n        self._told.set()", "            pass\n        self._told.set()"),
        by="worker/command::second_signal_skips_the_waiting",
    ),
    _m(
        "`run` returns before its handlers have ended",
        (RUN, "        await self._until_drained()  # however", "        # however"),
        by="worker/shutdown::handler_that_shields_itself_is_renewed_and_named[trio]",
    ),
    _m(
        "renewals end with the grace",
        (RUN, "            lease.stop(Reason.SHUTDOWN)\n",
         "            lease.stop(Reason.SHUTDOWN)\n            self._heartbeat.forget(lease)\n"),
        by="worker/shutdown::handler_that_shields_itself_is_renewed_and_named[trio]",
    ),
    _m(
        "nobody is rung for on leaving the park",
        (RUN, "                await self._intake.ring()\n", ""),
        by="worker/idle::worker_that_stops_hands_its_token_on[trio]",
    ),
    _m(
        "the end waits for the server for ever",
        (RUN, "with anyio.CancelScope(deadline=max(end, anyio.current_time() + EPSILON)):", "with anyio.CancelScope():"),
        by="worker/shutdown::stop_while_the_server_is_away[trio-refused]",
    ),
    _m(
        "a part that fails leaves the others running",
        (RUN, "        self._failure = self._failure or error\n        self.stop()", "        self._failure = self._failure or error"),
        by="worker/shutdown::failure_of_a_part_stops_the_worker_in_order[trio]",
    ),
    _m(
        "a part's failure is not told",
        (RUN, "        self._failure = self._failure or error\n        self.stop()", "        self.stop()"),
        by="worker/shutdown::failure_of_a_part_stops_the_worker_in_order[trio]",
    ),
    _m(
        "a worker whose server was never up cannot be stopped",
        (PREFLIGHT, "while not stop.is_set():", "while True:"),
        by="worker/intake::stop_does_not_wait_for_a_server_that_was_never_up[trio]",
    ),
)  # fmt: skip

VERDICTS = (
    _m(
        "a verdict is withheld once the lease is over here",
        (SETTLE, "sent = self._verdict(", "sent = None if lease.over(anyio.current_time()) else self._verdict("),
        by="worker/settle::completion_after_the_local_deadline_is_sent[trio]",
    ),
    _m(
        "a handler that finished after it was stopped has not finished",
        (EXECUTE, "        else:\n            return outcome\n", "        elif not lease.scope.cancel_called:\n            return outcome\n"),
        by="worker/cancel::completion_wins_over_a_request[trio]",
    ),
    _m(
        "a completion is not taken over after the worker's own claim of the job",
        (RUN, "(self._settler.take_over(lease) or not self._last.admits(lease))", "not self._last.admits(lease)"),
        by="worker/lease::completion_that_an_outage_delayed_is_accepted[trio-cut]",
    ),
    _m(
        "a refused completion is not kept for the worker's own claim",
        (SETTLE, "                self._late.add(lease)\n", ""),
        by="worker/settle::refused_completion_is_taken_over[trio]",
    ),
    _m(
        "a completion is taken over although somebody else had the job",
        (SETTLE, "was.id == claimed.id and was.nonce == holder and", "was.id == claimed.id and"),
        by="worker/settle::completion_is_taken_over_only_for_the_same_work[trio-holder]",
    ),
    _m(
        "a completion in another queue is taken over",
        (SETTLE, " and old.calls is lease.calls:", ":"),
        by="worker/settle::completion_is_taken_over_only_for_the_same_work[trio-queue]",
    ),
    _m(
        "a completion of another job is taken over",
        (SETTLE, "if was.id == claimed.id and was.nonce", "if was.nonce"),
        by="worker/settle::completion_is_taken_over_only_for_the_same_work[trio-job]",
    ),
    _m(
        "a failure is taken over as a completion",
        (SETTLE, "lease.completion = item if type(item) is Completion else None", "lease.completion = item"),
        by="worker/settle::completion_is_taken_over_only_for_the_same_work[trio-failure]",
    ),
    _m(
        "a completion is taken over with the old claim's fence",
        (SETTLE, "attrs.evolve(old.completion, token=claimed.token, nonce=claimed.nonce)", "old.completion"),
        by="worker/settle::refused_completion_is_taken_over[trio]",
    ),
    _m(
        "a verdict that the server could not take is not sent again",
        (SETTLE, "if time.monotonic() + AGAIN < self._open[lease]:", "if False:"),
        by="worker/settle::verdict_that_the_server_could_not_take_is_sent_again[trio]",
    ),
    _m(
        "a verdict is tried for ever",
        (SETTLE, "if time.monotonic() + AGAIN < self._open[lease]:", "if True:"),
        by="worker/settle::verdict_is_given_up_after_its_time[trio]",
    ),
    _m(
        "a lost lease is given back",
        (SETTLE, "            case Stopped(Reason.LEASE_LOST):\n                return None",
         "            case Stopped(Reason.LEASE_LOST):\n                return calls.release, Release(*fence)"),
        by="worker/lease::lost_lease_ends_the_handler_and_writes_nothing[trio]",
    ),
    _m(
        "a timeout spends nothing",
        (SETTLE, "                return self._failed(lease, _timeout(lease), handler)",
         "                return calls.release, Release(*fence)"),
        by="worker/verdicts::timeout_fails_the_attempt[trio-False]",
    ),
    _m(
        "a shutdown spends budget",
        (SETTLE, "            case Stopped(Reason.SHUTDOWN):\n                return calls.release, Release(*fence)",
         "            case Stopped(Reason.SHUTDOWN):\n                return self._failed(lease, TimeoutError(), handler)"),
        by="worker/shutdown::stop_cancels_what_outlives_grace_and_gives_it_back[trio]",
    ),
    _m(
        "an unfit job burns budget",
        (SETTLE, "return lease.calls.snooze, Snoozed(c.id, c.token, c.nonce, to_ms(delay), unfit=True)",
         "return self._failed(lease, error, None, delay=delay)"),
        by="worker/unfit::job_that_does_not_fit_is_put_off_and_then_buried[unknown-trio]",
    ),
    _m(
        "an unfit job is put off for ever",
        (SETTLE, ", unfit=True)", ")"),
        by="worker/unfit::job_that_does_not_fit_is_put_off_and_then_buried[unknown-trio]",
    ),
    _m(
        "a payload that is no call is put off",
        (EXECUTE, "        return Poison(error)", "        return Unfit(error)"),
        by="worker/unfit::payload_that_is_no_call_is_buried_with_its_bytes[trio]",
    ),
    _m(
        "a snooze spends budget",
        (SETTLE, "                return calls.snooze, Snoozed(c.id, c.token, c.nonce, to_ms(leaf.after))",
         "                return self._failed(lease, leaf, handler, delay=leaf.after)"),
        by="worker/verdicts::snooze_spends_nothing[trio]",
    ),
    _m(
        "a verdict within a task group is a failure",
        (SETTLE, "        leaf = unfold(error)\n", "        leaf = error\n"),
        by="worker/verdicts::verdict_within_a_task_group_is_still_a_verdict[trio]",
    ),
    _m(
        "the noise of a cleanup is a failure",
        (EXECUTE, "    return None if scope.cancel_called else outcome", "    return outcome"),
        by="worker/cancel::timed_out_thread_is_told_so[trio]",
    ),
    _m(
        "a handler's SystemExit ends the worker",
        (EXECUTE, "return holds(error, KeyboardInterrupt) or", "return isinstance(error, (KeyboardInterrupt, SystemExit)) or"),
        (RUN, "            if holds(error, KeyboardInterrupt):", "            if True:"),
        by="worker/verdicts::strange_exceptions_fail_their_job_and_nothing_else[trio]",
    ),
    _m(
        "Ctrl-C in a handler is its failure",
        (EXECUTE, "return holds(error, KeyboardInterrupt) or", "return"),
        by="worker/verdicts::keyboard_interrupt_in_a_handler_stops_the_worker_in_order[trio]",
    ),
    _m(
        "a job's own budget does not count",
        (SETTLE, "budget = own if own is not None else handler", "budget = handler"),
        by="worker/verdicts::exception_fails_the_job_until_its_budget_is_spent[trio]",
    ),
    _m(
        "a task's timeout goes before the job's own",
        (EXECUTE, "return handler.timeout if own is None else", "return handler.timeout or"),
        by="worker/verdicts::timeout_fails_the_attempt[trio-True]",
    ),
)  # fmt: skip

OTHERS = (
    _m(
        "jobs on their last life run together",
        (RUN, "(self._settler.take_over(lease) or not self._last.admits(lease))", "self._settler.take_over(lease)"),
        by="worker/last_lives::of_two_on_their_last_life_one_runs[trio]",
    ),
    _m(
        "a job on its last life begins before the others are back",
        (RUN, "if lease is not self._last.current or await self._last.wait(lease):", "if True:"),
        by="worker/last_lives::last_life_waits_until_the_others_are_back[trio]",
    ),
    _m(
        "claims go on while a job waits to be alone on its last life",
        (RUN, "self._watchdog.late or self._last.waiting or", "self._watchdog.late or"),
        by="worker/last_lives::first_of_many_begins[trio]",
    ),
    _m(
        "only one job ever runs on its last life",
        (RUN, "        self._last.left(lease)\n", ""),
        by="worker/last_lives::of_two_on_their_last_life_one_runs[trio]",
    ),
    _m(
        "a cancel request for another claim is obeyed",
        (RUN, "next((lease for lease in of_job if lease.claimed.token == token), None)", "next(of_job, None)"),
        by="worker/cancel::cancel_of_another_attempt_is_ignored[trio]",
    ),
    _m(
        "a cancel request by channel is not heeded",
        (CONTROL, "                lease.stop(reason_of_request(reason), reason)", "                pass"),
        by="worker/cancel::cancel_by_channel_ends_the_handler_and_the_job[trio]",
    ),
    _m(
        "a later reason replaces an earlier one",
        (LEASE, "if self.reason is None or reason is Reason.LEASE_LOST:", "if True:"),
        by="worker/deadlines::first_reason_holds_unless_the_lease_is_lost[trio]",
    ),
    _m(
        "a lost lease does not override a cancel request",
        (LEASE, "if self.reason is None or reason is Reason.LEASE_LOST:", "if self.reason is None:"),
        by="worker/deadlines::first_reason_holds_unless_the_lease_is_lost[trio] worker/lease::lost_lease_overrides_a_cancel_request[trio]",
    ),
    _m(
        "a handler that has ended is given a reason",
        (LEASE, "        if not self.running:\n            return\n        if self.reason is None",
         "        if self.reason is None"),
        by="worker/deadlines::first_reason_holds_unless_the_lease_is_lost[trio]",
    ),
    _m(
        "more is claimed than there are free slots",
        (INTAKE, "count = min(free, self._portion)", "count = free + 1"),
        by="worker/basics::worker_respects_its_concurrency[trio]",
    ),
    _m(
        "one queue is asked first each time",
        (INTAKE, "            self._queues.rotate(-1)\n", ""),
        by="worker/basics::worker_serves_queues_in_turn[trio]",
    ),
    _m(
        "a claim that fails is tried again at once",
        (INTAKE, "                    await self._pause(wait)", "                    pass"),
        (INTAKE, "if calls in self._failing and now <", "if calls in () and sent_at <"),
        by="worker/intake::claims_that_fail_are_spaced[trio]",
    ),
    _m(
        "a park that fails is tried again at once",
        (INTAKE, "            await self._pause(backoff(self._park_errors + 1, BACKOFF_FIRST, BACKOFF_CAP, self._random))", "            pass"),
        by="worker/intake::parks_that_fail_are_spaced_and_cost_latency_only[trio]",
    ),
    _m(
        "a park's error ends the worker",
        (INTAKE, "        except EchoMQError as error:\n            if self._told.is_new(str(error), _PARK)",
         "        except ProtocolMismatchError as error:\n            if self._told.is_new(str(error), _PARK)"),
        by="worker/intake::parks_that_fail_are_spaced_and_cost_latency_only[trio]",
    ),
    _m(
        "the next delayed job is waited for a second late",
        (INTAKE, "more = reply.next_ms / 1000 if len(reply.jobs) < started.count else 0.0", "more = CAP if len(reply.jobs) < started.count else 0.0"),
        by="worker/idle::delayed_job_starts_when_it_is_due[trio]",
    ),
    _m(
        "a claim that was filled says when the next job is due",
        (INTAKE, "len(reply.jobs) < started.count else", "len(reply.jobs) < free else"),
        by="worker/idle::delayed_job_starts_when_it_is_due_after_a_claim_that_was_filled[trio]",
    ),
    _m(
        "the claim of a ring is forgotten by a stop",
        (INTAKE, "while self._ahead is not None or not self.stopping:", "while not self.stopping:"),
        by="worker/intake::claim_that_a_ring_sent_off_is_not_forgotten_by_a_stop[trio]",
    ),
    _m(
        "a ring sends a claim off although no slot is free",
        (INTAKE, "if free > 0 and not self.stopping:", "if not self.stopping:"),
        (INTAKE, "count = min(free, self._portion)", "count = max(1, min(free, self._portion))"),
        by="worker/intake::ring_claims_nothing_for_a_late_loop[trio]",
    ),
    _m(
        "one claim asks for all slots",
        (INTAKE, "count = min(free, self._portion)", "count = free"),
        by="worker/basics::claims_come_in_portions[trio-100-50]",
    ),
    _m(
        "a freed slot is not told to the intake",
        (RUN, "        self._intake.slot_freed()\n", "        pass\n"),
        by="worker/basics::worker_respects_its_concurrency[trio]",
    ),
    _m(
        "unsettled verdicts do not hold claims back",
        (RUN, "if self._watchdog.late or self._last.waiting or self._settler.unsettled >= 4 * self.options.concurrency:", "if self._watchdog.late:"),
        by="worker/intake::verdicts_that_pile_up_hold_claims_back[trio]",
    ),
    _m(
        "a late loop claims",
        (RUN, "if self._watchdog.late or self._last", "if self._last"),
        by="worker/watchdog::late_loop_claims_nothing_until_it_keeps_time_again[trio]",
    ),
    _m(
        "a loop that keeps time again does not claim",
        (WATCHDOG, "            self._on_time()\n", "            pass\n"),
        by="worker/watchdog::late_loop_claims_nothing_until_it_keeps_time_again[trio]",
    ),
    _m(
        "time that the machine slept does not count",
        (LEASE, "        self.deadline -= seconds\n", ""),
        by="worker/watchdog::suspended_machine_loses_what_expired_meanwhile[trio]",
    ),
    _m(
        "the watchdog ends no scope that is over",
        (LEASE, "            self.stop(Reason.LEASE_LOST, UNRENEWED)", "            pass"),
        by="worker/intake::watchdog_ends_what_is_over[trio-lease]",
    ),
    _m(
        "the watchdog tells no handler that its time is up",
        (LEASE, "            self.stop(Reason.TIMEOUT)", "            pass"),
        by="worker/intake::watchdog_ends_what_is_over[trio-timeout]",
    ),
    _m(
        "ready while disconnected",
        (RUN, "fresh and self._wire.connected and not", "fresh and not"),
        (RUN, "    def _was_disconnected(self) -> None:\n        self._served_at = -math.inf", "    def _was_disconnected(self) -> None:\n        pass"),
        by="worker/outage::server_restart_costs_nothing[trio-restart]",
    ),
    _m(
        "ready again before a claim has succeeded",
        (RUN, "    def _was_disconnected(self) -> None:\n        self._served_at = -math.inf", "    def _was_disconnected(self) -> None:\n        pass"),
        by="worker/outage::ready_only_after_a_claim_has_succeeded_again[trio]",
    ),
    _m(
        "ready while every claim is refused",
        (RUN, " and not self._intake.refused", ""),
        by="worker/intake::worker_that_the_server_refuses_is_not_ready[trio]",
    ),
    _m(
        "ready while the loop is late",
        (RUN, "and not self._watchdog.late and", "and"),
        by="worker/watchdog::late_loop_claims_nothing_until_it_keeps_time_again[trio]",
    ),
    _m(
        "ready while stopping",
        (RUN, "self._watchdog.late and not self._stop.is_set()", "self._watchdog.late"),
        by="worker/health::health_while_stopping[trio]",
    ),
    _m(
        "a worker says that it has started before it has claimed",
        (RUN, "        self._started = task_status\n", "        task_status.started(self)\n"),
        by="worker/basics::worker_tells_that_it_has_started_only_after_a_claim[trio]",
    ),
    _m(
        "a timer that is due sooner waits for the others",
        (TIMERS, "sooner = not self._heap or moment < self._heap[0][0]", "sooner = not self._heap"),
        by="worker/intake::sooner_timer_is_not_late[trio]",
    ),
)  # fmt: skip

BATCH, GATHER, TASK_APP, SIGNATURE = "worker/batch.py", "worker/gather.py", "app.py", "_signature.py"

BATCHES = (
    _m(
        "items that the handler has not settled stay without a verdict",
        (BATCH, "                self._finish(entry, self._verdict(entry, outcome))\n", "                pass\n"),
        by="worker/batches::batch_completes_with_its_handler[trio]",
    ),
    _m(
        "an item is settled at the end of its handler only",
        (BATCH, "        self._finish(entry, Returned(result) if error is None else Raised(error))\n", "        pass\n"),
        by="worker/batches::verdicts_are_sent_at_once[trio]",
    ),
    _m(
        "a handler that raises fails what is settled too",
        (BATCH, "        for entry in self._entries:\n            if entry.open:\n                self._finish(entry, self._verdict",
         "        for entry in self._entries:\n            if True:\n                self._finish(entry, self._verdict"),
        by="worker/batches::exception_is_that_of_the_items_not_settled[trio-error0-1]",
    ),
    _m(
        "an item is settled twice",
        (BATCH, "        if not entry.open:\n            raise JobStateError", "        if False:\n            raise JobStateError"),
        by="worker/batches::item_is_settled_once[trio]",
    ),
    _m(
        "an item whose work runs is settled by the handler",
        (BATCH, "        if entry.worked:\n            raise JobStateError", "        if False:\n            raise JobStateError"),
        by="worker/batches::work_settles_its_item_alone[trio]",
    ),
    _m(
        "a batch keeps its items when it is over",
        (BATCH, "        self._by_item.clear()\n", ""),
        by="worker/batches::item_is_settled_once[trio]",
    ),
    _m(
        "work goes on when its handler has raised",
        (BATCH, "                if not isinstance(outcome, Returned):\n                    works.cancel_scope.cancel()\n", ""),
        by="worker/batches::work_ends_with_a_handler_that_raises[trio]",
    ),
    _m(
        "Ctrl-C in the work of an item is its failure",
        (BATCH, "            if holds(error, KeyboardInterrupt):", "            if False:"),
        by="worker/batches::keyboard_interrupt_gives_the_batch_back[trio-work]",
    ),
    _m(
        "Ctrl-C in the work of an item is forgotten",
        (BATCH, "        if self._interrupt is not None:\n            raise self._interrupt\n", ""),
        by="worker/batches::keyboard_interrupt_gives_the_batch_back[trio-work]",
    ),
    _m(
        "a lost or cancelled item stays in the batch",
        (BATCH, "entry.left = entry.left or reason in AT_ONCE or own", "entry.left = entry.left or own"),
        by="worker/batches::cancelled_item_leaves_at_once[trio-False]",
    ),
    _m(
        "a lost or cancelled item is settled when its handler has ended",
        (BATCH, "        elif reason in AT_ONCE:\n            self._finish(entry, Stopped(entry.lease.why()))\n        if self._running",
         "        if self._running"),
        by="worker/batches::cancelled_item_leaves_at_once[trio-False] worker/batches::lost_item_leaves_and_the_others_stay[trio-False]",
    ),
    _m(
        "the work of an item that has left goes on",
        (BATCH, "        if entry.work is not None:\n            entry.work.cancel()\n        elif", "        if entry.work is not None:\n            pass\n        elif"),
        by="worker/batches::lost_item_leaves_and_the_others_stay[trio-True]",
    ),
    _m(
        "a cancelled item is settled before its work has cleaned up",
        (BATCH, "            entry.work.cancel()\n        elif reason in AT_ONCE:", "            entry.work.cancel()\n        if reason in AT_ONCE:"),
        by="worker/batches::cancelled_item_leaves_at_once[trio-True]",
    ),
    _m(
        "work that was stopped is settled by nobody while the handler goes on",
        (BATCH, "        elif entry.lease.reason in AT_ONCE:\n            self._finish(entry, Stopped(entry.lease.why()))\n\n", "\n"),
        by="worker/batches::cancelled_item_leaves_at_once[trio-True]",
    ),
    _m(
        "a handler goes on when nothing is left",
        (BATCH, "        if self._running == 0:\n            self._scope.cancel()\n", ""),
        by="worker/batches::handler_is_cancelled_when_nothing_is_left[trio]",
    ),
    _m(
        "a handler is cancelled when the first item leaves",
        (BATCH, "        if self._running == 0:\n            self._scope.cancel()\n", "        self._scope.cancel()\n"),
        by="worker/batches::handler_is_cancelled_when_nothing_is_left[trio]",
    ),
    _m(
        "an item that is settled counts as one that runs",
        (BATCH, "            entry.stopped = True  # nothing is left to be stopped\n            self._running -= 1\n", "            pass\n"),
        by="worker/batches::handler_is_cancelled_when_nothing_is_left[trio]",
    ),
    _m(
        "a timeout of one item's own is the whole batch's",
        (BATCH, "(entry.own_time or entry.lease.at_deadline)", "entry.lease.at_deadline"),
        by="worker/batches::item_with_a_timeout_of_its_own_leaves_by_itself[trio]",
    ),
    _m(
        "the deadlines of a batch are left to the watchdog",
        (BATCH, "        self._watch()\n        outcome = None", "        outcome = None"),
        by="worker/batches::batch_ends_before_its_leases_do_on_the_server[trio-False]",
    ),
    _m(
        "the deadlines of a batch are looked at once",
        (BATCH, "                entry.lease.look(now)\n        self._watch()\n", "                entry.lease.look(now)\n"),
        by="worker/batches::batch_ends_before_its_leases_do_on_the_server[trio-True]",
    ),
    _m(
        "a handler without leases has no timeout",
        (BATCH, "        self._scope.deadline = max(lease.timeout_at for lease in leases)\n", ""),
        by="worker/batches::handler_of_a_settled_batch_ends_by_its_timeout[trio]",
    ),
    _m(
        "a handler without leases takes no slot",
        (RUN, "len(self._leases) - bare", "len(self._leases)"),
        by="worker/batches::handler_of_a_settled_batch_ends_by_its_timeout[trio]",
    ),
    _m(
        "a handler without leases is not stopped",
        (RUN, "            run.stop()\n", "            pass\n"),
        by="worker/batches::stop_ends_a_handler_that_has_settled_its_batch[trio]",
    ),
    _m(
        "a shutdown does not wait for a handler without leases",
        (RUN, "        while self._leases or self._batches:", "        while self._leases:"),
        by="worker/batches::stop_waits_for_a_handler_that_has_settled_its_batch[trio]",
    ),
    _m(
        "a burst does not wait for a handler without leases",
        (RUN, "not (self._leases or self._batches or self._settler", "not (self._leases or self._settler"),
        by="worker/batches::burst_waits_for_a_handler_that_has_settled_its_batch[trio]",
    ),
    _m(
        "work that a shutdown stopped is done because its handler has returned",
        (BATCH, "        if returned and not entry.left and not entry.worked:", "        if returned and not entry.left:"),
        by="worker/batches::shutdown_gives_back_what_is_not_settled[trio-True-stop]",
    ),
    _m(
        "an item that has left is done because its handler has returned",
        (BATCH, "        if returned and not entry.left and not entry.worked:", "        if returned and not entry.worked:"),
        by="worker/batches::item_with_a_timeout_of_its_own_leaves_by_itself[trio]",
    ),
    _m(
        "an item on its last life is in one batch with others",
        (RUN, "                elif lease is self._last.current:\n", "                elif False:\n"),
        by="worker/batches::item_on_its_last_life_is_a_batch_of_one[trio]",
    ),
    _m(
        "a batch holds what is for another task",
        (RUN, "gathered = handler is not None and handler.batch is not None", "gathered = calls.batch is not None"),
        by="worker/batches::item_that_cannot_be_run_leaves_the_others_alone[trio]",
    ),
    _m(
        "batches may be larger than the worker",
        (GATHER, "    if handler.batch.max_size > options.concurrency:", "    if False:"),
        by="worker/batches::worker_refuses_batches_larger_than_its_slots[trio]",
    ),
    _m(
        "a claim for batches asks for what is free",
        (GATHER, "        return min(free, self.size)", "        return free"),
        by="worker/batches::batch_is_no_larger_than_its_size[trio]",
    ),
    _m(
        "a batch is asked for without room",
        (GATHER, "        return self._short_since + SHORT - now", "        return 0.0"),
        by="worker/gather::batch_waits_for_room_and_is_woken_by_it[trio]",
    ),
    _m(
        "room for a batch wakes nobody",
        (INTAKE, "            self._park_scope.cancel()  # the doorbell", "            pass  # the doorbell"),
        by="worker/gather::batch_waits_for_room_and_is_woken_by_it[trio]",
    ),
    _m(
        "a batch waits for room for ever",
        (GATHER, "            self._short_since = now\n", "            self._short_since = math.inf\n"),
        (GATHER, "from typing import TYPE_CHECKING", "import math\nfrom typing import TYPE_CHECKING"),
        by="worker/gather::batch_does_not_wait_for_room_for_ever[trio]",
    ),
    _m(
        "with room for less a claim waits for a whole batch",
        (CALLS, "min(batch.min_size or batch.max_size, count)", "batch.min_size or batch.max_size"),
        by="worker/gather::batch_does_not_wait_for_room_for_ever[trio]",
    ),
    _m(
        "a claim does not say for how long to linger",
        (CALLS, "linger_ms=linger,", "linger_ms=0,"),
        by="worker/gather::batch_waits_for_others_without_a_lease[trio]",
    ),
    _m(
        "a claim does not say how many are enough",
        (CALLS, "min_size=least,", "min_size=1,"),
        by="worker/gather::batch_waits_for_others_without_a_lease[trio]",
    ),
    _m(
        "a claim does not say that a batch is of one lane",
        (CALLS, "by_lane=batch is not None and batch.by_lane", "by_lane=False"),
        by="worker/gather::batch_is_of_one_lane[trio]",
    ),
    _m(
        "each arrival makes a claim",
        (GATHER, "now + self._step if self._rung and not jobs else 0.0", "0.0"),
        by="worker/gather::arrivals_do_not_make_claims[False-trio]",
    ),
    _m(
        "each round makes a claim",
        (GATHER, "        self._unripe_until = 0.0 if jobs else now + min(wait, self._step)\n", ""),
        by="worker/gather::arrivals_do_not_make_claims[True-trio]",
    ),
    _m(
        "a ring that was not followed is forgotten",
        (INTAKE, "            until = min(until, anyio.current_time() + deaf)\n", ""),
        by="worker/gather::full_batch_is_noticed_soon[trio]",
    ),
    _m(
        "a look of its own makes a worker deaf to the first arrival",
        (GATHER, "now + self._step if self._rung and not jobs else 0.0", "now + self._step"),
        by="worker/gather::first_arrival_of_an_idle_queue_is_heard_at_once[trio]",
    ),
    _m(
        "a task of batches shares its queue with one that was there before",
        (TASK_APP, "if other.queue == task.queue and (other.batch or task.batch):", "if other.queue == task.queue and other.batch:"),
        by="unit/batches::task_of_batches_owns_its_queue[False-True]",
    ),
    _m(
        "a task of batches shares its queue with one that comes later",
        (TASK_APP, "if other.queue == task.queue and (other.batch or task.batch):", "if other.queue == task.queue and task.batch:"),
        by="unit/batches::task_of_batches_owns_its_queue[True-False]",
    ),
    _m(
        "a handler of batches may have any shape",
        (SIGNATURE, "        if not is_async(function) or not right:", "        if not found:"),
        by="unit/batches::handler_of_batches_has_one_shape[_plain]",
    ),
)  # fmt: skip

# --- the wire's rules of cancellation and resending ------------------------------------------------------------------

WIRE_CALLS, PIPELINE, GROUP, SLOTS, CLIENT = (
    "wire/calls.py", "wire/pipeline.py", "wire/group.py", "wire/slots.py", "wire/client.py",
)  # fmt: skip

WIRE = (
    _m(
        "a call that was given up is sent again",
        (PIPELINE, "            if not call.wanted:\n                call.dropped()\n            elif call.lost():",
         "            if call.lost():"),
        by="wire/faults::sent_call_of_a_cancelled_caller_is_not_sent_again[trio] wire/pipeline::pipeline_sorts_unanswered_calls_when_disconnected",
    ),
    _m(
        "a group call that nobody waits for is sent again",
        (GROUP, "any(not rider.gone for rider in self._riders)", "True"),
        by="wire/faults::sent_call_of_a_cancelled_caller_is_not_sent_again[trio]",
    ),
    _m(
        "a group call of which one caller has left is not sent again",
        (GROUP, "any(not rider.gone for rider in self._riders)", "all(not rider.gone for rider in self._riders)"),
        by="wire/group::call_with_one_caller_left_is_sent_again_byte_for_byte[trio]",
    ),
    _m(
        "a call that the server would not take is tried again for nobody",
        (PIPELINE, "        elif not call.wanted:\n            call.dropped()  # it has not run, and nobody asks for it any more\n", ""),
        by="wire/pipeline::pipeline_sends_refused_calls_again_unless_unwanted",
    ),
    _m(
        "a group call draws a new number when it is sent again",
        (GROUP, "        return self._bytes\n\n    @property",
         "        if self.ran_perhaps:\n            self._bytes = assemble(self._group.head, self._group.draw(), self._riders)\n        return self._bytes\n\n    @property"),
        by="wire/faults::reply_lost_after_the_call_ran_is_answered_once[trio]",
    ),
    _m(
        "a claim draws a new number when it is sent again",
        (WIRE_CALLS, "        if self._bytes is None:\n            self.transition =", "        if True:\n            self.transition ="),
        by="wire/faults::claim_whose_reply_is_lost_answers_the_same_jobs[trio]",
    ),
    _m(
        "a plain command that may have run is sent again",
        (PIPELINE, "            elif call.lost():", "            elif call.lost() or call.script is None:"),
        by="wire/faults::plain_command_is_never_sent_twice[trio]",
    ),
    _m(
        "a script that must not run twice is sent again without a number",
        (WIRE_CALLS, "return self.remembered or may_repeat(self._transition)", "return True"),
        by="wire/resend::unnumbered_call_that_would_remember_is_not_sent_twice[trio]",
    ),
    _m(
        "a read whose reply was lost fails",
        (WIRE_CALLS, "return self.remembered or may_repeat(self._transition)", "return self.remembered"),
        by="wire/resend::read_whose_reply_is_lost_is_sent_again[trio]",
    ),
    _m(
        "what is sent again goes after what is new",
        (PIPELINE, "call = (again.pop() if again else None) or outbox.pop()", "call = outbox.pop() or again.pop()"),
        by="wire/pipeline::pipeline_sorts_unanswered_calls_when_disconnected",
    ),
    _m(
        "what is sent again loses its order",
        (PIPELINE, "        self._again = Line([*first, *waiting])", "        self._again = Line([*reversed(first), *waiting])"),
        by="wire/pipeline::pipeline_sorts_unanswered_calls_when_disconnected",
    ),
    _m(
        "an error to a repetition is told as the call's",
        (PIPELINE, "if call.ran_perhaps and call.remembered:", "if False:"),
        by="wire/faults::error_to_a_resend_leaves_the_outcome_unknown[trio]",
    ),
    _m(
        "a forgotten script is not loaded again",
        (PIPELINE, "            self._reload(call, text)", "            self._fail(call, text)"),
        by="wire/client::noscript_in_a_pipeline_harms_no_other_reply[trio]",
    ),
    _m(
        "a call that met a forgotten script is not repeated",
        (PIPELINE, "        self._put_again(call)\n        self._driver.wake()", "        self._fail(call, text)\n        self._driver.wake()"),
        by="wire/client::noscript_in_a_pipeline_harms_no_other_reply[trio]",
    ),
    _m(
        "a group hands its verdicts to the wrong callers",
        (GROUP, "for rider, verdict in zip(riders, verdicts, strict=True):", "for rider, verdict in zip(riders, reversed(verdicts), strict=True):"),
        by="wire/group::verdicts_go_to_their_items[trio]",
    ),
    _m(
        "an error of a whole call is told to one caller",
        (GROUP, "        for rider in self._riders:\n            rider.end(make())", "        for rider in self._riders[:1]:\n            rider.end(make())"),
        by="wire/group::whole_call_error_goes_to_every_caller[trio]",
    ),
    _m(
        "an unsent item of a cancelled caller is sent",
        (GROUP, "            self._line.leave(entry)", "            pass"),
        by="wire/group::cancelled_caller_takes_its_item_out_of_an_unsent_call[trio]",
    ),
    _m(
        "a cancelled `many` leaves its items in the line",
        (GROUP, "            window.leave()\n            raise", "            raise"),
        by="wire/group::cancelled_many_takes_its_items_out[trio]",
    ),
    _m(
        "an unsent command of a cancelled caller is sent",
        (WIRE_CALLS, "            line, self.line = self.line, None\n            line.leave(self)\n            self.dropped()",
         "            self._abandoned = True"),
        by="wire/faults::cancelled_caller_takes_an_unsent_command_out[trio]",
    ),
    _m(
        "the reply of a cancelled caller goes to the next one",
        (PIPELINE, "            call = flight.popleft()\n            self._unanswered -= call.size\n            if kind",
         "            call = flight.popleft()\n            self._unanswered -= call.size\n            while flight and not call.wanted:\n                call = flight.popleft()\n            if kind"),
        by="wire/faults::cancelled_caller_of_a_sent_command_harms_nobody[trio]",
    ),
    _m(
        "a cancelled caller in the line blocks the verb",
        (WIRE_CALLS, "            line.leave(self)\n            self.dropped()", "            line.leave(self)"),
        by="wire/group::cancelled_remembered_call_lets_the_next_go[trio]",
    ),
    _m(
        "two calls of a verb are in flight",
        (SLOTS, "        if self._holder is None:\n            self._holder = call", "        if True:\n            self._holder = call"),
        by="wire/group::items_of_one_moment_ride_together[trio] wire/resend::verb_has_one_call_in_flight[trio]",
    ),
    _m(
        "a cancelled caller's call in flight frees the verb",
        (WIRE_CALLS, "            self._abandoned = True\n", "            self._abandoned = True\n            self.dropped()\n"),
        by="wire/resend::verb_has_one_call_in_flight[trio]",
    ),
    _m(
        "numbers are drawn before a call's turn has come",
        (WIRE_CALLS, "        self._bytes: bytes | None = None\n        self.transition: Transition[Any] | None = None",
         "        self.transition: Transition[Any] | None = build(Call(client=tag, number=slot.draw()))\n        self._bytes: bytes | None = pack(self.transition.command())"),
        by="wire/resend::numbers_have_no_gaps_when_callers_leave[trio]",
    ),
    _m(
        "who gives up is told that nothing has run",
        (GROUP, "reason, sent=self.ran_perhaps)", "reason, sent=False)"),
        by="wire/faults::outage_gives_callers_up_with_word_whether_it_ran[trio]",
    ),
    _m(
        "nobody is given up while the server is away",
        (PIPELINE, "                if call.sweep(now, patience, reason):\n                    call.line = None", "                if False:\n                    call.line = None"),
        by="wire/faults::outage_gives_callers_up_with_word_whether_it_ran[trio]",
    ),
    _m(
        "bytes in flight have no bound",
        (PIPELINE, "        while self._unanswered < ROOM:", "        while True:"),
        by="wire/pipeline::pipeline_stops_at_its_bound_and_goes_on",
    ),
    _m(
        "the wire's service dies with the body that is cancelled",
        ("wire/connection.py", "self._service = anyio.CancelScope(shield=True)", "self._service = anyio.CancelScope()"),
        by="wire/client::cancelled_body_can_still_call_under_a_shield[trio]",
    ),
    _m(
        "a token that a lost park may have eaten is not told of",
        ("wire/park.py", "                    self._lost = block.sent\n", ""),
        by="wire/park::dead_peer_of_a_park_is_found[trio]",
    ),
    _m(
        "a new connection does not listen to the old channels",
        ("wire/subscription.py", "        return [_Resubscribe(self)]", "        return []"),
        by="wire/subscription::reader_is_told_that_messages_may_have_been_missed[trio]",
    ),
)  # fmt: skip

# --- control and recovery: what is followed, walked and mended -------------------------------------------------------

FOLLOW, FOLLOWING, WALKS, SWEEPS, MORGUE, REPAIRS = (
    "_follow.py", "following.py", "_walks.py", "sweeps.py", "morgue.py", "repairs.py",
)  # fmt: skip

RECOVERY = (
    _m(
        "a plain read whose reply was lost fails",
        (WIRE_CALLS, "        return self._repeat\n", "        return False\n"),
        by="wire/resend::plain_read_whose_reply_is_lost_is_sent_again[trio]",
    ),
    _m(
        "who waits for a result reads the row at each note",
        ("_channels.py", "if word.data not in bell.deaf:", "if word.data is not None:"),
        by="integration/following::many_notes_cost_few_reads[trio]",
    ),
    _m(
        "a follower reads as often as notes come",
        (FOLLOWING, "        await anyio.sleep_until(self._looked + NOT_OFTENER)\n", "        await anyio.sleep(0)\n"),
        by="integration/following::many_notes_cost_few_reads[trio]",
    ),
    _m(
        "a look that was cancelled is not made up for",
        (FOLLOWING, "        except BaseException:\n            self._due = True\n            raise\n", "        except BaseException:\n            raise\n"),
        by="integration/following::following_makes_up_for_a_look_that_was_cancelled[trio]",
    ),
    _m(
        "lines of a log come again",
        (FOLLOW, "        self._seen = total\n", ""),
        by="unit/follow::log_lines_come_once_and_in_order",
    ),
    _m(
        "a gap in a log is not told",
        (FOLLOW, "return [MissedLines(fresh - len(log)), *kept] if fresh > len(log) else kept", "return kept"),
        by="unit/follow::log_lines_that_are_gone_are_told",
    ),
    _m(
        "following a job whose row is gone does not end",
        (FOLLOW, "self.over = job is None or job.record.state in _OVER", "self.over = job is not None and job.record.state in _OVER"),
        by="integration/following::following_ends_with_a_job_that_keeps_nothing[completes-trio]",
    ),
    _m(
        "a walk steps over as many jobs as it has taken out",
        (WALKS, "offset += found.examined - len(fresh)", "offset += found.examined"),
        by="unit/walks::walk_meets_each_job_once_whatever_is_taken_out[all-False]",
    ),
    _m(
        "a walk hands jobs out twice",
        (WALKS, "fresh = [id for id in found.ids if id not in known]", "fresh = list(found.ids)"),
        by="unit/walks::walk_meets_each_job_once_whatever_is_taken_out[none-False]",
    ),
    _m(
        "a walk goes on for as long as others add jobs",
        (WALKS, " or steps >= most:", ":"),
        by="unit/walks::walk_ends_though_others_add_as_fast",
    ),
    _m(
        "cancelling a task passes lanes by",
        (SWEEPS, "            yield from walk_lanes(self._keys, self._of_lane)\n", "            pass\n"),
        by="integration/sweeps::cancel_where_ends_what_fits_and_no_other[trio-t-None-3]",
    ),
    _m(
        "a redriven job that dies is redriven again",
        ("finding.py", "before_ms=max(1, start.now_ms + 1 - self.older_ms),", "before_ms=0,"),
        by="integration/morgue::find_and_redrive_take_what_was_dead_at_their_beginning[trio]",
    ),
    _m(
        "a redrive keeps no rate",
        (MORGUE, "                if wait > 0:\n", "                if False:\n"),
        by="unit/walks::redrive_walk_waits_between_its_jobs",
    ),
    _m(
        "repair does not see members without a row",
        (REPAIRS, "if lane or (yield Plain((\"EXISTS\", *map(self._keys.job, some)))) < len(some):", "if lane:"),
        by="integration/repair::repair_mends_damage[trio-the-leases-have-one-without-a-row]",
    ),
    _m(
        "repair looks at no lane's sets",
        (REPAIRS, "if suffix in _SETS or _LANE_SET.fullmatch(suffix):", "if suffix in _SETS:"),
        by="integration/repair::repair_mends_damage[trio-an-unknown-lane's-leases-have-one]",
    ),
    _m(
        "obliterating leaves torn keys behind",
        (REPAIRS, "            for some in chunks(left, ROUND):\n                yield from _round(keys, force=force, names=some)\n", "            yield from ()\n"),
        by="integration/obliterate::obliterate_leaves_nothing[trio]",
    ),
)  # fmt: skip

# --- recurring schedules ---------------------------------------------------------------------------------------------

TIMETABLE = "worker/timetable.py"

SCHEDULES = (
    _m(
        "a claim's word that a slot has come is not passed on",
        (RUN, "        if reply.due:\n", "        if False:\n"),
        by="worker/timetable::slot_wakes_one_of_several_idle_workers[trio]",
    ),
    _m(
        "only a claim makes a worker look at its schedules",
        (TIMETABLE, "if line.until <= anyio.current_time():", "if False:"),
        by="worker/timetable::slot_is_fired_by_a_worker_whose_slots_are_taken[trio]",
    ),
    _m(
        "a queue that refuses is asked again at once",
        (TIMETABLE, "pause = backoff(line.failures, BACKOFF_FIRST, BACKOFF_CAP, self._random)", "pass"),
        by="worker/timetable_faults::full_queue_keeps_the_slot_and_is_not_asked_in_a_loop[trio]",
    ),
    _m(
        "a schedule that cannot be read is looked at with each claim",
        (TIMETABLE, "pause = backoff(line.idle, QUIET_FIRST, QUIET_CAP, self._random)", "pass"),
        by="worker/timetable_faults::schedule_that_cannot_be_fired_keeps_no_other_back[newer-trio]",
    ),
    _m(
        "a schedule without a row is looked for with each claim",
        (TIMETABLE, "pause = backoff(1, QUIET_FIRST, QUIET_CAP, self._random)", "pass"),
        by="worker/timetable_faults::schedule_that_cannot_be_fired_keeps_no_other_back[no-row-trio]",
    ),
    _m(
        "a schedule that cannot be read is told of each time",
        (TIMETABLE, "if line.unreadable.get(state.name) != state.digest:", "if True:"),
        by="worker/timetable_faults::schedule_that_cannot_be_fired_keeps_no_other_back[newer-trio]",
    ),
    _m(
        "a schedule that has lost its slot runs for ever",
        (TIMETABLE, "if not state.digest or not ENDED < state.slot_ms <= now_ms:", "if not state.digest:"),
        by="worker/timetable_faults::schedule_that_cannot_be_fired_keeps_no_other_back[no-slot-trio]",
    ),
    _m(
        "a schedule whose slots cannot be found ends the worker",
        (TIMETABLE, "        except Exception as error:  # whatever it is", "        except KeyError as error:  # whatever it is"),
        by="worker/timetable_faults::schedule_that_cannot_be_fired_keeps_no_other_back[bug-trio]",
    ),
    _m(
        "a schedule that is refused for itself keeps its queue back",
        (TIMETABLE, 'return "left" if type(error) in _OF_ONE else "refused"', 'return "refused"'),
        (TIMETABLE, "BACKOFF_FIRST: float = 0.1\nBACKOFF_CAP: float = 5.0", "BACKOFF_FIRST: float = 60.0\nBACKOFF_CAP: float = 60.0"),
        by="worker/timetable_faults::schedule_that_cannot_be_fired_keeps_no_other_back[no-ends-trio]",
    ),
    _m(
        "a page of schedules that cannot be read hides the others",
        (TIMETABLE, "offset += len(page.schedules) - done", "offset += 0"),
        by="worker/timetable_faults::schedules_beyond_a_page_are_fired[trio]",
    ),
    _m(
        "a slot that somebody else has fired is an error",
        (TIMETABLE, "                if error.code != STALE:\n                    raise\n", "                raise\n"),
        by="worker/timetable::slot_fired_by_somebody_else_meanwhile_is_left_alone[trio]",
    ),
    _m(
        "a job whose id is taken is tried with the same one",
        (TIMETABLE, "firings = [attrs.evolve(each, id=mint()) for each in firings]", "pass"),
        by="worker/timetable::job_whose_id_is_taken_gets_another[trio]",
    ),
    _m(
        "more missed slots than a queue may hold wait for room",
        (TIMETABLE, "                if not 0 < most < len(firings):\n                    raise\n", "                raise\n"),
        by="worker/timetable_faults::more_missed_slots_than_a_queue_may_hold_make_as_many_jobs_as_it_may[trio]",
    ),
    _m(
        "the slot after one is always looked for from the clock that was read",
        (TIMETABLE, "ahead_ms = 2 * round(", "ahead_ms = 0 * round("),
        by="worker/timetable::series_goes_on_where_the_server_is_slower_than_its_interval[trio]",
    ),
    _m(
        "a limit counts slots that were skipped",
        (TIMETABLE, 'len(due.slots) if state.overlap == "allow" else state.count', "len(due.slots)"),
        by="worker/timetable::limit_counts_jobs_and_not_slots_that_were_skipped[trio]",
    ),
    _m(
        "jitter is forgotten",
        (TIMETABLE, "due_ms=slot - moved_ms + round(self._random.uniform(0, jitter_ms))", "due_ms=slot - moved_ms"),
        by="worker/timetable::jitter_makes_jobs_late_on_purpose[trio]",
    ),
    _m(
        "the latest slot is fired, however old it is",
        ("recurrence/rule.py", '(self.missed == "last" and not slots)', "not slots"),
        by="worker/timetable::missed_slots_by_policy[trio-skip-30-0]",
    ),
    _m(
        "a worker does not define the schedules of its app",
        ("worker/entry.py", "beside = (app.schedules.keep_trying, alerts.run)", "beside = (alerts.run,)"),
        by="worker/timetable_faults::worker_defines_the_schedules_of_its_app[trio]",
    ),
    _m(
        "a schedule that could not be defined is given up",
        ("_app_schedules.py", "            left = failed\n", "            left = []\n"),
        by="worker/timetable_faults::worker_defines_its_schedules_when_the_server_comes[trio]",
    ),
    _m(
        "a schedule that could not be defined keeps the others back",
        ("_app_schedules.py", "                    failed.append(declared)\n", "                    failed = left; break\n"),
        by="worker/timetable_faults::worker_defines_its_schedules_when_the_server_comes[trio]",
    ),
)  # fmt: skip

# Not here, since they change nothing that anybody could see:
#   a cancelled job is given back, or fails     the request is in its row, so the server ends it all the same
#   a verdict's patience is the client's        it is sent again after an error, until `settle_within` is over
#   a closed client fails no caller             its `close`, the end of a connection's service and the loss of the
#                                               connection each do it: either is enough

PLACED = tuple(_m(name, *changes, by=by) for name, changes, by in PLACES)
AROUND = tuple(_m(name, *changes, by=by) for name, changes, by in AROUNDS)
FAMILY = tuple(_m(name, *changes, by=by) for name, changes, by in FAMILIES)
RUNNING = tuple(_m(name, *changes, by=by) for name, changes, by in RUNNINGS)
TELEMETRY = tuple(_m(name, *changes, by=by) for name, changes, by in TELEMETRIES)
ALL = (
    *DEADLINES, *HEARTBEATS, *ENDINGS, *VERDICTS, *OTHERS, *BATCHES, *SCHEDULES, *PLACED, *AROUND, *FAMILY, *RUNNING,
    *TELEMETRY, *WIRE, *RECOVERY,
)  # fmt: skip
"""Every mutant."""


def main() -> None:
    """Run the mutants whose name has all the words given, for whoever works on them."""
    for mutant in ALL:
        if all(word in mutant.name for word in sys.argv[1:]):
            caught = run(mutant)
            print(f"{caught.seconds:6.1f}  {caught.by or 'SURVIVED':70.70}  {mutant}", flush=True)


if __name__ == "__main__":
    main()
