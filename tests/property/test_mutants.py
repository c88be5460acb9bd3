"""The scenarios and the machine notice scripts that are broken on purpose."""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from echomq.transitions import ALL_VERBS
from tests.property.mutants import PLACES, Mutant, caught_by, mutants

# One a verb, chosen among those whose loss would hurt most: (file, kind of mark, name of mark).
CHOSEN = {
    "age": ("include/base", "guard", "version"),
    "beat": ("beat", "guard", "beat-closing"),
    "browse": ("browse", "guard", "page"),
    "cancel": ("include/ask", "write", "cancel-request"),
    "checkpoint": ("checkpoint", "guard", "step-back"),
    "claim": ("claim", "guard", "replay-fence"),
    "complete": ("complete", "guard", "late"),
    "configure": ("configure", "guard", "level"),
    "counts": ("include/base", "guard", "version"),
    "drain": ("drain", "guard", "drain-state"),
    "end": ("end", "guard", "fence"),
    "enqueue": ("enqueue", "guard", "dedup"),
    "extend": ("include/fence", "guard", "member"),
    "fail": ("fail", "bound", "max-attempts"),
    "find": ("find", "guard", "of-task"),
    "flow_add": ("flow_add", "guard", "delivered"),
    "flow_deliver": ("flow_deliver", "guard", "ask-lost"),
    "flow_done": ("flow_done", "guard", "as-taken"),
    "flow_take": ("flow_take", "write", "take"),
    "flow_walk": ("flow_walk", "guard", "held-there"),
    "log": ("log", "bound", "log"),
    "obliterate": ("obliterate", "guard", "left"),
    "pause": ("pause", "write", "paused"),
    "progress": ("include/fence", "guard", "state"),
    "promote": ("include/again", "guard", "cancel-again"),
    "rate_limited": ("rate_limited", "write", "lane-till"),
    "read_events": ("read_events", "guard", "events-of"),
    "read_flow": ("read_flow", "bound", "read-flow"),
    "read_job": ("include/base", "guard", "version"),
    "read_lanes": ("read_lanes", "guard", "page"),
    "read_schedules": ("read_schedules", "bound", "schedules"),
    "read_settings": ("include/base", "guard", "version"),
    "read_workers": ("read_workers", "bound", "read-workers"),
    "reap": ("include/reap", "bound", "max-stalls"),
    "reassign": ("reassign", "guard", "reassign-state"),
    "redrive": ("include/redrive", "guard", "redrive-dedup"),
    "release": ("include/place", "write", "holder"),
    "remove": ("remove", "guard", "remove-active"),
    "repair": ("repair", "guard", "repair-row"),
    "reprioritise": ("reprioritise", "write", "reprioritise-place"),
    "reschedule": ("reschedule", "guard", "reschedule-state"),
    "resume": ("resume", "write", "resumed"),
    "ring": ("include/bell", "guard", "bell-paused"),
    "schedule_fire": ("schedule_fire", "guard", "slot-stands"),
    "schedule_pause": ("schedule_pause", "guard", "slot-ahead"),
    "schedule_put": ("schedule_put", "guard", "slot-kept"),
    "schedule_remove": ("schedule_remove", "write", "unslot"),
    "set_lane": ("include/rota", "guard", "shut-lane"),
    "spawn": ("spawn", "guard", "fence"),
    "suspend": ("suspend", "guard", "suspend-asked"),
    "snooze": ("include/bell", "guard", "bell-head"),
    "trim": ("include/shelf", "guard", "trim-young"),
    "update": ("update", "write", "update-rest"),
}

RIGHTS = "only a server that refuses a right comes there; tests/lua/test_missing_rights.py holds it"
RIGHTS_OF_FLOWS = "only a server that refuses a right comes there; tests/lua/test_missing_rights_of_flows.py holds it"
TWICE = "to begin the rota again looks at the lane without a name, which is where it should be"
# These change nothing that anybody could see: each with its reason.
EQUIVALENT = {
    "claim: guard keeper: without `not keeper[1]`": "no keeper has no `keeper_until`, which reads as long past",
    "claim: guard keeper: `>=` for `>`": "the very millisecond belongs to either",
    "claim: guard keeper: `<=` for `<`": "the very millisecond belongs to either",
    "enqueue: guard dedup: `>=` for `>`": "PTTL 0 is a key in its last millisecond",
    "include/dedup: guard held-by: `>=` for `>`": "PTTL 0 is a key in its last millisecond",
    "include/once: guard old-call: `>=` for `>`": "the same number was answered a line before",
    "include/reap: guard lease-ahead: `>=` for `>`": "a lease of just the longest is moved to where it is",
    "include/items: guard leave-refused: never": RIGHTS,
    "include/items: guard leave-refused: without `stay[ARGV[first + (i - 1) * stride]]`": RIGHTS,
    "include/items: guard leave-refused: without `string.sub(verdicts[i], 1, 3) ~= 'EMQ'`": RIGHTS,
    "enqueue: guard there: `>=` for `>`": "each item asks for itself then, and is answered the same",
    "include/round: guard round-refused: never": RIGHTS,
    "include/round: guard broken: always": RIGHTS,
    "include/round: guard broken: without `not fine`": "what is answered then is a state, which holds no such word",
    "include/round: guard broken: without `string.find(problem.err or tostring(problem), 'WRONGTYPE', 1, true) ~= nil`": RIGHTS,
    "log: write cut-bytes: `>=` for `>`": "subtracts nothing",
    "include/serve: guard lane-lease: `>=` for `>`": "the very millisecond belongs to either",
    "include/serve: bound lane-ripe: without `min_size > 1`": "an empty lane has no job that waits for others",
    "include/serve: bound lane-ripe: `>=` for `>`": "an empty lane has no job that waits for others",
    "include/serve: guard linger: without `nil`": "false is as good",
    "include/serve: guard lane-linger: `<=` for `<`": "the very millisecond belongs to either",
    "include/limits: guard till: `>=` for `>`": "the very millisecond belongs to either",
    "include/rota: guard shut-lane: `>=` for `>`": "the very millisecond belongs to either",
    "include/bell: guard bell-freed: without `freed > 0`": "adds nothing, and costs every enqueue a command",
    "include/serve: write leave-ring: `>=` for `>`": "takes nothing off",
    "include/bell: guard bell-shut: without `wanted > 0`": "none wanted stay none",
    "include/bell: guard bell-shut: `>=` for `>`": "none wanted stay none",
    "include/bell: bound bell-limit: without `wanted > 0`": "none wanted stay none",
    "enqueue: guard lane: without `lane ~= ''`": "no name is a name that fits",
    "claim: guard keeper-sooner: `<=` for `<`": "what is due at the cap is met by whoever sleeps for the cap",
    "resume: guard told-to-wait: `>=` for `>`": "the very millisecond belongs to either",
    "include/reap: write lane-ahead: without `fine`": "on Valkey the error is a text, and no lane of that name has leases; on Redis 7 it is a table",
    "claim: guard far-closed: `<=` for `<`": "it is closed until the same moment again",
    "schedule_fire: write fire-stays: deleted": RIGHTS,
    "schedule_put: guard lane: without `lane ~= ''`": "no name is a name that fits",
    "repair: write repair-default: without `state == 'pending'`": "a lane that is looked at once more is where it should be",
    "repair: write repair-default: without `gone == 1`": "a lane that is looked at once more is where it should be",
    "claim: guard slots: without `meta[9]`": "there are none then, and looking costs every claim a command",
    "repair: write repair-default: without `ROTA`": "where there is no rota nobody looks at what was touched",
    "include/shelf: guard trimmed: `>=` for `>`": "the very millisecond belongs to either",
    "include/shelf: guard trim-done: `<` for `<=`": "the very millisecond belongs to either",
    "repair: guard repair-window: without `not id`": "no key has no time to live, which is not that of one that stays",
    "repair: guard repair-held: without `fine`": "an error says no state",
    "obliterate: write gone-dedup: without `fine`": "an error names no key",
    "obliterate: write gone-slot: without `fine`": "an error names no lane",
    "obliterate: write gone-typed-slot: without `fine`": "an error names no lane",
    "obliterate: write gone-laned: `>=` for `>`": "takes nought off",
    "obliterate: write gone-name: without `ARGV[i] ~= 'void'`": "it is never there",
    "flow_deliver: guard ask-lost: without `not row.state`": "a row that is not there names no parent",
    "flow_deliver: guard redrive-lost: without `not row.state`": "a row that is not there names no parent",
    "include/kin: write begin-forget: `>=` for `>`": "forgets what is not there",
    "include/kin: guard begin-due: `>=` for `>`": "the very millisecond belongs to either",
    "include/nodes: guard node-lane: without `node.lane ~= ''`": "no name is a name that fits",
    "include/nodes: guard node-collision: always": "each is asked for by itself then, and answers the same",
    "include/nodes: guard node-collision: without `call('EXISTS', unpack(ids)) > 0`": "each is asked for by itself then, and answers the same",
    "include/nodes: write node-due: `>=` for `>`": "the very millisecond belongs to either",
    "include/nodes: guard begin-flows: always": "says once more what meta says",
    "include/nodes: guard nodes-refused: never": RIGHTS_OF_FLOWS,
    "include/nodes: guard childless: without `node.kids`": "one without children waits only while it is held",
    "include/nodes: guard childless: without `not node.verdict`": "one that did not come has no row",
    "include/nodes: guard childless: without `not how.hold`": "who is held is looked at, and stays",
    "include/cancel: guard swept: without `not FLOWS`": "takes a field off that is not there, and costs a command",
    "include/erase: guard erase-swept: without `not children`": "deletes what is not there",
    "include/completing: guard complete-open: without `nil`": "false is as good",
    "include/nodes: write undo-place: deleted": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-dedup: never": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-dedup: without `node.dedup ~= ''`": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-dedup: without `redis.pcall('GET', dedup) == node.id`": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-row: deleted": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-owed: deleted": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-held: never": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-link: deleted": RIGHTS_OF_FLOWS,
    "include/nodes: write undo-detached: never": RIGHTS_OF_FLOWS,
    "flow_walk: guard revive-failed: without `how == 'detached'`": "its policy is another, and it has no reason",
    "flow_walk: guard reconcile-held: never": "its children are found to wait with it, or word to them is unsent; it costs a walk",
    "flow_walk: guard reconcile-settled: without `over`": "a look in between finds it ready, or not yet",
    "age: guard longest: `>=` for `>`": "of two that have run for just as long either is as good",
    "obliterate: guard gone-sweep: without `children`": "without children none are open",
    "obliterate: write gone-told: without `fine`": "an error names neither parent nor children",
    "obliterate: write gone-told: without `FLOWS`": "without flows there are neither parents nor children",
    "repair: guard repair-waits: without `FLOWS`": "without flows there are no parents",
}


def test_mutants_chosen_names_every_verb() -> None:
    """A new verb brings its mutant along."""
    assert sorted(CHOSEN) == sorted(ALL_VERBS)


@pytest.mark.xdist_group("mutants")  # each process plays all scenarios once
@pytest.mark.mutants
@pytest.mark.timeout(300)  # the first of a process waits for all scenarios
@pytest.mark.parametrize(("where", "kind", "name"), sorted(set(CHOSEN.values())))  # several verbs may share one
def test_mutant_is_caught(where: str, kind: str, name: str, redis_client: redis.Redis) -> None:
    """The line of each verb that would hurt most cannot go unnoticed."""
    mutant = next(it for it in mutants(where) if (it.kind, it.name) == (kind, name))
    assert caught_by(mutant, redis_client) is not None, f"nobody noticed {mutant}"


def test_mutants_equivalent_are_still_there() -> None:
    """An exception whose line has gone is taken off the list."""
    assert {str(mutant) for where in PLACES for mutant in mutants(where)} >= set(EQUIVALENT)


@pytest.mark.prove
@pytest.mark.mutants
@pytest.mark.timeout(3600)
def test_mutants_are_all_caught(redis_client: redis.Redis, capsys: pytest.CaptureFixture[str]) -> None:
    """Every marked line, condition, part of a condition and limit: its loss is noticed, or changes nothing."""
    survivors: list[Mutant] = []
    table: Counter[tuple[str, str]] = Counter()
    for where in PLACES:
        for mutant in mutants(where):
            if str(mutant) in EQUIVALENT:
                table[where, "equivalent"] += 1
                continue
            by = caught_by(mutant, redis_client)
            table[where, "survived" if by is None else "machine" if by == "the machine" else "scenarios"] += 1
            if by is None:
                survivors.append(mutant)
    columns = ("scenarios", "machine", "equivalent", "survived")
    with capsys.disabled():
        print(f"\n{'caught by':20}" + "".join(f"{column:>12}" for column in columns))
        for where in PLACES:
            if any(table[where, column] for column in columns):
                print(f"{where:20}" + "".join(f"{table[where, column]:12}" for column in columns))
        print(f"{'all':20}" + "".join(f"{sum(table[w, column] for w in PLACES):12}" for column in columns))
    assert [str(it) for it in survivors] == []
