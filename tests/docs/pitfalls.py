"""Known ways in which a queue like this breaks, and what holds each of them shut: makes `docs/reference/pitfalls.md`.

`python -m tests.docs.pitfalls` writes the page anew. The numbers are those that scenarios carry
(`echomq.conformance.scenarios`); a test named here must exist (`tests/docs/test_reference.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from echomq.conformance.scenarios import SCENARIOS

TESTS: Final = Path(__file__).parents[1]
PAGE: Final = TESTS.parent / "docs" / "reference" / "pitfalls.md"

HELD: Final[dict[int, tuple[str, list[str]]]] = {
    1: (
        "A stale holder writes to a job that is not running any more: a token alone does not tell",
        [
            "lua/test_extend::test_extend_is_fenced",
            "lua/test_fail::test_fail_is_fenced",
            "lua/test_release::test_release_is_fenced",
            "faults/test_zombies::test_stopped_worker_changes_no_byte",
        ],
    ),
    2: (
        "A call is sent again after its reply was lost, and runs twice",
        [
            "integration/test_client_enqueue::test_enqueue_resent_after_its_job_has_ended_runs_once",
            "integration/test_sync_client::test_sync_enqueue_with_three_replies_cut_runs_once",
            "wire/test_faults::test_reply_lost_after_the_call_ran_is_answered_once",
            "faults/test_server::test_server_killed_at_random_forgets_nothing_of_its_log",
        ],
    ),
    3: (
        "The reply of a claim is lost, and its jobs wait for a lease that nobody uses",
        [
            "wire/test_faults::test_claim_whose_reply_is_lost_answers_the_same_jobs",
            "worker/test_outage::test_lost_replies_lose_no_work",
        ],
    ),
    4: (
        "An idle worker that has died, or is cut off, is handed jobs by the connection on which it was waiting",
        [
            "wire/test_park::test_leaving_a_park_closes_its_socket_and_eats_no_later_token",
            "worker/test_lease::test_claim_that_took_as_long_as_its_lease_begins_nothing",
            "worker/test_idle::test_worker_that_stops_hands_its_token_on",
        ],
    ),
    5: (
        "Waiting ends too late, never, or on a connection that has been dead for long",
        [
            "wire/test_park::test_park_ends_by_its_own_timer_and_goes_on_with_the_same_blpop",
            "wire/test_park::test_dead_peer_of_a_park_is_found",
            "worker/test_idle::test_delayed_job_starts_when_it_is_due",
        ],
    ),
    6: (
        "An outage spends the retries of every job that was running, and buries them",
        [
            "worker/test_outage::test_outage_beyond_the_lease_costs_a_stall_and_no_retry",
            "worker/test_killed::test_at_most_once_runs_at_most_once",
            "faults/test_server::test_server_frozen_past_all_leases_has_no_job_in_two_hands",
        ],
    ),
    7: (
        "A failover forgets a claim, and the next claim gets the same number",
        [
            "faults/test_failover::test_token_handed_out_twice_admits_one_holder",
            "faults/test_failover::test_claim_of_the_lost_primary_takes_the_job_anew_when_it_is_free",
            "faults/test_failover::test_completion_that_was_lost_runs_the_job_again",
        ],
    ),
    8: (
        "The items of one call are all checked before any is written, and contradict each other",
        [
            "wire/test_group::test_verdicts_go_to_their_items",
        ],
    ),
    9: (
        "A cluster moves the queue key by key, and a script runs with half of them",
        [
            "faults/test_resharding::test_moving_slot_refuses_every_script_whole",
            "faults/test_resharding::test_slot_that_has_moved_runs_scripts_again",
            "faults/test_resharding::test_slot_that_stays_after_all_goes_on",
            "faults/test_resharding::test_worker_waits_while_its_slot_moves",
        ],
    ),
    10: (
        "A server whose memory is full refuses the very calls that would empty it",
        [
            "integration/test_conformance::test_full_server_drains",
            "integration/test_faults::test_full_server_refuses_new_work_and_drains",
            "faults/test_bad_input::test_full_server_takes_every_verdict_and_no_job",
            "lua/test_headers::test_header_flags_follow_rule_9",
        ],
    ),
    11: (
        "A lane that could not be served is never looked at again",
        [
            "property/test_lanes::test_lanes_agree_with_the_model",
            "lua/test_set_lane::test_set_lane_pauses_and_resumes",
        ],
    ),
    12: (
        "Work becomes ready by something other than an enqueue, and idle workers sleep on",
        [
            "worker/test_idle::test_whatever_makes_work_ready_wakes_a_parked_worker",
            "lua/test_ring::test_ring_pushes_a_token_for_ready_work",
        ],
    ),
    13: (
        "One delayed job wakes every idle worker",
        [
            "worker/test_idle::test_due_jobs_wake_one_worker_and_not_all",
            "worker/test_idle::test_idle_worker_sends_next_to_nothing",
        ],
    ),
    14: (
        "Kept results are in no set, so that nothing finds and bounds them",
        [
            "lua/test_trim::test_trim_drops_results_past_their_time",
            "faults/test_drain::test_disorder_leaves_nothing_behind",
        ],
    ),
    15: (
        "A producer, or a pump, dies between a parent and its children in another queue: half a flow, or a child twice",
        [
            "property/test_flows::test_flows_come_to_rest",
            "worker/test_outbox_pump::test_pump_delivers_what_a_producer_left",
            "integration/test_flows_adding::test_lost_replies_add_a_flow_once",
            "integration/test_flows_news::test_child_that_is_there_already_is_not_lost",
        ],
    ),
    16: (
        "News of a child is lost, blocked or has nobody to deliver it, and its parent waits for ever",
        [
            "property/test_flows::test_flows_come_to_rest",
            "worker/test_outbox_pump::test_queue_that_refuses_keeps_no_other_back",
            "worker/test_outbox_pump::test_lost_child_is_told_to_its_parent",
            "integration/test_flows_news::test_parent_of_another_queue_is_told_at_once",
            "integration/test_flows_news::test_obliterate_tells_other_queues_first",
            "integration/test_flows_news::test_repair_tells_parents_of_children_that_are_lost",
            "lua/test_missing_rights_of_flows::test_the_outbox_without_a_right_loses_no_word",
        ],
    ),
    17: (
        "A cancel request is forgotten when the attempt ends in another way",
        [
            "worker/test_cancel::test_cancelled_job_never_becomes_ready_again",
            "worker/test_cancel::test_completion_wins_over_a_request",
        ],
    ),
    18: (
        "Two processes, forked from one, mint the same ids or speak over one socket",
        [
            "unit/protocol/test_ids::test_fork_draws_node_and_tag_anew",
            "wire/test_client::test_fork_child_is_refused_and_parent_goes_on",
            "integration/test_sync_client::test_sync_client_works_on_after_a_fork",
            "integration/test_tasks_app::test_app_is_closed_in_a_forked_child",
        ],
    ),
    19: (
        "A worker drops the verdict of work that is done, because the lease is over by its own clock",
        [
            "worker/test_lease::test_completion_that_an_outage_delayed_is_accepted",
            "wire/test_group::test_submit_waits_an_outage_out",
        ],
    ),
    20: (
        "A shutdown gives a job away while its handler still runs, or never ends",
        [
            "worker/test_shutdown::test_handler_that_shields_itself_is_renewed_and_named",
            "worker/test_shutdown::test_handler_in_a_thread_is_renewed_and_named",
            "worker/test_command::test_handlers_that_will_not_end_are_named_and_the_process_ends_hard",
            "worker/test_shutdown::test_stop_while_the_server_is_away",
            "worker/test_matrix::test_worker_cancelled_at_any_step_leaves_nothing",
        ],
    ),
    21: (
        "A completion that comes late ends a job that has been changed, or has begun a new life, since",
        [
            "lua/test_complete::test_complete_by_the_late_holder",
        ],
    ),
    22: (
        "A dedup key goes too early, never goes, or is taken for somebody else's",
        [
            "integration/test_client_enqueue::test_dedup_answers_the_holder_until_it_ends",
            "integration/test_client_enqueue::test_dedup_key_of_another_job_is_left_alone",
            "integration/test_client_enqueue::test_dedup_resend_finds_its_own_key",
        ],
    ),
    23: (
        "A lease that is over and not yet taken back counts as free, or is renewed by halves",
        [
            "lua/test_extend::test_extend_moves_the_lease_and_nothing_else",
            "lua/test_extend::test_extend_moves_the_lease_in_the_lane_too",
            "lua/test_claim::test_claim_sent_again_renews_both_leases",
            "property/test_lanes::test_lanes_agree_with_the_model",
        ],
    ),
    24: (
        "Heartbeats wait behind bulk, or a script holds the server for long by the bytes it moves",
        [
            "worker/test_heartbeat::test_flood_of_enqueues_delays_no_heartbeat",
            "wire/test_group::test_calls_are_cut_by_count_and_by_bytes",
        ],
    ),
    25: (
        "A round that has used up its bound answers that there is nothing",
        [
            "lua/test_reap::test_reap_handles_no_more_than_its_bound",
            "lua/test_promote::test_promote_handles_no_more_than_its_bound",
        ],
    ),
    26: (
        "A call that its caller has given up runs later all the same",
        [
            "wire/test_faults::test_cancelled_caller_takes_an_unsent_command_out",
            "wire/test_faults::test_sent_call_of_a_cancelled_caller_is_not_sent_again",
            "wire/test_faults::test_outage_gives_callers_up_with_word_whether_it_ran",
            "integration/test_tasks_app::test_app_enqueues_nothing_more_after_an_outage",
        ],
    ),
    27: (
        "Numbers lose digits, are none, or fail after the first write; the clock moves within a script",
        [
            "lua/test_headers::test_script_reads_the_clock_once_and_walks_nothing",
            "lua/test_enqueue::test_enqueue_refuses_numbers_out_of_range",
            "lua/test_fail::test_fail_refuses_numbers_out_of_range",
        ],
    ),
    28: (
        "The order is that of the producers' clocks",
        [
            "integration/test_client_enqueue::test_enqueue_many_answers_in_order_and_a_bad_one_fails_no_other",
        ],
    ),
    29: ("The server's clock steps back, and leases or the timer lie far ahead", []),
    30: (
        "A parent ends, and its thousand children run on, or are all ended by one script",
        [
            "property/test_flows::test_flows_come_to_rest",
            "integration/test_flows_news::test_children_of_a_parent_that_ends_are_told_at_once",
            "integration/test_flows_news::test_cancel_of_a_flow_says_what_it_did",
            "integration/test_flows_news::test_redrive_of_a_parent_brings_its_children_back_at_once",
            "lua/test_missing_rights_of_flows::test_walks_without_a_right_go_on_later",
        ],
    ),
    31: (
        "A job that spawns children wakes too early or never, doubles them when it is run again, or leaves them behind",
        [
            "faults/test_families::test_worker_killed_between_spawning_and_suspending_doubles_no_child",
            "worker/test_nursery_ends::test_zombie_spawns_nothing",
            "worker/test_nursery_ends::test_spawn_whose_replies_are_lost_is_made_again",
            "worker/test_nursery::test_handler_that_swallows_its_suspension_has_failed",
            "worker/test_follow_ups::test_follow_ups_of_what_does_not_complete_never_come",
        ],
    ),
    32: (
        "A process that was stopped, a suspended machine or a blocked loop takes one more step after its lease",
        [
            "faults/test_zombies::test_late_verdict_of_a_stopped_worker_is_refused",
            "faults/test_zombies::test_late_note_of_a_stopped_worker_is_refused",
            "faults/test_zombies::test_handler_of_a_stopped_worker_is_cancelled",
            "faults/test_zombies::test_late_renewal_and_return_of_a_stopped_worker_are_refused",
            "worker/test_watchdog::test_suspended_machine_loses_what_expired_meanwhile",
            "worker/test_lease::test_worker_claims_its_own_reaped_job_while_the_old_scope_dies",
        ],
    ),
    33: (
        "Callers who share a call share its fate in the wrong way: cancelled, failed, or crossed by a renewal",
        [
            "wire/test_group::test_cancelled_caller_takes_its_item_out_of_an_unsent_call",
            "wire/test_group::test_whole_call_error_goes_to_every_caller",
            "worker/test_heartbeat::test_heartbeat_answers_after_the_end_change_nothing",
            "worker/test_heartbeat::test_silence_and_errors_end_nothing_before_the_deadline",
        ],
    ),
    34: (
        "Who waits for a result cannot tell a job that is done from one that never was, or misses the message",
        [
            "integration/test_results_waiting::test_result_of_a_job_that_keeps_none_is_refused_at_once",
            "integration/test_results_waiting::test_result_survives_a_lost_subscription",
        ],
    ),
    35: (
        "A bad night fills the morgue, and trimming silently drops what should be looked at; a queue is obliterated under load",
        [
            "lua/test_trim::test_trim_drops_the_dead_that_are_too_old",
            "lua/test_trim::test_trim_drops_no_more_than_its_bound",
            "lua/test_trim::test_complete_trims_what_it_finds_over",
            "lua/test_obliterate::test_obliterate_asks_for_a_pause_and_for_peace",
            "lua/test_missing_rights_of_time::test_obliterate_without_a_right_is_done_by_the_next",
        ],
    ),
    36: (
        "An error of the server is taken for a reply, for another's, or for the end",
        [
            "wire/test_replies::test_error_maps_to_its_class_and_action",
            "wire/test_subscription::test_refused_channel_raises_and_harms_no_other",
            "wire/test_client::test_noscript_in_a_pipeline_harms_no_other_reply",
            "wire/test_faults::test_read_only_server_is_left_for_another",
        ],
    ),
    37: (
        "A recurring schedule doubles a slot, loses one, or dies: many define it, many fire it, nobody was there, no room",
        [
            "faults/test_schedules::test_eight_processes_put_and_remove_a_schedule_and_each_slot_has_one_job",
            "faults/test_schedules::test_worker_killed_between_reading_a_schedule_and_firing_it_loses_no_slot",
            "integration/test_schedules_api::test_put_defines_once",
            "lua/test_schedule_fire::test_schedule_fire_sent_again_makes_no_second_job",
            "lua/test_missing_rights_of_time::test_fire_without_a_right_loses_no_slot_and_fires_none_twice",
            "property/test_schedules::test_schedules_agree_with_the_model",
            "worker/test_timetable::test_missed_slots_by_policy",
            "worker/test_timetable_faults::test_full_queue_keeps_the_slot_and_is_not_asked_in_a_loop",
            "worker/test_timetable_faults::test_schedule_that_cannot_be_fired_keeps_no_other_back",
        ],
    ),
    39: (
        "Rows and sets disagree, after a partial restore or by hand: a job is nowhere, or in two places",
        [
            "faults/test_restored::test_restored_snapshot_refuses_the_claims_it_does_not_know",
            "faults/test_restored::test_partly_restored_keys_are_found_and_run_under_no_two_leases",
            "faults/test_restored::test_worker_goes_on_over_a_restored_snapshot",
            "worker/test_results::test_row_that_is_torn_hurts_its_own_job_only",
            "lua/test_repair::test_repair_buries_a_row_without_a_state",
            "lua/test_missing_rights_of_time::test_repair_without_a_right_is_done_by_the_next",
            "property/test_spine::test_spine_agrees_with_the_model",
        ],
    ),
    40: (
        "A handler has a way to end its job for which the server has no word",
        [
            "worker/test_verdicts::test_discard_ends_the_job_whatever_its_reason_is",
            "lua/test_end::test_end_refuses_other_kinds",
            "lua/test_missing_rights_of_time::test_claim_without_a_right_ends_a_late_job_or_leaves_it_to_others",
        ],
    ),
    41: (
        "A redriven job keeps what its old life has spent, or takes a dedup key that another has",
        [
            "lua/test_redrive::test_redrive_begins_a_new_life",
            "lua/test_redrive::test_redrive_refuses_a_taken_dedup_key",
        ],
    ),
    42: ("A second life is counted with the first", []),
    43: (
        "A checkpoint goes back, or its resend is refused",
        [
            "lua/test_checkpoint::test_checkpoint_never_goes_back",
        ],
    ),
    44: (
        "A queue of another protocol version is served as if it were this one's",
        [
            "unit/protocol/test_version::test_version_fits_by_major",
        ],
    ),
    45: ("A paused queue does not recover the leases of dead workers", []),
    46: (
        "One worker takes a whole batch, and whether it may is not said",
        [
            "lua/test_claim::test_claim_moves_a_job_under_a_lease",
        ],
    ),
    47: (
        "The server may evict jobs or dedup keys",
        [
            "worker/test_preflight::test_worker_refuses_a_server_that_may_evict_jobs",
            "worker/test_preflight::test_worker_warns_of_a_server_that_may_evict_keys",
        ],
    ),
    48: (
        "Two producers of one node number mint the same id",
        [
            "unit/protocol/test_ids::test_mint_starts_each_millisecond_at_a_random_offset",
            "integration/test_client_enqueue::test_enqueue_mints_again_on_a_collision",
        ],
    ),
    49: (
        "A job changes its lane while it runs, or stands in two lanes",
        [
            "lua/test_reassign::test_reassign_refuses_jobs_that_run_or_have_ended",
            "lua/test_missing_rights::test_orders_about_lanes_without_a_right_lose_no_job",
        ],
    ),
    50: (
        "A cancel request that was meant for an earlier attempt stops the present one",
        [
            "worker/test_cancel::test_cancel_of_another_attempt_is_ignored",
        ],
    ),
}
"""Number -> what would go wrong, and the tests, beside its scenarios, that hold it (`directory/file::test`)."""

HEAD: Final = """# What could go wrong

Known ways in which a queue of this kind breaks, and what shows that this one does not. The numbers are those that the
scenarios of `python -m echomq.conformance` carry; a number that is missing concerns what is not there yet. Tests are
named as under `tests/`. (This page is made by `python -m tests.docs.pitfalls`, and a test holds it to the tests that
there are.)

"""


@lru_cache(maxsize=256)
def _tests_of(file: str) -> frozenset[str]:
    path = TESTS / f"{file}.py"
    if not path.exists():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def missing(names: Iterable[str]) -> Iterator[str]:
    """Name the tests that do not exist."""
    for name in names:
        file, _, test = name.partition("::")
        if test not in _tests_of(file):
            yield name


def page() -> str:
    """Answer the page as it should be."""
    lines = ["| | what would go wrong | scenarios | tests |", "| --- | --- | --- | --- |"]
    for number, (what, tests) in sorted(HELD.items()):
        told = sum(number in it.pitfalls for it in SCENARIOS)
        cells = (str(number), what, str(told or ""), ", ".join(f"`{name}`" for name in tests))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## The scenarios", ""]
    for number in sorted(HELD):
        names = [it.name for it in SCENARIOS if number in it.pitfalls]
        if names:
            lines += [f"{number}", *(f": {name}" for name in names), ""]
    return HEAD + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
