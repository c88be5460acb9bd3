"""Enqueueing many: in rounds of bounded size, each job made when its turn comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from echomq._options import JobOptions
from echomq.errors import InvalidJobError, UnavailableError

if TYPE_CHECKING:
    from echomq.protocol.stamps import StampedJob
    from echomq.tasks import JobCall

T = TypeVar("T")

AT_ONCE: Final = 8192
"""Jobs of one round of `enqueue_many`: some thirty calls, after which the last reply is waited for."""
BYTES_AT_ONCE: Final = 8 << 20
"""Bytes of payload of one round, so that memory is bounded by bytes too."""

Content = tuple[str, bytes, JobOptions, Callable[[bytes], Any]]
"""A job of many: task, payload, options, and what decodes the result."""


def not_sent(broken: UnavailableError) -> UnavailableError:
    """Make the error of a job that was not tried: an outage costs one wait, and not one a call."""
    return UnavailableError(f"not sent, since one before it failed: {broken}", sent=False)


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


def by_queue(portion: list[JobCall[T]]) -> dict[str, list[int]]:
    """Answer for each queue, in the order of their first calls, where in the portion its calls are."""
    places: dict[str, list[int]] = {}
    for at, call in enumerate(portion):
        places.setdefault(call.queue, []).append(at)
    return places


@final
class Round:
    """Makes the jobs of one round as they are drawn, and keeps what their verdicts are matched with."""

    __slots__ = ("_answers", "_source", "jobs", "places", "reads")

    def __init__(self, source: Iterator[Content], answers: list[Any]) -> None:
        self._source = source
        self._answers = answers
        self.jobs: list[StampedJob] = []
        self.reads: list[Any] = []
        self.places: list[int] = []

    def __iter__(self) -> Iterator[StampedJob]:
        answers, jobs, reads, places = self._answers, self.jobs, self.reads, self.places
        room = BYTES_AT_ONCE
        while room > 0 and len(jobs) < AT_ONCE:
            drawn = next(self._source, None)
            if drawn is None:
                return
            task, payload, options, read = drawn
            try:
                job = options.new_job(task, payload)
            except InvalidJobError as error:
                answers.append(error)  # too large, say: it fails no other
                continue
            places.append(len(answers))
            answers.append(None)
            jobs.append(job)
            reads.append(read)
            room -= len(payload)
            yield job
