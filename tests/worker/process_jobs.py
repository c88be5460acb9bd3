"""Plain functions for processes: a child finds them by this module's name. What they do is told through files."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio

from echomq._options import options_of
from echomq.errors import JobStateError
from echomq.job import Job, SyncJob
from echomq.tasks import JobCall
from echomq.verdicts import Discard, RateLimited, Retry, Snooze


def tell(told: str, text: object) -> None:
    """Say what happens, to the test."""
    with Path(told).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def wait_for(path: str) -> None:
    """Wait for the test's word."""
    while not Path(path).exists():
        time.sleep(0.005)


class OddError(Exception):
    """An error that can be pickled and not restored."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} is not {right}")


class HttpError(Exception):
    """What an HTTP library raises: made of something else than its `args`."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers


class GoneError(HttpError):
    """One that is not to be tried again."""


class Unpicklable:
    """A value that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("there is no way to write this")


class UnpicklableError(Exception):
    """An error that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("there is no way to write this")


# --- what ends by itself ---------------------------------------------------------------------------------------------


def add(left: int, right: int) -> int:
    """Add."""
    return left + right


def pid() -> int:
    """Say which process it is."""
    return os.getpid()


def chatter(text: str) -> str:
    """Print, and read what there is to read."""
    print(text)
    sys.stdout.write(text * 100_000)
    os.write(1, text.encode())
    return sys.stdin.read() + text


def note(job: SyncJob) -> list[Any]:
    """Use all that a job offers, in two attempts."""
    before = job.checkpoint_state
    job.progress(job.attempt, 2, "half")
    job.log(f"attempt {job.attempt}")
    if job.attempt == 1:
        assert before is None
        job.checkpoint({"at": [1, 2]}, step=3)
        raise Retry(0, "once more")
    seen = []
    for step in (1, -1):
        try:
            job.checkpoint("lower", step=step)
        except Exception as error:
            seen.append(type(error).__name__)
    try:
        job.progress(-1)
    except ValueError as error:
        seen.append(str(error))
    return [before, job.checkpoint_step, job.cancelled, job.cancel_reason, job.task, job.headers, *seen]


CHECKPOINTS = ((1, 5), (2, None), (3, 4), (4, None))
"""States and steps, the third of which goes back."""


def checkpoints(job: SyncJob) -> list[str]:
    """Keep one after another, and tell what came of each."""
    told = []
    for state, step in CHECKPOINTS:
        try:
            job.checkpoint(state, step=step)
        except JobStateError as error:
            told.append(str(error))
        else:
            told.append(f"kept {state}")
    return told


def leave_thread(job: SyncJob, told: str) -> None:
    """Leave a thread behind that goes on with the job."""

    def late() -> None:
        wait_for(f"{told}.go")
        try:
            job.log("late")
        except Exception as error:
            tell(told, f"{type(error).__name__} {job.cancelled} {job.cancel_reason}")

    threading.Thread(target=late).start()


def verdict(job: SyncJob, how: str) -> str:
    """Raise a verdict at the first attempt."""
    if job.attempt == 1:
        match how:
            case "retry":
                raise Retry(0, "in a moment")
            case "snooze":
                raise Snooze(0, at_least=0)
            case "rate":
                raise RateLimited(0.01, scope="queue")
            case "group":
                raise ExceptionGroup("one", [Retry(0, "within")])
            case "discard":
                raise Discard("of no use")
    return f"{how} {job.attempt} {job.failures}"


def fail(how: str) -> Any:
    """Fail, in one way or another."""
    match how:
        case "deep":
            deeper(how)
        case "odd":
            raise OddError(1, 2)
        case "error":
            raise UnpicklableError("what it says")
        case "gone":
            raise GoneError(410, {})
        case "busy":
            raise HttpError(429, {"Retry-After": "600"})
        case "group":
            raise ExceptionGroup("two", [OSError(), GoneError(410, {})])
        case "local":
            raise type("LocalError", (GoneError,), {})(410, {})
        case "result":
            return Unpicklable()
        case "huge":
            return "x" * 30_000_000
        case "large":
            return "x" * 2_000_000
        case "exit":
            sys.exit("with a text")
        case "interrupt":
            raise KeyboardInterrupt
    return how


def deeper(how: str) -> None:
    """Raise from further down."""
    raise LookupError(how)


def die(how: str) -> None:
    """End the process."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)


def sleep(seconds: float) -> int:
    """Take a while."""
    time.sleep(seconds)
    return os.getpid()


# --- what is stopped -------------------------------------------------------------------------------------------------


async def heed_in_loop(job: Job, told: str) -> str:
    """Run until it is cancelled, if there is a word of the test's; take leave when there is another."""
    if Path(f"{told}.quick").exists():
        return "quick"
    tell(told, "began")
    try:
        await anyio.sleep_forever()
    finally:
        tell(told, f"stopped by {job.cancel_reason}")
        with anyio.CancelScope(shield=True):
            while not Path(f"{told}.go").exists():  # noqa: ASYNC110 - the test is in another process, or might be
                await anyio.sleep(0.005)
            await job.log("bye")
        tell(told, "ended")
    raise AssertionError("it was not cancelled")


def heed(job: SyncJob, told: str) -> str:
    """The same, looking at `job.cancelled`."""
    if Path(f"{told}.quick").exists():
        return "quick"
    tell(told, f"began {os.getpid()}")
    while not job.cancelled:
        time.sleep(0.005)
    tell(told, f"stopped by {job.cancel_reason}")
    wait_for(f"{told}.go")
    job.log("bye")
    tell(told, "ended")
    raise RuntimeError("the noise of a cleanup")


def finish(job: SyncJob, told: str) -> str:
    """Return when it is told to stop."""
    tell(told, f"began {os.getpid()}")
    while not job.cancelled:
        time.sleep(0.005)
    return f"stopped by {job.cancel_reason}"


def ignore(told: str) -> None:
    """Heed nothing: only a kill ends it."""
    tell(told, f"began {os.getpid()}")
    while True:
        time.sleep(0.01)


def parent(job: SyncJob, text: str) -> list[Any]:
    """Read the children, and stage a follow-up."""
    found = job.children_results(int)
    job.on_complete.enqueue(JobCall(job.queue, "after", b'{"args":["%s"]}' % text.encode(), options_of(), len))
    failures = job.ignored_failures()
    return [found, job.outstanding(), [(name, each.kind) for name, each in failures.items()], job.parent is None]
