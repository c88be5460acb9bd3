"""Mutants of what is between a handler and its worker: threads, processes, progress, deadlines, the loop's guard.

As in `mutants`: a name, changes of modules, and the tests that must notice.
"""

from __future__ import annotations

EXECUTE, LEASE, SETTLE, BATCH = "worker/execute.py", "worker/lease.py", "worker/settle.py", "worker/batch.py"
PROCESSES, CHILDREN, CHILD = "worker/processes.py", "worker/children.py", "worker/child.py"
NOTES, WATCHDOG, TASKS, CARRIED = "worker/notes.py", "worker/watchdog.py", "tasks.py", "worker/carried.py"

PLACES: tuple[tuple[str, tuple[tuple[str, str, str], ...], str], ...] = (
    # --- deadlines ---------------------------------------------------------------------------------------------------
    (
        "a job's deadline counts from the claim's reply",
        ((LEASE, "return self.sent_at + (", "return anyio.current_time() + ("),),
        "worker/job_deadline::deadline_counts_from_before_the_claim_was_sent[trio]",
    ),
    (
        "a job whose deadline has come is begun",
        ((EXECUTE, "is not None and lease.end_by(record.deadline_ms)\n", "is not None and lease.end_by(record.deadline_ms) and False\n"),),
        "worker/job_deadline::deadline_that_came_on_the_way_begins_nothing[trio]",
    ),
    (
        "a timeout puts a deadline off",
        ((LEASE, "            if timeout_at < self.timeout_at:\n", "            if True:\n"),),
        "worker/job_deadline::deadline_and_timeout_are_whichever_comes_first[trio]",
    ),
    (
        "a deadline is told as a timeout",
        ((SETTLE, "    if not lease.at_deadline:\n", "    if True:\n"),),
        "worker/job_deadline::deadline_stops_a_running_handler[trio]",
    ),
    (
        "a deadline of one item is the whole batch's",
        ((BATCH, "(entry.own_time or entry.lease.at_deadline)", "entry.own_time"),),
        "worker/job_deadline::deadline_of_an_item_leaves_its_batch_alone[trio]",
    ),
    # --- places ------------------------------------------------------------------------------------------------------
    (
        "a timeout counts while a thread is queued for",
        (
            (EXECUTE, "        async with means.threads:\n            lease.limit(timeout)\n",
             "        lease.limit(timeout)\n        async with means.threads:\n"),
        ),
        "worker/processes::timeout_counts_from_when_the_slot_is_had[thread-trio]",
    ),
    (
        "threads have no limit",
        ((EXECUTE, "        async with means.threads:\n", "        if True:\n"),),
        "worker/run_in::threads_are_limited_and_coroutines_pass_by[trio]",
    ),
    (
        "a timeout counts while a process is queued for",
        ((PROCESSES, "        async with self._limiter:\n", "        lease.limit(timeout)\n        async with self._limiter:\n"),),
        "worker/processes::timeout_counts_from_when_the_slot_is_had[process-trio]",
    ),
    (
        "processes have no limit",
        ((PROCESSES, "        async with self._limiter:\n", "        if True:\n"),),
        "worker/processes::timeout_counts_from_when_the_slot_is_had[process-trio]",
    ),
    (
        "a coroutine function is declared for a process",
        ((TASKS, "            if self.is_async:\n", "            if False:\n"),),
        "worker/run_in::run_in_refuses_a_coroutine_function_by_name[process]",
    ),
    (
        "a function that cannot be found is declared for a process",
        ((TASKS, "                check_findable(self.name, self.function)\n", "                pass\n"),),
        "worker/run_in::run_in_process_refuses_what_a_process_could_not_find[lambda]",
    ),
    # --- how processes end -------------------------------------------------------------------------------------------
    (
        "a process that ignores its cancel is not killed",
        ((PROCESSES, "                elif now >= end:\n", "                elif False:\n"),),
        "worker/cancel_table::process_that_ignores_its_cancel_is_killed_and_replaced[trio]",
    ),
    (
        "a process has no time for its cleanup",
        ((PROCESSES, "if call.begun and reason is not Reason.LEASE_LOST:", "if False:"),),
        "worker/cancel_table::process_that_returns_although_it_was_cancelled_has_completed[trio]",
    ),
    (
        "a process is not told that it is cancelled",
        ((PROCESSES, '            child.tell("cancel", call.number, reason.value)\n', ""),),
        "worker/cancel_table::process_that_returns_although_it_was_cancelled_has_completed[trio]",
    ),
    (
        "what a cancelled process returns is dropped",
        ((PROCESSES, "                if isinstance(call.outcome, Returned):\n                    return call.outcome\n", ""),),
        "worker/cancel_table::process_that_returns_although_it_was_cancelled_has_completed[trio]",
    ),
    (
        "a process that dies is a handler that will not end",
        (
            (PROCESSES, "                await shielded(self._give_back, call)\n",
             "                lease.process = None\n                await shielded(self._give_back, call)\n"),
        ),
        "worker/cancel_table::job_of_a_process_that_is_slow_to_die_is_held_until_it_is_dead[trio]",
    ),
    (
        "a verdict is sent before the process is dead",
        ((PROCESSES, "        while not child.gone:\n            await child.changed.wait()\n\n    # ---", "\n    # ---"),),
        "worker/cancel_table::job_of_a_process_that_is_slow_to_die_is_held_until_it_is_dead[trio]",
    ),
    (
        "a lost lease does not kill a process in its cleanup",
        ((LEASE, "            self.process.lease_lost()\n", "            pass\n"),),
        "worker/processes::process_in_its_cleanup_is_killed_when_the_lease_is_lost[trio]",
    ),
    (
        "a child does not keep the lease's time",
        ((CHILD, "                if left <= 0:\n", "                if False:\n"),),
        "worker/process_orphans::process_of_a_stopped_worker_ends_with_its_lease",
    ),
    (
        "a child does not hear of renewals",
        (
            (LEASE, "            if self.process is not None:\n                self.process.lease_moved()\n\n    def slept",
             "\n    def slept"),
        ),
        "worker/process_orphans::process_of_a_renewed_lease_goes_on",
    ),
    (
        "a child stays when its worker is gone",
        (
            (CHILD, "            os._exit(EXIT_ORPHAN)\n        self._calls.put(None)\n", "            return\n        return\n"),
        ),
        "worker/process_orphans::processes_end_with_a_killed_worker",
    ),
    (
        "a signal to the group is heard in a child",
        ((CHILD, "        signal.signal(number, lambda *_: None)\n", "        pass\n"),),
        "worker/process_orphans::signal_to_the_whole_group_lets_processes_end[15]",
    ),
    (
        "what a function forks does not die of SIGTERM",
        ((CHILD, "            signal.signal(number, signal.SIG_DFL)\n", "            pass\n"),),
        "worker/process_orphans::process_that_forks_is_seen_to_die",
    ),
    (
        "the death of a process is waited for at its pipe's end",
        ((CHILDREN, "                with anyio.move_on_after(DRAIN):\n", "                with anyio.CancelScope():\n"),
         (CHILD, "        os.close(source)\n        os.close(sink)\n", "")),
        "worker/process_orphans::process_that_forks_is_seen_to_die",
    ),
    (
        "the death of a process spends nothing",
        ((CHILDREN, "Raised(died) if self.call.begun else Unfit(died)", "Unfit(died)"),),
        "worker/processes::process_that_dies_fails_its_attempt[trio-exit]",
    ),
    (
        "a process that cannot start spends budget",
        ((PROCESSES, "return Unfit(error)  # not the job's fault", "return Raised(error)  # not the job's fault"),),
        "worker/processes::process_that_cannot_start_puts_its_job_off[missing-trio]",
    ),
    (
        "a process that does not start is waited for",
        ((PROCESSES, "        with anyio.fail_after(START):\n", "        with anyio.fail_after(None):\n"),),
        "worker/processes::process_that_cannot_start_puts_its_job_off[hangs-trio]",
    ),
    # --- what crosses ------------------------------------------------------------------------------------------------
    (
        "what a function prints goes to the worker",
        ((CHILD, "        os.dup2(2, 1)\n", "        pass\n"),),
        "worker/processes::process_runs_functions_and_is_kept[trio]",
    ),
    (
        "a huge result crosses",
        ((CHILD, 'dump("the result", value, limit)', 'dump("the result", value)'),),
        "worker/processes::process_fails_readably[huge-trio]",
    ),
    (
        "a result that nobody keeps must be one that can cross",
        ((PROCESSES, 'limit = self._result_limit if kept else None', "limit = self._result_limit"),),
        "worker/processes::result_that_nobody_keeps_need_not_cross[trio]",
    ),
    (
        "the traceback of a process is lost",
        ((SETTLE, "record = record or ErrorRecord.from_exception(error)", "record = ErrorRecord.from_exception(error)"),),
        "worker/processes::process_fails_readably[deep-trio]",
    ),
    (
        "an error of a process may stop the worker",
        ((CARRIED, "return error if issubclass(type(error), Exception) else None", "return error"),),
        "worker/carried::error_crosses_by_name_where_its_class_is_not_found",
    ),
    (
        "an error that is restored as another one crosses so",
        ((CARRIED, " and _parts_of(again) == parts else None", " else None"),),
        "worker/carried::error_crosses_as_itself",
    ),
    (
        "an error crosses only by its pickle",
        ((CARRIED, "            error = _make(carried, restored)\n", "            error = None\n"),),
        "worker/carried::policy_knows_an_error_that_has_crossed",
    ),
    (
        "an error that is known by name only is not told so",
        ((CARRIED, "    error.add_note(BY_NAME)\n", ""),),
        "worker/carried::error_crosses_by_name_where_its_class_is_not_found",
    ),
    (
        "a failure that the deadline buries tells of a retry",
        ((SETTLE, " and not _comes_too_late(lease, delay):", ":"),),
        "worker/job_deadline::failure_that_the_deadline_buries_tells_of_no_retry[trio]",
    ),
    (
        "a checkpoint without a step knows only of what it has heard",
        ((NOTES, "        if step is None and kept is not None:\n", "        if False:\n"),),
        "worker/noting::checkpoint_without_a_step_goes_on_from_what_was_kept_unheard[trio]",
    ),
    (
        "a checkpoint without a step begins at the claim's",
        (
            (NOTES, "        if step is None and kept is not None:\n", "        if False:\n"),
            (NOTES, "self._step if self._step is not None else self", "self"),
        ),
        "worker/noting::checkpoint_without_a_step_stays_on_the_latest[coroutine-trio]",
    ),
    (
        "a thread that a function has left notes under the next job",
        ((CHILD, "        if not self._child.runs(self._number):\n", "        if False:\n"),),
        "worker/processes::thread_that_a_function_leaves_in_its_process_has_no_job[trio]",
    ),
    # --- progress ----------------------------------------------------------------------------------------------------
    (
        "each progress note leaves",
        ((NOTES, "        if now < self._next_at and (total is None or done != total):\n", "        if False:\n"),),
        "worker/progress::progress_leaves_at_a_rate_and_the_latest_wins[trio]",
    ),
    (
        "the first note that waits wins",
        ((NOTES, "            self._waiting = data\n", "            self._waiting = self._waiting or data\n"),),
        "worker/progress::progress_leaves_at_a_rate_and_the_latest_wins[trio]",
    ),
    (
        "the note that says all is done waits",
        ((NOTES, " and (total is None or done != total):\n", ":\n"),),
        "worker/progress::progress_leaves_at_a_rate_and_the_latest_wins[trio]",
    ),
    (
        "a note that waits is not sent",
        ((NOTES, "                self._timers.at(self._next_at, self._look)\n            self._waiting", "                pass\n            self._waiting"),),
        "worker/progress::progress_leaves_at_a_rate_and_the_latest_wins[trio]",
    ),
    (
        "a note that waits ends with its handler",
        ((SETTLE, "            lease.notes.flush()\n", "            pass\n"),),
        "worker/progress::progress_that_waits_leaves_before_the_verdict[trio]",
    ),
    (
        "a refused note that nobody waits for ends nothing",
        ((NOTES, "            self._heed(item, verdict)\n", "            pass\n"),),
        "worker/progress::refused_progress_ends_the_lease_also_when_nobody_waits[trio]",
    ),
    (
        "amounts without end are noted",
        ((NOTES, "    if not 0 <= value <= MAX_AMOUNT:", "    if value < 0:"),),
        "worker/progress::progress_that_is_none_is_refused[trio-1] worker/progress::progress_that_is_none_is_refused[trio-5]",
    ),
    (
        "messages without end are noted",
        ((NOTES, 'cut_text("a message", message, MAX_MESSAGE)', 'cut_text("a message", message, 1 << 30)'),),
        "worker/progress::progress_message_is_bounded[trio]",
    ),
    # --- the loop's guard --------------------------------------------------------------------------------------------
    (
        "the handler that blocks the loop is not named",
        ((WATCHDOG, "names, stack = self._find_blocker(), self.stack()", "names, stack = dict[str, str](), self.stack()"),),
        "worker/watchdog::handler_that_blocks_the_loop_is_named[trio]",
    ),
    (
        "any handler is blamed for a blocked loop",
        ((WATCHDOG, ' if getattr(lease.coroutine, "cr_frame", None) in frames]', "]"),),
        "worker/watchdog::loop_that_no_handler_blocks_names_none[trio]",
    ),
)  # fmt: skip
