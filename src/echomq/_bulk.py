"""Enqueueing any number of jobs: in rounds of bounded size, each job made when its turn comes.

Theory of operation
    `EnqueueStream` draws jobs up to the bounds of a round and hands each to its queue's group commit as it is drawn: the
    calls before it are on the wire meanwhile. When the last of the round is answered, its answers are handed out, and
    what they took is free before the next round. Nothing is on the way between two rounds, so a stream may be dropped
    at any moment. `enqueue_many` is the same, its answers kept.

If you change this
    Whatever is held must be bounded by a round: a source may be longer than memory, and all of it may be refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import anyio
import anyio.lowlevel

from echomq._items import check_progress
from echomq._options import JobOptions
from echomq.errors import EchoMQError, UnavailableError
from echomq.middleware import measured, passed
from echomq.protocol.refusals import COLLISION, Verdict
from echomq.results import JobHandle
from echomq.wire.items import Window

if TYPE_CHECKING:
    from echomq.protocol.stamps import StampedJob
    from echomq.queue import Queue
    from echomq.tasks import JobCall

T = TypeVar("T")

AT_ONCE: Final = 8192
"""Jobs of one round: some sixty calls, after which the last reply is waited for."""
BYTES_AT_ONCE: Final = 8 << 20
"""Bytes of payload of one round, so that memory is bounded by bytes too."""
ROUND_SECONDS: Final = 0.05
"""After which a round over an asynchronous source ends: what it has sent is told, though the source is slow."""
MAX_WIDTH: Final = 16
"""Queues whose calls are on the way at the same time at most."""

Content = tuple[str, bytes, JobOptions, Callable[[bytes], Any]]
"""A job of many: task, payload, options, and what decodes the result."""
Sent = tuple["Queue", str, bytes, JobOptions, Callable[[bytes], Any], "JobCall[Any] | None"]
"""The same, with where it goes before it, and as what its answer is counted."""


def not_sent(broken: UnavailableError) -> UnavailableError:
    """Make the error of a job that was not tried: an outage costs one wait, and not one a call."""
    return UnavailableError(f"not sent, since one before it failed: {broken}", sent=False)


@final
class EnqueueStream(Generic[T]):
    """What became of each job of many, in the order of the input: its handle, or the error it met.

    Made by `enqueue_stream` of a queue, client or app. Nothing is drawn or sent before it is iterated over, once and in
    one task. It may be left at any moment: what was sent stays, nothing else is sent, and nothing else is drawn.
    """

    def __init__(
        self,
        source: Iterable[Any] | AsyncIterable[Any],
        content: Callable[[Any], Sent],
        *,
        check: Callable[[], None],
        progress: Callable[[int], Awaitable[None]] | None,
    ) -> None:
        check_progress(progress)
        self._slow: AsyncIterator[Any] | None = None
        self._source: Iterator[Any] = iter(())
        if isinstance(source, AsyncIterable):
            self._slow = aiter(source)
        else:
            self._source = iter(source)
        self._content = content
        self._check = check
        self._progress = progress
        self._answered = 0
        self._found: Iterator[JobHandle[T] | EchoMQError] = iter(())
        self._broken: UnavailableError | None = None
        self._within = False
        self._failed: Exception | None = None
        """What the source raised, to be told when the jobs before it have been answered."""

    def __aiter__(self) -> AsyncIterator[JobHandle[T] | EchoMQError]:
        return self

    async def __anext__(self) -> JobHandle[T] | EchoMQError:
        """Answer the next job's handle or error; if none is known, draw, send and wait for a round of them.

        Raises:
            TypeError: A payload is not bytes. Like whatever the source raises, it comes after the answers of the jobs
                before it, and ends the stream.
            RuntimeError: The client is closed, or of another event loop; or this stream was broken off.
            StopAsyncIteration: That was all.

        Cancellation: a checkpoint where a round begins. Cancelled in the middle of one, what was sent stays, and what of
            it was queued is not told any more: the stream is over.
        """
        answer = next(self._found, None)
        if answer is not None:
            return answer
        self._found = iter(await self.next_round())
        answer = next(self._found, None)
        if answer is None:
            raise StopAsyncIteration
        return answer

    async def collect(self) -> list[JobHandle[T] | EchoMQError]:
        """Answer all of them: what `enqueue_many` does."""
        answers: list[JobHandle[T] | EchoMQError] = []
        while some := await self.next_round():
            answers += some
        return answers

    async def next_round(self) -> list[JobHandle[T] | EchoMQError]:
        """Draw and send a round of jobs, and answer what became of them; nothing: that was all. Raises as `__anext__`."""
        if self._within:
            raise RuntimeError("this stream was broken off in the middle, or another task draws from it: make another")
        self._check()
        self._within = True
        if self._failed is not None:
            raise self._failed
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException:
            self._within = False  # nothing was drawn
            raise
        round_ = _Round(self._broken)
        try:
            try:
                await (self._draw(round_) if self._slow is None else self._draw_slowly(round_, self._slow))
            except Exception as error:
                if not round_.answers:
                    raise
                self._failed = error
            while round_.window.open:
                await self._wait(round_.window)
        except BaseException:
            round_.window.leave()
            raise
        answers = await round_.settle()
        self._broken = round_.broken
        self._answered += len(answers)
        if answers and self._progress is not None:
            await self._progress(self._answered)
        self._within = False
        return answers

    async def _draw(self, round_: _Round) -> None:
        content, answers, window, end = self._content, round_.answers, round_.window, object()
        while round_.room > 0 and len(answers) < AT_ONCE and window.broken is None:
            drawn = next(self._source, end)
            if drawn is end:
                return
            round_.take(content, drawn)
            if window.full:
                await self._wait(window)

    async def _draw_slowly(self, round_: _Round, source: AsyncIterator[Any]) -> None:
        content, answers, window = self._content, round_.answers, round_.window
        ends = anyio.current_time() + ROUND_SECONDS
        async for drawn in source:
            round_.take(content, drawn)
            if window.full:
                await self._wait(window)
            if round_.room <= 0 or len(answers) >= AT_ONCE or window.broken is not None:
                return
            if anyio.current_time() >= ends:
                return

    async def _wait(self, window: Window) -> None:
        await window.wait()
        self._check()


@final
class _Round:
    """The jobs of one round, made as they are drawn, and what their verdicts are matched with."""

    __slots__ = ("_enter", "_last", "_outcomes", "_queues", "_sent", "answers", "broken", "room", "window")

    def __init__(self, broken: UnavailableError | None) -> None:
        self.answers: list[Any] = []
        self.broken = broken
        """What an earlier job failed by: nothing more is sent."""
        self.room = BYTES_AT_ONCE
        self._outcomes: list[Any] = []
        self.window = Window(self._outcomes)
        self._sent: list[tuple[int, StampedJob, Queue, Callable[[bytes], Any], JobCall[Any] | None]] = []
        self._queues: set[str] = set()
        self._last: Queue | None = None
        self._enter: Any = None

    def take(self, content: Callable[[Any], Sent], drawn: Any) -> None:
        """Make a job of what was drawn and send it.

        One that cannot be made, since it is too large or a middleware refuses it, is answered here and fails no other.
        """
        answers = self.answers
        if self.broken is not None:
            answers.append(not_sent(self.broken))
            return
        call = None
        try:
            queue, task, payload, options, read, call = content(drawn)
            job = options.new_job(task, payload)
        except EchoMQError as error:
            if call is not None:
                measured(call, error)
            answers.append(error)
            return
        if queue is not self._last:
            self._last, self._enter = queue, queue.enqueues.enter
            self._queues.add(queue.name)
            self.window.widen(min(len(self._queues), MAX_WIDTH))
        self._enter(job, self.window)
        self._sent.append((len(answers), job, queue, read, call))
        answers.append(None)
        self.room -= len(payload)

    async def settle(self) -> list[Any]:
        """Make the answers of the verdicts."""
        answers = self.answers
        for (at, job, queue, read, call), outcome in zip(self._sent, self._outcomes, strict=True):
            if type(outcome) is not Verdict:
                answers[at] = outcome
                if isinstance(outcome, UnavailableError):
                    self.broken = outcome
            elif outcome.code == "admitted":
                answers[at] = JobHandle(job.id, queue.keys.queue, "admitted", queue, read)
            elif outcome.code == COLLISION:
                try:
                    answers[at] = await queue.send(job.again(), read)
                except EchoMQError as error:
                    answers[at] = error
            else:
                answers[at] = queue.answer(job.id, outcome, read)
            if call is not None:
                measured(call, answers[at])
        return answers


# --- by portions, for the client that blocks --------------------------------------------------


def broken_by(answers: list[Any]) -> UnavailableError | None:
    """Answer the error after which nothing more is sent, if it came to that."""
    return next((each for each in reversed(answers) if isinstance(each, UnavailableError)), None)


def content_of(call: JobCall[Any]) -> Content:
    """Answer what is sent of a call."""
    return call.task, call.payload, call.options, call.read


def take_portion(source: Iterator[JobCall[T]]) -> Iterator[JobCall[T]]:
    """Draw a portion of calls, bounded in number and bytes: what is held at a time of a source that may be endless."""
    room = BYTES_AT_ONCE
    for count, call in enumerate(source, 1):
        yield call
        room -= len(call.payload)
        if count >= AT_ONCE or room <= 0:
            return


def pass_all(portion: list[JobCall[T]], answers: list[Any]) -> Exception | None:
    """Take a portion through its middleware, in place.

    An `EchoMQError` is the answer of its call. Anything else cuts portion and answers off where it was raised, and is
    answered, to be raised when what was before it has been sent.
    """
    for at, call in enumerate(portion):
        try:
            portion[at] = passed(call)
        except EchoMQError as error:
            answers[at] = error
        except Exception as error:  # noqa: BLE001 - raised by the caller
            del portion[at:], answers[at:]
            return error
    return None


def by_queue(portion: list[JobCall[T]], answers: list[Any]) -> dict[str, list[int]]:
    """Answer for each queue, in the order of their first calls, where in the portion its calls without an answer are."""
    places: dict[str, list[int]] = {}
    for at, call in enumerate(portion):
        if answers[at] is None:
            places.setdefault(call.queue, []).append(at)
    return places
