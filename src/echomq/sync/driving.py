"""Runs walks (`echomq._walks`) for programs that block."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from echomq._items import check_progress
from echomq._walks import Aside, Ask, At, Each, Once, Outcomes, Plain, Rows, Step, Tell, Wait, Walk, chunks
from echomq.errors import EchoMQError
from echomq.finding import still
from echomq.transitions import MAX_ITEMS, MULTI, read_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.states import State
    from echomq.sync.runner import Runner
    from echomq.transitions import JobInFull

R = TypeVar("R")


def perform(runner: Runner, keys: QueueKeys, step: Step, progress: Callable[[int], None] | None) -> Any:
    """Do what a walk wants next."""
    match step:
        case Ask(build):
            return runner.run(build(runner.call()))
        case Once(verb, build):
            return runner.remembered(keys, verb, build)
        case Each(verb, items):
            return each(runner, keys, verb, items)
        case Plain(args):
            return runner.command(*args)
        case Aside(args):
            with suppress(EchoMQError):
                runner.command(*args)
        case Rows(ids):
            return [runner.run(read_job(keys, runner.call(), id)) for id in ids]
        case At(name, there):
            return perform(runner, attrs.evolve(keys, queue=name), there, progress)
        case Wait(seconds):
            time.sleep(seconds)
        case Tell(count):
            if progress is not None:
                progress(count)
    return None


def each(runner: Runner, keys: QueueKeys, verb: str, items: Sequence[Any]) -> Outcomes:
    """Run a multi-item verb, as many items a call as fit; a call that fails is the outcome of each of its items."""
    outcomes: Outcomes = []
    for some in chunks(items, MAX_ITEMS):
        try:
            outcomes += runner.remembered(keys, verb, lambda call, some=some: MULTI[verb](keys, call, some))  # type: ignore[misc]
        except EchoMQError as error:
            outcomes += [error] * len(some)
    return outcomes


def found(
    runner: Runner, keys: QueueKeys, walk: Walk[None], state: State, make: Callable[[JobInFull], R]
) -> Iterator[R]:
    """Go through the jobs that a walk finds (`echomq.finding`), one by one."""
    answer = None
    while True:
        try:
            step = walk.send(answer)
        except StopIteration:
            return
        answer = perform(runner, keys, step, None)
        if isinstance(step, Rows):
            yield from map(make, still(state, answer))


def drive(runner: Runner, keys: QueueKeys, walk: Walk[R], progress: Callable[[int], None] | None = None) -> R:
    """Run a walk to its end; see `echomq._walks.drive`."""
    check_progress(progress)
    answer, problem = None, None
    with closing(walk):
        while True:
            try:
                step = walk.send(answer) if problem is None else walk.throw(problem)
            except StopIteration as stop:
                found: R = stop.value
                return found
            answer, problem = None, None
            try:
                answer = perform(runner, keys, step, progress)
            except EchoMQError as error:
                problem = error
