"""Every script's header says what the script takes, answers and touches, and the wire's golden file what it is."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import redis
from lupa.lua51 import LuaRuntime

from echomq import transitions
from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError, Driver
from echomq.conformance.items import make_item
from echomq.conformance.scenarios import SCENARIOS, run
from echomq.conformance.snapshot import Snapshot, take
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import NewJob
from echomq.transitions import ALL_VERBS, MULTI, Call, Transition, load
from echomq.transitions.nodes import spell_nodes
from tests.sample_calls import FENCED, arguments_of, items_of

# One fixture plays every scenario, watched: on a busy machine that alone takes a minute.
pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("watched scenarios")]

GOLDEN = Path(__file__).parent / "golden.json"
ADDING = {"enqueue", "checkpoint", "log", "schedule_put", "schedule_fire", "flow_add", "spawn", "update"}
READS = {
    "age",
    "browse",
    "counts",
    "find",
    "read_events",
    "read_flow",
    "read_job",
    "read_lanes",
    "read_schedules",
    "read_settings",
}
READS |= {"read_workers"}
BOUNDED_WALKS = {
    "enqueue": ["HKEYS"],
    "schedule_put": ["HKEYS"],
    "read_lanes": ["HSCAN"],
    "read_flow": ["HSCAN"],
    "flow_walk": ["HSCAN"],
    "repair": ["HKEYS", "LPOS", "LREM", "HKEYS"],
}
"""The names of one row's fields; one page; an operator's own look at the whole rota, lane by lane."""
UNDONE = ["LREM"]
"""In a list whose last entry it is: what a flow that was refused in the middle takes back."""
SETTLING = [("waiting", "pending"), ("waiting", "schedule"), ("waiting", "dead"), ("nothing", "pending")]
SETTLED = {"event ready", "event dead", "event enqueued", "event trimmed", "word dead"}
SETTLED |= {f"move {a} -> {b}" for a, b in SETTLING}
"""What any ending may do to the job's parent, or to be told of (`kin`, `bury`)."""
KEYS = QueueKeys(queue="headers")
CALL = Call("tag", 1)


def _items(verb: str) -> list[Any]:
    if verb == "enqueue":
        return [NewJob(payload=b"x"), NewJob(task="t", dedup="k", headers={"a": "b"})]
    if verb in FENCED:
        return [make_item(verb, id, 1, "n.1") for id in "ab"]
    return items_of(verb, "a", "b")


def _plain(verb: str) -> Transition[Any]:
    made: Transition[Any] = getattr(transitions, verb)(KEYS, CALL, **arguments_of(verb))
    return made


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_header_counts_the_arguments_that_are_sent(verb: str) -> None:
    """Leading arguments and those of an item, as the Python half sends them."""
    header = load(verb).header
    assert header.verb == verb
    assert header.argv[:2] == ("client tag", "number count")
    if verb not in MULTI:
        assert header.item == ()
        of_nodes = len(spell_nodes(arguments_of(verb).get("nodes", ()))) - 1 if verb in {"flow_add", "spawn"} else 0
        assert len(_plain(verb).argv) == len(header.argv) + of_nodes
        return
    argv = MULTI[verb](KEYS, CALL, _items(verb)).argv
    assert len(header.argv) == 2
    if verb == "enqueue":
        fixed = len(header.item) - 1
        first = 2 + fixed + 2 * int(argv[1 + fixed])
        assert len(argv) == first + fixed + 2 * int(argv[first + fixed - 1])
    else:
        assert len(argv) == 2 + 2 * len(header.item)


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_header_flags_follow_rule_9(verb: str) -> None:
    """Reads write nothing, what adds work or data is refused by a full server, and all else is not."""
    script = load(verb)
    expected = ("no-writes",) if verb in READS else () if verb in ADDING else ("allow-oom",)
    assert script.header.flags == expected
    assert script.source.startswith(f"#!lua flags={expected[0]}\n" if expected else "#!lua\n")


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_script_is_lua_5_1(verb: str) -> None:
    """As the server gets it, without the line that only the server reads."""
    compiled = LuaRuntime(register_eval=False).globals().loadstring(load(verb).source.partition("\n")[2], f"={verb}")
    assert not isinstance(compiled, tuple), compiled


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_script_reads_the_clock_once_and_walks_nothing(verb: str) -> None:
    """Rules 3 and 4: one TIME at most, no search of unbounded collections."""
    source = load(verb).source
    assert source.count("'TIME'") <= 1
    walks = re.findall(r"'(KEYS|SCAN|HSCAN|ZSCAN|SSCAN|LPOS|LREM|HKEYS|SMEMBERS|FLUSHDB|FLUSHALL)'", source)
    adds = UNDONE if "nodes" in load(verb).header.flows else []
    assert walks == adds + BOUNDED_WALKS.get(verb, [])


def test_marks_have_the_form_that_mutants_are_made_from() -> None:
    """Each ends its line, and names itself in small letters."""
    for verb in ALL_VERBS:
        for line in load(verb).source.splitlines():
            if "--!" in line:
                assert re.search(r"--!(guard|write|bound) [a-z-]+$", line), line


def test_scripts_are_those_of_the_golden_file() -> None:
    """A change of what runs on servers shows in review."""
    seen = {verb: load(verb).sha for verb in ALL_VERBS}
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    changed = sorted(verb for verb in seen.keys() | golden.keys() if seen.get(verb) != golden.get(verb))
    assert not changed, (
        f"the scripts of {', '.join(changed)} are not those of {GOLDEN.name}. If the change is meant, think of queues "
        f"in use by older workers, then write the file anew: python -m tests.lua.golden"
    )


# --- what the scripts do, watched in every scenario ------------------------------------------


class Watch:
    """Looks at the keyspace around each call, and holds it against the script's header."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.seen: defaultdict[str, set[str]] = defaultdict(set)

    def call(self, verb: str, before: Snapshot, after: Snapshot, answer: object) -> None:
        """Note what a call did, by verb."""
        header = load(verb).header
        keys = {}
        for key in header.keys:
            name, _, kind = key.rpartition(" ")
            keys[re.sub(r"<[^>]*>", "[^:]+", name.replace("<entry>", "[a-z]+:[^:]+"))] = kind
        for suffix in before.entries.keys() | after.entries.keys():
            old, new = before.entries.get(suffix), after.entries.get(suffix)
            if old == new:
                continue
            kind = (new or old).kind  # type: ignore[union-attr]
            # What somebody else put in a key's place goes, of whatever type it is.
            cleared = new is None and verb in {"obliterate", "repair"}
            if not any(re.fullmatch(name, suffix) and (kind == it or cleared) for name, it in keys.items()):
                self.wrong.append(f"{verb} touches {suffix} ({kind}), which its header does not name")
        for suffix in before.entries.keys() | after.entries.keys():
            if re.fullmatch(r"job:[^:]+", suffix):
                states = [it.hash(suffix).get("state", "nothing") for it in (before, after)]
                if states[0] != states[1]:
                    self.seen[verb].add(f"move {states[0]} -> {states[1]}")
        for _, words in after.items("events")[len(before.items("events")) :]:
            self.seen[verb].add(f"event {dict(zip(words[::2], words[1::2], strict=True))['event']}")
        if verb in {*MULTI, "flow_add", "spawn"} and isinstance(answer, list):
            self.seen[verb] |= {f"word {text.decode().split()[0]}" for text in answer}
        elif isinstance(answer, (str, bytes)):
            text = answer if isinstance(answer, str) else answer.decode()
            self.seen[verb].add(f"word {text.split()[0]}")


ONE_PROCESS = pytest.mark.xdist_group("headers")
"""All scenarios are played for these: once is enough."""


@pytest.fixture(scope="session")
def watch(server_url: str) -> Watch:
    """All scenarios, each with all events on, every call of them watched."""
    watch = Watch()
    unwatched, begin = Driver.raw, Bench.__init__

    def raw(self: Driver, transition: Transition[Any]) -> Any:
        before = take(self.server, self.keys)
        answer: object = None
        try:
            answer = unwatched(self, transition)
        except CallRefusedError as error:
            answer = str(error)
            raise
        finally:
            watch.call(transition.verb, before, take(self.server, self.keys), answer)
        return answer

    def all_events(self: Bench, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.server.hset(self.keys.meta, mapping={"events": "all", "protocol": "1.0"})

    with pytest.MonkeyPatch.context() as patch, redis.Redis.from_url(server_url) as server:
        patch.setattr(Driver, "raw", raw)
        with patch.context() as every:
            every.setattr(Bench, "__init__", all_events)
            broken_off = [it for it in SCENARIOS if run(it, server).error is not None]
        for it in broken_off:
            run(it, server)  # it expects fewer events than there were, and had not come to its end
    return watch


@ONE_PROCESS
def test_scripts_touch_only_the_keys_they_declare(watch: Watch) -> None:
    """By name and type, in every scenario."""
    assert sorted(set(watch.wrong)) == []


@ONE_PROCESS
@pytest.mark.parametrize("verb", ALL_VERBS)
def test_scripts_do_what_their_headers_say(verb: str, watch: Watch) -> None:
    """Every word, event and move that is declared is seen in a scenario, and none that is not."""
    header = load(verb).header
    declared = {f"word {it.split()[0]}" for it in (*header.verdicts, *header.refusals)}
    declared |= {f"event {it}" for it in header.events} | {f"move {it}" for it in header.moves}
    # One claim may make two moves with one job: promote it, or reap it, and lease it.
    moves = [it.split(" -> ") for it in header.moves]
    # A parent that is added may be settled in the same call.
    steps = [*moves, *SETTLING] if "nodes" in header.flows else moves if verb == "claim" else []
    chains = {f"move {a} -> {d}" for a, b in steps for c, d in steps if b == c}
    # Any call may be malformed; a job that is only noted, or goes to another lane, stays in its state.
    allowed = declared | chains | {"word EMQKIND", "word EMQTORN"}
    if "kin" in header.flows:
        allowed |= SETTLED
    assert watch.seen[verb] - allowed == set()
    stays = {f"move {a} -> {b}" for a, b in moves if a == b}
    assert declared - watch.seen[verb] - stays == set()
