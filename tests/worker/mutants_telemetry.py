"""Mutants of what is measured and traced: what each changes, and the tests that must notice."""

from __future__ import annotations

Change = tuple[str, str, str]

RUN, HEARTBEAT, DEFINITIONS = "worker/run.py", "worker/heartbeat.py", "_definitions.py"
MANY, OTEL, SETTLE = "instruments/_many.py", "instruments/opentelemetry.py", "worker/settle.py"


def _m(name: str, *changes: Change, by: str) -> tuple[str, tuple[Change, ...], str]:
    return name, changes, by


TELEMETRIES = (
    _m(
        "ready long after it was last served",
        (RUN, " and (lately or busy)", ""),
        by="worker/telemetry::worker_that_nobody_serves_is_not_ready[trio]",
    ),
    _m(
        "not ready while handlers without leases take its slots",
        (RUN, "(lately or busy)", "lately"),
        by="worker/telemetry::worker_whose_slots_are_taken_is_ready[trio]",
    ),
    _m(
        "a first connection counts as one that stands again",
        (RUN, "        if self._away:\n            self._away -= 1\n", "        if True:\n"),
        by="worker/telemetry::reconnect_is_measured[trio]",
    ),
    _m(
        "what is left of a lease is told when it has been renewed",
        (HEARTBEAT, "left = lease.deadline - ", "left = asked_at + self._lease - self._margin - "),
        by="worker/telemetry::outcome_of_a_lost_lease_and_what_was_left_of_a_good_one[trio]",
    ),
    _m(
        "how long a job lasted is told of one that comes again",
        (SETTLE, "        if outcome in ENDED:", "        if True:"),
        by="worker/telemetry::outcome_of_what_a_handler_raises[trio-error1-snoozed-False]",
    ),
    _m(
        "a lost lease is measured by nobody",
        (SETTLE, '            self._measure(lease, "lost")\n', ""),
        by="worker/telemetry::outcome_of_a_lost_lease_and_what_was_left_of_a_good_one[trio]",
    ),
    _m(
        "an instrument's error ends what is measured",
        (MANY, "except BaseException:  # noqa: BLE001 - it may be", "except ZeroDivisionError:  # it may be"),
        by="worker/telemetry::instrument_that_raises_hurts_no_job[trio]",
    ),
    _m(
        "a schedule's definition counts as an enqueue",
        (DEFINITIONS, "passed(call, counted=False)", "passed(call)"),
        by="worker/telemetry::enqueue_that_fails_is_measured[trio]",
    ),
    _m(
        "jobs are of the trace in which the worker was started",
        (OTEL, "import Context\n", "import Context, get_current\n"),
        (
            OTEL,
            "parent = self._textmap.extract(headers, Context())",
            "parent = self._textmap.extract(headers, get_current())",
        ),
        by="worker/traces::worker_within_a_span_does_not_pass_it_on[trio]",
    ),
    _m(
        "all jobs of a schedule are of one trace",
        (OTEL, "if job.record.schedule:", "if False:"),
        by="worker/traces::trace_of_a_schedule_begins_with_each_job[trio]",
    ),
    _m(
        "a trace ends with the handler",
        (OTEL, "            yield self._with_context(call, span)", "            yield call"),
        by="worker/traces::trace_from_enqueue_to_child_and_follow_up[trio]",
    ),
)
