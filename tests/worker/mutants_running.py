"""Mutants of what keeps workers running: what each changes, and the tests that must notice."""

from __future__ import annotations

Change = tuple[str, str, str]

RUN, RETIRE, DEADLINE = "worker/run.py", "worker/retire.py", "worker/deadline.py"
SUPERVISOR, ORDERS, COMMAND = "worker/supervisor.py", "worker/orders.py", "worker/__main__.py"
TASKS, REDACTION, FAILURES = "tasks.py", "redaction.py", "protocol/failures.py"


def _m(name: str, *changes: Change, by: str) -> tuple[str, tuple[Change, ...], str]:
    return name, changes, by


SUPERVISED = (
    _m(
        "each signal to the group takes grace away",
        (ORDERS, "    if supervised:\n", "    if False:\n"),
        by="worker/supervisor::signal_to_the_whole_group_takes_no_grace_away",
    ),
    _m(
        "a worker does not miss its supervisor",
        (ORDERS, "            os.kill(os.getpid(), signal.SIGTERM)\n", "            pass\n"),
        by="worker/supervisor::workers_end_in_order_when_their_supervisor_is_killed",
    ),
    _m(
        "a second signal is not handed on",
        (SUPERVISOR, "            self._hurried.set()\n            return\n", "            return\n"),
        by="worker/supervisor::second_signal_skips_the_grace_of_all_workers",
    ),
    _m(
        "a worker that does not end is waited for",
        (SUPERVISOR, "(HURRY, self._limit), (signal.SIGKILL, 0.0)):", "(HURRY, self._limit)):"),
        by="worker/supervisor::worker_that_does_not_end_in_time_is_killed",
    ),
    _m(
        "a worker that has done its jobs is dead",
        (SUPERVISOR, "            if code == EXIT_REPLACE:\n", "            if False:\n"),
        by="worker/supervisor::supervisor_replaces_at_once_and_ends_with_burst",
    ),
    _m(
        "all workers say what is wrong with the app",
        (SUPERVISOR, "while seat.place > 0 and not", "while False and not"),
        by="worker/supervisor::supervisor_gives_up_on_a_usage_error",
    ),
    _m(
        "a worker that has run well is not forgiven",
        (SUPERVISOR, "deaths = 1 if ran >= WELL else deaths + 1", "deaths = deaths + 1"),
        by="worker/supervisor::supervisor_waits_longer_after_each_death",
    ),
    _m(
        "what fails after a change is not tried again",
        (SUPERVISOR, "                seat.wake.set()\n", ""),
        by="worker/supervisor::reload_takes_a_changed_file",
    ),
    _m(
        "a reload leaves workers waiting for the old one",
        (SUPERVISOR, "            before.set()  # who waits for the old one goes on to wait for the new one\n", ""),
        by="worker/supervisor::reload_starts_those_that_waited_for_the_first",
    ),
)  # fmt: skip

RETIRING = (
    _m(
        "a worker claims beyond its jobs",
        (RUN, "return free if left is None else min(free, left)", "return free"),
        by="worker/retire::worker_claims_no_more_than_its_jobs[trio]",
    ),
    _m(
        "a worker with nothing left to claim goes on",
        (RUN, "            self._retire(\"max_jobs\")\n", "            pass\n"),
        by="worker/retire::worker_claims_no_more_than_its_jobs[trio]",
    ),
    _m(
        "a retiring worker gives its handlers the grace only",
        (RUN, "            await first_of(self._told.wait, self._until_settled)\n", ""),
        by="worker/retire::retiring_worker_waits_for_its_handlers_longer_than_its_grace[trio]",
    ),
    _m(
        "a retiring worker does not hear of a stop",
        (RUN, "await first_of(self._told.wait, self._until_settled)", "await self._until_settled()"),
        by="worker/retire::stop_ends_a_retiring_worker_as_usual[trio]",
    ),
    _m(
        "memory is not looked at",
        (RUN, "if self._limits.watches:", "if False:"),
        by="worker/retire::worker_that_has_grown_too_large_ends[trio]",
    ),
)  # fmt: skip

HIDING = (
    _m(
        "an error shows redacted arguments",
        (TASKS, "            if not hides_call(self.redact, self.signature, args, kwargs):\n", "            if True:\n"),
        by="unit/redaction::arguments_that_do_not_fit_are_told_without_their_values",
    ),
    _m(
        "positional arguments have no names",
        (TASKS, "return any(map(redact.covers, names)) or ", "return "),
        by="unit/redaction::arguments_that_do_not_fit_are_told_without_their_values",
    ),
    _m(
        "fields of objects are not looked at",
        (REDACTION, "    if attrs.has(cls):\n", "    if False:\n"),
        by="unit/redaction::object_with_a_hidden_field_is_hidden_as_a_whole",
    ),
    _m(
        "tracebacks show the worker's own frames",
        (FAILURES, "            _drop_machinery(shown)\n", ""),
        by="worker/readable::failure_shows_the_frames_of_the_program_alone[trio]",
    ),
)  # fmt: skip

RUNNINGS = (*SUPERVISED, *RETIRING, *HIDING)
"""All of them: name, changes, tests."""
