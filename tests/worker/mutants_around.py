"""Mutants of retry policies, middleware, and what handlers share: what each changes, and the tests that must notice."""

from __future__ import annotations

Change = tuple[str, str, str]

RUN, SETTLE, EXECUTE, SIGNATURE = "worker/run.py", "worker/settle.py", "worker/execute.py", "_signature.py"


def _m(name: str, *changes: Change, by: str) -> tuple[str, tuple[Change, ...], str]:
    return name, changes, by


BY_ERROR, DELAYS, RETRY_AFTER = "backoff/by_error.py", "backoff/delays.py", "backoff/retry_after.py"

BACKOFFS = (
    _m(
        "a policy that says never is tried again at once",
        (SETTLE, "            delay, budget = 0.0, 0\n", "            delay = 0.0\n"),
        by="worker/backoff::backoff_that_answers_none_buries_at_once[trio]",
    ),
    _m(
        "a policy's never goes before the handler's Retry",
        (SETTLE, "if delay is None and again:", "if False:"),
        by="worker/backoff::backoff_that_answers_none_yields_to_a_retry[trio]",
    ),
    _m(
        "a Retry without a delay overrides every policy",
        (SETTLE, "delay=leaf.after, record=record, again=True)", "delay=leaf.after or 0.0, record=record)"),
        by="worker/backoff::backoff_of_a_retry_without_a_delay_is_the_policys[trio]",
    ),
    _m(
        "a base class goes before the class itself",
        (BY_ERROR, "for kind in type(error).__mro__:", "for kind in reversed(type(error).__mro__):"),
        by="unit/backoff/by_error::by_error_asks_the_nearest_class",
    ),
    _m(
        "of a group's errors the first decides",
        (BY_ERROR, "        for leaf in self._told_apart(error):", "        for leaf in self._told_apart(error)[:1]:"),
        by="unit/backoff/by_error::by_error_looks_into_groups",
    ),
    _m(
        "a group that is named is looked into all the same",
        (BY_ERROR, "any(kind in self.policies for kind in kinds)", "False"),
        by="unit/backoff/by_error::by_error_may_name_groups_themselves",
    ),
    _m(
        "a decorrelated delay is not capped",
        (DELAYS, "delay = min(rng.uniform(least, delay * self.factor), self.cap)", "delay = rng.uniform(least, delay * self.factor)"),
        by="unit/backoff/delays::delay_lies_between_nought_and_the_cap",
    ),
    _m(
        "a decorrelated chain is not drawn anew",
        (DELAYS, "for _ in range(min(max(failures, 1), _MOST_STEPS)):", "for _ in range(1):"),
        by="unit/backoff/delays::decorrelated_draws_its_chain_from_the_beginning",
    ),
    _m(
        "a server is believed beyond the cap",
        (RETRY_AFTER, "min(max(told), self.cap) if told", "max(told) if told"),
        by="unit/backoff/retry_after::retry_after_is_believed_up_to_its_cap",
    ),
    _m(
        "a date is counted from this machine's clock",
        (RETRY_AFTER, "self.clock() if sent is None else sent", "self.clock()"),
        by="unit/backoff/retry_after::retry_after_counts_from_the_responses_own_date",
    ),
    _m(
        "a date that is over is a negative delay",
        (RETRY_AFTER, "max(0.0, then - ", "(then - "),
        by="unit/backoff/retry_after::retry_after_counts_from_the_responses_own_date",
    ),
    _m(
        "a header is known in one case only",
        (RETRY_AFTER, '(_text(key) or "").lower() == name.lower()', '_text(key) == name'),
        by="unit/backoff/retry_after::retry_after_is_read_where_libraries_put_it",
    ),
)  # fmt: skip

AROUND, RESOURCES, PROVIDERS = "worker/around.py", "worker/resources.py", "resources.py"
MIDDLEWARE, BULK, BATCH_RUN, COMMAND = "middleware.py", "_bulk.py", "worker/batch.py", "worker/__main__.py"

MIDDLEWARES = (
    _m(
        "a middleware may run the handler twice",
        (AROUND, "        if self._called:", "        if False:"),
        by="worker/around::around_handling_that_calls_twice_is_told[trio]",
    ),
    _m(
        "a misfit that a middleware lets pass has failed",
        (AROUND, "if self._kept is not None and unfold(error) is self._kept.error:", "if False:"),
        by="worker/around::around_handling_of_what_cannot_be_decoded",
    ),
    _m(
        "a misfit is one whatever a middleware makes of it",
        (AROUND, "if self._kept is not None and unfold(error) is self._kept.error:", "if self._kept is not None:"),
        by="worker/around::around_handling_of_what_cannot_be_decoded",
    ),
    _m(
        "a misfit within a task group of the middleware has failed",
        (AROUND, "unfold(error) is self._kept.error", "error is self._kept.error"),
        by="worker/around::around_handling_of_what_cannot_be_decoded",
    ),
    _m(
        "a middleware that hangs after its handler is not shown",
        (AROUND, "        outcome = await self._handle()\n        self._show()\n", "        outcome = await self._handle()\n"),
        by="worker/around_ends::around_handling_that_hangs_is_shown_in_the_log[trio]",
    ),
    _m(
        "the last middleware is the outermost",
        (MIDDLEWARE, "self._functions.append(function)\n        return function", "self._functions.insert(0, function)\n        return function"),
        by="worker/around::around_handling_wraps_each_kind_of_handler[trio-coroutine]",
    ),
    _m(
        "a handler gets the payload that a middleware has replaced",
        (EXECUTE, "handler.load_arguments(job.payload)", "handler.load_arguments(lease.claimed.record.payload)"),
        by="worker/around::around_handling_may_turn_the_payload_back[trio-coroutine]",
    ),
    _m(
        "a plain function's job has the payload that was replaced",
        (EXECUTE, "_inject(lease, handler, job.record, *loaded, means)", "_inject(lease, handler, lease.claimed.record, *loaded, means)"),
        by="worker/around::around_handling_may_turn_the_payload_back[trio-thread]",
    ),
    _m(
        "a middleware takes a process's traceback away",
        (AROUND, " or outcome.record is not None:", ":"),
        by="worker/around_ends::around_handling_is_around_a_process[trio]",
    ),
    _m(
        "with middleware the wait for a thread counts",
        (EXECUTE, "        if handler.is_async:\n            lease.limit(timeout)  # else", "        if True:\n            lease.limit(timeout)  # else"),
        by="worker/around_ends::around_handling_does_not_count_the_wait_for_a_thread[trio]",
    ),
    _m(
        "pieces of the old payload stay",
        ("protocol/records.py", "if name not in PIECE_KEYS}", "if True}"),
        by="worker/around::around_handling_replaces_payloads_of_many_pieces[trio]",
    ),
    _m(
        "an item of a batch that cannot be decoded is handled",
        (BATCH_RUN, "                del self._by_item[item]\n                self._finish(entry, loaded)\n        batch.items", "                pass\n        batch.items"),
        by="worker/around_batches::around_handling_may_turn_a_batchs_payloads_back[trio]",
    ),
    _m(
        "a batch of which nothing is left is handled",
        (BATCH_RUN, "if any(map(self.is_live, batch.items)) else Returned(None)", "if True else Returned(None)"),
        by="worker/around_batches::around_handling_of_a_batch_that_is_all_poison_calls_nobody[trio]",
    ),
    _m(
        "a middleware may take anything",
        (MIDDLEWARE, "        _check_takes(function, 2, ", "        (lambda *_: None)(function, 2, "),
        by="worker/around::around_handling_takes_two_arguments",
    ),
    _m(
        "a generator that yields again is not named",
        (MIDDLEWARE, "stack.enter_context(_named(function, function(call)))", "stack.enter_context(function(call))"),
        by="integration/around_enqueue_misused::around_enqueue_that_is_misused_is_named",
    ),
    _m(
        "what a middleware swallows of an enqueue is lost",
        (MIDDLEWARE, "        if failed is not None:\n            raise failed", "        if False:\n            raise failed"),
        by="integration/around_enqueue::around_enqueue_that_swallows_an_error_hides_nothing[trio]",
    ),
    _m(
        "a middleware may send anything",
        (MIDDLEWARE, "    if type(made) is not type(call):", "    if False:"),
        by="integration/around_enqueue::around_enqueue_is_to_yield_a_call[trio]",
    ),
    _m(
        "an error of ours in a middleware ends all of many",
        (BULK, "        except EchoMQError as error:\n            if call is not None:", "        except ZeroDivisionError as error:\n            if call is not None:"),
        by="integration/around_enqueue::around_enqueue_error_of_ours_answers_its_call_of_many[trio-False]",
    ),
    _m(
        "a middleware's error forgets what was before it",
        (BULK, "            del portion[at:], answers[at:]\n", "            del portion[:], answers[:]\n"),
        by="integration/around_enqueue::around_enqueue_error_of_others_ends_many[trio-True]",
    ),
    _m(
        "a call that a middleware refused is sent",
        (BULK, "        if answers[at] is None:\n", "        if True:\n"),
        by="integration/around_enqueue::around_enqueue_error_of_ours_answers_its_call_of_many[trio-True]",
    ),
    _m(
        "a synchronous client knows no middleware",
        ("sync/client.py", "        with outgoing(call) as made:", "        for made in (call,):"),
        by="integration/around_enqueue::around_enqueue_is_around_a_synchronous_client",
    ),
    _m(
        "middleware runs for what is not sent after an outage",
        ("sync/client.py", "pass_all(portion, answers) if broken is None else None", "pass_all(portion, answers)"),
        by="integration/around_enqueue::around_enqueue_is_left_alone_after_an_outage[trio]",
    ),
)  # fmt: skip

SHARED = (
    _m(
        "jobs are claimed before all is open",
        (RUN, "            await self._resources.wait_open()\n", ""),
        by="worker/resources::resources_are_open_before_the_first_claim[trio]",
    ),
    _m(
        "what is being opened is not cancelled by a stop",
        (RUN, "        self._resources.stop()\n", ""),
        by="worker/resources_breaking::resource_that_hangs_at_open_is_cancelled[trio-stopped]",
    ),
    _m(
        "more is opened after a stop",
        (RESOURCES, "        if self._stopping:\n            return\n", ""),
        by="worker/resources_breaking::resource_that_opens_in_spite_of_a_stop_is_the_last[trio]",
    ),
    _m(
        "a stop cancels what is open too",
        (RESOURCES, "                    self._opening = None\n                    self._values", "                    self._values"),
        by="worker/resources::resources_are_open_while_handlers_run[trio]",
    ),
    _m(
        "resources are closed before the handlers have ended",
        (RUN, "        await self._until_drained()  # however", "        await self._resources.close()\n        await self._until_drained()  # however"),
        by="worker/resources::resources_are_closed_after_the_last_handler[trio]",
    ),
    _m(
        "closing is not waited for",
        (RESOURCES, "        await self._closed.wait()\n", "        pass\n"),
        by="worker/resources::resources_are_closed_after_the_last_handler[trio]",
    ),
    _m(
        "an error of a provider is only logged",
        (RESOURCES, "            self._failed(error)\n", ""),
        by="worker/resources_breaking::resource_error_at_close_is_raised_by_run[trio]",
    ),
    _m(
        "a provider that ends by itself is not noticed",
        (RESOURCES, "            self._check_unneeded(provider)\n", ""),
        by="worker/resources_breaking::resource_that_ends_by_itself_stops_the_worker[trio]",
    ),
    _m(
        "a cancellation is a failure of the provider",
        (RESOURCES, "            if holds(error, anyio.get_cancelled_exc_class()):", "            if False:"),
        by="worker/resources_breaking::resource_that_hangs_at_close_is_cancelled[trio]",
    ),
    _m(
        "what is injected takes a place of the arguments",
        (SIGNATURE, "filled = {self.job_parameter, *self._injected}", "filled = {self.job_parameter}"),
        by="unit/injection::injected_parameter_is_none_of_the_producers",
    ),
    _m(
        "values are injected behind the arguments",
        (SIGNATURE, "            if len(args) > at:\n                args.insert(at, values.pop(name))", "            pass"),
        by="unit/injection::injected_parameter_takes_no_place_of_the_arguments",
    ),
    _m(
        "all values are injected before the job",
        (SIGNATURE, "if self._job_at < 0 or each[0] < self._job_at]", "if True]"),
        by="unit/injection::injected_values_reach_their_parameters",
    ),
    _m(
        "the last of two providers wins",
        (PROVIDERS, "            if type in known:\n", "            if False:\n"),
        by="unit/injection::plan_refuses_two_providers_of_a_type",
    ),
    _m(
        "a task of processes may ask",
        (PROVIDERS, 'if task.run_in == "process":', "if False:"),
        by="unit/injection::plan_refuses_a_task_of_processes",
    ),
    _m(
        "the command does not look for providers",
        (COMMAND, "    app.provide.plan((*(task for task in app.tasks.values() if task.queue in served), *told))\n", ""),
        by="worker/command::command_refuses_bad_arguments_in_one_line",
    ),
    _m(
        "a handler called directly gets the default",
        ("tasks.py", "        self.signature.check_direct(args, kwargs)\n", ""),
        by="unit/injection::injected_parameter_is_passed_by_who_calls_directly",
    ),
)  # fmt: skip

AROUNDS = (*BACKOFFS, *MIDDLEWARES, *SHARED)
"""All of them: name, changes, tests."""
