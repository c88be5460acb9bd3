"""What a call changed, in words: the whole keyspace before and after it, with ids and moments by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from echomq.conformance.bench import Bench, spell
from echomq.conformance.items import YEAR_MS, make_item
from echomq.conformance.snapshot import Snapshot
from echomq.protocol.records import Claimed, NewJob

MOMENT = re.compile(r"\b1[0-9]{12}(\.0)?\b")


def _lines(before: Snapshot, after: Snapshot) -> Iterator[str]:
    for suffix in before.entries.keys() | after.entries.keys():
        old, new = before.entries.get(suffix), after.entries.get(suffix)
        if old == new or suffix.startswith("once:"):
            continue
        if new is None:
            yield f"{suffix}: gone"
        elif suffix == "events":
            for _, words in new.value[len(old.value) if old else 0 :]:
                event = dict(zip(words[::2], words[1::2], strict=True))
                yield f"event {event['event']} {event['job']}".strip()
        elif isinstance(new.value, dict):
            was = old.value if old else {}
            for name in was.keys() | new.value.keys():
                if was.get(name) != new.value.get(name):
                    yield f"{suffix}[{name}] = {new.value.get(name, 'nothing')}"
        elif new.kind == "list":
            yield f"{suffix}: {len(old.value) if old else 0} -> {len(new.value)}"
        else:
            yield f"{suffix} = {new.value}{' with a TTL' if new.ttl else ''}"


def changes(b: Bench, run: Callable[[], object], **names: str) -> tuple[object, set[str]]:
    """Run a call and answer what it answered, and what it changed.

    `names` are jobs' ids by the name to call them; a moment of the server's clock reads `T`, a client's tag its role.
    """
    before = b.look()
    answer = run()
    lines = set()
    for line in _lines(before, b.look()):
        text = line
        for name, id in names.items():
            text = text.replace(id, name)
        for role in ("producer", "worker", "other"):
            text = text.replace(getattr(b, role).tag, role.upper())
        lines.add(MOMENT.sub("T", text))
    return answer, lines


def running(b: Bench, **options: object) -> Claimed:
    """Make a job and claim it."""
    b.add(**options)
    return b.take()


def assert_fenced(b: Bench, verb: str) -> None:
    """Hold that a fenced verb refuses whoever does not hold the job, and changes nothing by that."""

    def refuses(expected: str, id: str, token: int = 1, nonce: str = "nobody.1") -> None:
        item = make_item(verb, id, token, nonce, 1)
        answer, changed = changes(b, lambda: spell(b.worker.item(verb, item)))
        assert (answer, changed) == (expected, set())

    refuses("EMQGONE", NewJob().id)
    refuses("EMQSTALE pending", b.add(priority=-1))
    refuses("EMQSTALE schedule", b.add(delay_ms=YEAR_MS))
    done = running(b, result_ttl_ms=YEAR_MS)
    b.settle("complete", done)
    refuses("EMQSTALE done", done.id, done.token, done.nonce)
    dead = running(b)
    b.settle("fail", dead)
    refuses("EMQSTALE dead", dead.id, dead.token, dead.nonce)
    held = running(b)
    refuses("EMQSTALE active", held.id, held.token + 1, held.nonce)
    refuses("EMQSTALE active", held.id, held.token, f"{b.other.tag}.1")
    refuses("EMQSTALE active", held.id, 0, "")
    b.torn = True
    b.server.zrem(b.keys.active, held.id)
    refuses("EMQSTALE torn", held.id, held.token, held.nonce)
