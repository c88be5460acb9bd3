"""Mutants of flows in the worker: what each changes, and the tests that must notice."""

from __future__ import annotations

Change = tuple[str, str, str]

RUN, SETTLE, NURSERY, FAMILY = "worker/run.py", "worker/settle.py", "worker/nursery.py", "worker/family.py"
STAGED, OUTBOX, REASONS, ENTRY = "worker/staged.py", "worker/outbox.py", "worker/reasons.py", "worker/entry.py"
CHILDREN, ALERTS, BATCH_RUN = "children.py", "_alerts.py", "worker/batch.py"


def _m(name: str, *changes: Change, by: str) -> tuple[str, tuple[Change, ...], str]:
    return name, changes, by


NURSERIES = (
    _m(
        "a suspended job is given back",
        (SETTLE, "return calls.suspend, Suspension(*fence)", "return calls.release, Release(*fence)"),
        by="worker/nursery::nursery_suspends_its_job_and_the_next_attempt_has_the_results[trio]",
    ),
    _m(
        "children have one name more than once",
        (FAMILY, "        if name in self._names:", "        if False:"),
        by="worker/nursery::nursery_refuses_what_it_cannot_do",
    ),
    _m(
        "names are counted anew in each nursery",
        (NURSERY, "        self._policy = policy\n", "        self._policy = policy\n        family._count, family._names = 0, set()\n"),
        by="worker/nursery::nurseries_one_after_another_and_nested[trio]",
    ),
    _m(
        "a spawn that the fence refuses leaves the lease alone",
        (NURSERY, "    lease.stop(Reason.LEASE_LOST, word)\n", ""),
        by="worker/nursery_ends::zombie_spawns_nothing[trio]",
    ),
    _m(
        "a refused spawn is any error",
        (NURSERY, '                if error.code != STALE or error.message.startswith("call "):', "                if True:"),
        by="worker/nursery_ends::zombie_spawns_nothing[trio]",
    ),
    _m(
        "a job that is gone is any error",
        (NURSERY, 'raise _lost(lease, "gone") from None', "raise"),
        by="worker/nursery_ends::zombie_whose_job_is_gone_spawns_nothing[trio]",
    ),
    _m(
        "an outage fails an attempt that spawns",
        (NURSERY, "                await anyio.sleep(AGAIN)\n", "                raise\n"),
        by="worker/nursery_ends::spawn_whose_replies_are_lost_is_made_again[trio]",
    ),
    _m(
        "children that cannot be sent do not end the body",
        (NURSERY, "            self.error = error\n            self.scope.cancel()\n", "            self.error = error\n"),
        by="worker/nursery_ends::children_that_cannot_be_sent_end_the_body[trio]",
    ),
    _m(
        "children that cannot be sent are forgotten",
        (NURSERY, "if nursery.error is not None and (ended is None or _is_cancellation(ended)):", "if False:"),
        by="worker/nursery_ends::children_that_cannot_be_sent_end_the_body[trio]",
    ),
    _m(
        "what is lost leaves the block as a cancellation",
        (NURSERY, "(ended is None or _is_cancellation(ended))", "ended is None"),
        by="worker/nursery_ends::zombie_spawns_nothing[trio]",
    ),
    _m(
        "an error of the body's comes in a group",
        (NURSERY, "ended = own if own is not None and members(error) == (own,) else error", "ended = error"),
        by="worker/nursery::body_that_raises_suspends_nothing[trio]",
    ),
    _m(
        "children are sent when the block is over",
        (NURSERY, "            tasks.start_soon(nursery.send)\n", ""),
        (NURSERY, "                    await nursery.sent()\n", "                    tasks.start_soon(nursery.send)\n                    await nursery.sent()\n"),
        by="worker/nursery::nursery_of_many_children_sends_them_while_the_body_goes_on[trio]",
    ),
    _m(
        "a nursery takes children when its block is over",
        (NURSERY, "        if self._over:\n", "        if False:\n"),
        by="worker/nursery::nursery_refuses_what_it_cannot_do",
    ),
    _m(
        "a failure that runs the parent does not pass the block",
        (NURSERY, "return Policy.RUN_PARENT not in failed and any(", "return any("),
        by="worker/nursery::child_that_runs_its_parent_while_others_are_open[trio]",
    ),
    _m(
        "a block is passed while children are open",
        (NURSERY, "        if _must_wait(waited):\n", "        if False:\n"),
        by="worker/nursery::nurseries_one_after_another_and_nested[trio]",
    ),
    _m(
        "a detached child is waited for",
        (NURSERY, "if child.policy is not Policy.DETACH]", "if True]"),
        by="worker/nursery::nursery_without_children_is_passed[trio]",
    ),
    _m(
        "a handler that is shielded waits for ever",
        (FAMILY, "        if anyio.current_effective_deadline() > lease.scope.deadline:", "        if False:"),
        by="worker/nursery::nursery_within_a_shield_says_so[trio]",
    ),
    _m(
        "a completion with open children is only logged",
        (SETTLE, "elif type(item) is Completion and verdict.code in (STATE, KIND):", "elif False:"),
        by="worker/nursery::handler_that_swallows_its_suspension_has_failed[trio]",
    ),
)  # fmt: skip

INHERITANCE = (
    _m(
        "a child has no lane of its parent's",
        (STAGED, '    fields.setdefault("lane", record.lane)\n', ""),
        by="worker/nursery::child_inherits_what_it_does_not_say[trio]",
    ),
    _m(
        "a child has no headers of its parent's",
        (STAGED, "    if headers:\n", "    if False:\n"),
        by="worker/nursery::child_inherits_what_it_does_not_say[trio]",
    ),
    _m(
        "a parent's headers go before the child's",
        (STAGED, '{**headers, **fields.get("headers", {})}', '{**fields.get("headers", {}), **headers}'),
        by="worker/nursery::child_inherits_what_it_does_not_say[trio]",
    ),
    _m(
        "a child's later deadline counts",
        (STAGED, 'not _is_earlier(fields.get("deadline"), deadline_ms, lease)', '"deadline" not in fields'),
        by="worker/nursery::child_inherits_what_it_does_not_say[trio]",
    ),
    _m(
        "a parent's later deadline counts",
        (STAGED, 'and not _is_earlier(fields.get("deadline"), deadline_ms, lease)', "and True"),
        by="worker/nursery::child_inherits_what_it_does_not_say[trio]",
    ),
    _m(
        "handlers spawn themselves for ever",
        (STAGED, "    if depth > lease.calls.max_depth:", "    if False:"),
        by="worker/nursery::nursery_refuses_what_it_cannot_do",
    ),
    _m(
        "a child's flow may be larger than a call",
        (STAGED, "        if len(nodes) > MAX_NODES or ", "        if "),
        by="worker/nursery::nursery_refuses_what_it_cannot_do",
    ),
    _m(
        "a parent's end is a person's word",
        (REASONS, "return Reason.PARENT_ENDED if reason.startswith(PARENTS_WORDS) else Reason.CANCELLED", "return Reason.CANCELLED"),
        by="worker/nursery::parent_may_be_cancelled_while_it_waits[trio]",
    ),
    _m(
        "a child's result is kept for whoever asks alone",
        (SETTLE, 'b"parent" in row or ', ""),
        by="worker/nursery::nursery_suspends_its_job_and_the_next_attempt_has_the_results[trio]",
    ),
    _m(
        "a process keeps a child's result to itself",
        ("worker/processes.py", ' or b"parent" in row', ""),
        by="worker/kin_elsewhere::result_of_a_child_in_a_process_reaches_its_parent[trio]",
    ),
    _m(
        "children are in no order",
        (FAMILY, "key=lambda child: by_name(child.name)", "key=lambda child: child.name"),
        by="worker/kin_elsewhere::many_children_are_read_page_by_page[trio]",
    ),
    _m(
        "the first page of children is all",
        (FAMILY, "            cursor = page.cursor\n", '            cursor = "0"\n'),
        by="worker/kin_elsewhere::many_children_are_read_page_by_page[trio]",
    ),
)  # fmt: skip

FOLLOW_UPS = (
    _m(
        "a completion that is taken over loses its follow-ups",
        (SETTLE, "attrs.evolve(old.completion, token=claimed.token, nonce=claimed.nonce)", 'attrs.evolve(old.completion, token=claimed.token, nonce=claimed.nonce, follow=b"")'),
        by="worker/follow_ups::completion_that_is_taken_over_keeps_its_follow_ups[trio]",
    ),
    _m(
        "follow-ups may be of any size",
        (FAMILY, "        if len(self.follow) + len(packed) > MAX_FOLLOW:", "        if False:"),
        by="worker/follow_ups::follow_ups_have_a_limit_that_is_told_at_once[trio]",
    ),
    _m(
        "there may be any number of follow-ups",
        (FAMILY, "        if self._followers >= MAX_FOLLOWERS:", "        if False:"),
        by="worker/follow_ups::follow_ups_have_a_limit_that_is_told_at_once[trio]",
    ),
    _m(
        "a follow-up may give its content to another job",
        (CHILDREN, '    if mode != "reject":', "    if False:"),
        by="worker/follow_ups::follow_ups_have_a_limit_that_is_told_at_once[trio]",
    ),
    _m(
        "middleware does not see follow-ups",
        (CHILDREN, "    call = passed(call)\n", ""),
        by="worker/follow_ups::follow_ups_come_with_the_completion[trio-coroutine]",
    ),
)  # fmt: skip

PUMP = (
    _m(
        "nobody hears that something is owed",
        (RUN, "        if reply.owed:\n            calls.owes()\n", ""),
        by="worker/outbox_pump::pump_delivers_what_a_producer_left[trio]",
    ),
    _m(
        "a full worker delivers nothing",
        (OUTBOX, "                if line.known and line.until <= anyio.current_time():", "                if False:"),
        by="worker/outbox_pump::pump_goes_on_where_slots_are_taken[trio]",
    ),
    _m(
        "queues without flows are asked all the same",
        (OUTBOX, "if line.known and line.until", "if line.until"),
        by="worker/outbox_pump::queue_that_owes_nothing_is_never_asked[trio]",
    ),
    _m(
        "an outbox that cannot be read ends the worker",
        (OUTBOX, "except (EchoMQError, ValueError) as error:", "except ZeroDivisionError as error:"),
        by="worker/outbox_pump::queue_whose_outbox_cannot_be_read_is_left_alone[trio]",
    ),
    _m(
        "an entry that is torn ends the worker",
        (OUTBOX, "except (EchoMQError, ValueError) as error:", "except ZeroDivisionError as error:"),
        by="worker/outbox_pump::entry_that_makes_no_sense_ends_nothing",
    ),
)  # fmt: skip

TOLD = (
    _m(
        "queues are not told who hears of the dead",
        (ENTRY, "beside = (app.schedules.keep_trying, alerts.run)", "beside = (app.schedules.keep_trying,)"),
        by="worker/on_dead::on_dead_is_told_of_each_death",
    ),
    _m(
        "what is told of the dead is handled as a batch",
        (RUN, "gathered = handler is not None and handler.batch is not None", "gathered = handler is not None"),
        by="worker/on_dead::on_dead_is_told_of_each_death",
    ),
    _m(
        "two tasks are told of one queue's dead",
        (ALERTS, "            if other is not None:\n", "            if False:\n"),
        by="worker/on_dead::on_dead_has_one_task_a_queue",
    ),
)  # fmt: skip

FAMILIES = (*NURSERIES, *INHERITANCE, *FOLLOW_UPS, *PUMP, *TOLD)
"""All of them: name, changes, tests."""
