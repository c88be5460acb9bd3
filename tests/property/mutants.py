"""Scripts broken on purpose: a suite that does not notice proves nothing.

Lines on which correctness hangs are marked in the Lua: `--!guard NAME`, `--!write NAME`, `--!bound NAME`. Each mark gives
mutants of the assembled script: the line is gone, its condition never holds or always, one part of it is forgotten, a
limit is off by one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import hypothesis
import redis
from hypothesis.stateful import run_state_machine_as_test

import echomq
from echomq.conformance.machine import machine
from echomq.conformance.machine_flows import flows_machine
from echomq.conformance.machine_lanes import lanes_machine
from echomq.conformance.machine_schedules import schedules_machine
from echomq.conformance.scenarios import SCENARIOS, Outcome, Scenario, run
from echomq.transitions import ALL_VERBS, Script, load

LUA = Path(echomq.__file__).parent / "lua"
PLACES = sorted(str(path.relative_to(LUA).with_suffix("")) for path in LUA.rglob("*.lua"))
"""Every file with marks: verbs and includes."""

MARK = re.compile(r"^(?P<code>.*?)\s*--!(?P<kind>guard|write|bound) (?P<name>[a-z-]+)$")
CONDITION = re.compile(r"^(?P<head>\s*(?:if|elseif|while) )(?P<condition>.*?)(?P<tail> (?:then|do)\b.*)$")
RETURNED = re.compile(r"^(?P<head>\s*return )(?P<condition>.*? (?:and|or) .*)(?P<tail>)$")
ASSIGNED = re.compile(r"^(?P<head>\s*(?:local )?\w+ = )(?P<condition>.*? (?:and|or) .*)(?P<tail>)$")
OFF_BY_ONE = (
    (r"LIMIT', 0, bound\)", "LIMIT', 0, bound + 1)"),
    (r"\bcount - 1\)", "count)"),
    (r"\broom - 1,", "room,"),
    (r"= MOST_TOKENS -", "= MOST_TOKENS + 1 -"),
    (r"\bbound - 1\)", "bound)"),
    (r"limit - call\('ZCARD'", "limit + 1 - call('ZCARD'"),
    (r"limit - call\('ZCARD'", "limit - 1 - call('ZCARD'"),
    (r"math\.max\(0, (math\.min\(.*\))\)", r"\1"),
    (r"\+ 1$", "+ 2"),
    (r"\+ 1$", "+ 0"),
    (r"count \+ 16, ", "count + 17, "),
    (r"count \+ 16, ", "count + 15, "),
    (r"0, 15\)", "0, 14)"),
    (r"0, 15\)", "0, 16)"),
    (r"LIMIT', 0, LEAST_LANES\)", "LIMIT', 0, 0)"),
    (r"known - 7\)", "known - 8)"),
    (r"known - 7\)", "known - 6)"),
    (r"\bMOST_LANES - 1\)", "0)"),
    (r"', lanes, MOST_LANES\)", "', lanes, 0)"),
    (r"LIMIT', offset, count\)", "LIMIT', offset, count + 1)"),
    (r"offset \+ bound - 1\)", "offset + bound)"),
    (r"\bcount - 1, 'WITHSCORES'\)", "count, 'WITHSCORES')"),
    (r"\broom - 1\) or", "room) or"),
    (r"LIMIT', 0, MOST_PARENTS\)", "LIMIT', 0, MOST_PARENTS + 1)"),
    (r"'COUNT', (bound|count)\)", "'COUNT', 100000)"),
    (r" > MOST_NODES ", " >= MOST_NODES "),
    (r" > MOST_NODES ", " > MOST_NODES + 1 "),
)


@attrs.frozen
class Mutant:
    """One broken line, in every script that has it."""

    where: str
    """The verb, or the include: then all verbs that include it are broken at once, for they share the code."""
    kind: str
    name: str
    how: str
    """What was done to the marked line."""
    scripts: dict[str, Script]
    """The broken scripts, by verb."""

    def __str__(self) -> str:
        return f"{self.where}: {self.kind} {self.name}: {self.how}"


def _split(text: str, word: str) -> list[str]:
    """Split at a word outside of parentheses and blocks."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and text.startswith(f" {word} ", at):
            parts.append(text[start:at])
            start = at + len(word) + 2
    return [*parts, text[start:]]


def _forgetting(condition: str) -> Iterator[tuple[str, str]]:
    """Leave out one part of a condition, or shift a comparison by one."""
    for word in ("or", "and"):
        parts = _split(condition, word)
        if len(parts) > 1:
            for at, part in enumerate(parts):
                yield f"without `{part}`", f" {word} ".join(parts[:at] + parts[at + 1 :])
            break
    for old, new in ((" > ", " >= "), (" >= ", " > "), (" < ", " <= "), (" <= ", " < ")):
        if condition.count(old) == 1:
            yield f"`{new.strip()}` for `{old.strip()}`", condition.replace(old, new)


def _variants(code: str, kind: str) -> Iterator[tuple[str, str]]:
    """Answer the changed lines: what was done, and the line."""
    found = CONDITION.match(code) or RETURNED.match(code) or (ASSIGNED.match(code) if kind == "guard" else None)
    if found:
        head, condition, tail = found["head"], found["condition"], found["tail"]
        yield "never", f"{head}false{tail}"
        if not tail.rstrip().endswith("end") and "while" not in head:
            yield "always", f"{head}true{tail}"
        for how, changed in _forgetting(condition):
            yield how, f"{head}{changed}{tail}"
    if kind == "bound":
        shifted = [(new, re.sub(old, new, code)) for old, new in OFF_BY_ONE if re.search(old, code)]
        yield from ((f"off by one, {new}", changed) for new, changed in shifted)
        if shifted or code.lstrip().startswith(("for ", "local ")):
            return
    if not found:
        yield "deleted", ""


def _broken(verb: str, line: str, changed: str) -> Script:
    """Change a line of a verb's script as it is assembled."""
    script = load(verb)
    lines = [changed if it == line else it for it in script.source.splitlines()]
    source = "\n".join(lines) + "\n"
    assert source != script.source, f"{verb} does not have the line {line!r}"
    return attrs.evolve(script, source=source, sha=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def mutants(where: str) -> list[Mutant]:
    """Make every mutant of a verb's own lines, or of an include's (`include/NAME`)."""
    name = where.removeprefix("include/")
    including = [
        verb for verb in ALL_VERBS if name == "base" or name in (*load(verb).header.include, *load(verb).header.flows)
    ]
    verbs = including if where.startswith("include/") else [where]
    made = []
    for line in (LUA / f"{where}.lua").read_text(encoding="utf-8").splitlines():
        mark = MARK.match(line)
        if mark is None:
            continue
        for how, changed in _variants(mark["code"], mark["kind"]):
            scripts = {verb: _broken(verb, line, changed) for verb in verbs}
            made.append(Mutant(where, mark["kind"], mark["name"], how, scripts))
    return made


_OUTCOMES: list[Outcome] = []


def _stories(verbs: set[str], server: redis.Redis) -> list[Scenario]:
    """Answer the scenarios that run one of the verbs, those that run few others first."""
    if not _OUTCOMES:
        _OUTCOMES.extend(sorted((run(it, server) for it in SCENARIOS), key=lambda it: len(it.verbs)))
        assert [str(it.error) for it in _OUTCOMES if it.error] == []
    return [it.scenario for it in _OUTCOMES if it.verbs & verbs]


def caught_by(mutant: Mutant, server: redis.Redis, *, examples: int = 60) -> str | None:
    """Say what notices a mutant: a scenario's name, or one of the machines; None when nothing does."""
    for it in _stories(set(mutant.scripts), server):
        try:
            if run(it, server, scripts=mutant.scripts).error is not None:
                return it.name
        except redis.RedisError:  # the script never ends, and the server waits for it
            server.script_kill()
            return it.name
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=40,
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[hypothesis.Phase.generate],
        report_multiple_bugs=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    for make in (lanes_machine, machine, schedules_machine, flows_machine):
        try:
            run_state_machine_as_test(make(server, mutant.scripts), settings=settings)
        except Exception:
            return "the machine"
    return None
