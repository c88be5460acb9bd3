"""One queue, for programs that block. The verbs and their promises are those of `echomq.Queue`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final

from echomq._bulk import not_sent
from echomq._items import (
    CANCEL_STATES,
    MINTS,
    check_ids,
    check_page,
    check_reason,
    redrive_error,
    remove_error,
    taken,
)
from echomq._options import EnqueueOptions, JobOptions
from echomq.errors import EchoMQError, InvalidJobError, UnavailableError
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import COLLISION, DUPLICATE, Verdict
from echomq.protocol.times import to_seconds
from echomq.sync.handles import JobHandle
from echomq.transitions import (
    MAX_CALL_BYTES,
    MAX_ITEMS,
    MULTI,
    CancelRequest,
    Counts,
    JobInFull,
    Page,
    age,
    browse,
    configure,
    counts,
    pause,
    read_job,
    resume,
)

if TYPE_CHECKING:
    from echomq._bulk import Content
    from echomq.protocol.codec import Codec
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.stamps import StampedJob
    from echomq.queue import CancelOutcome
    from echomq.sync.runner import Runner
    from echomq.transitions.configure import EventLevel

T = TypeVar("T")


@final
class Queue:
    """One queue of a synchronous client, usable from any thread. Made by `Client.queue`."""

    def __init__(self, runner: Runner, keys: QueueKeys, codec: Codec) -> None:
        self.runner = runner
        """What runs its transitions."""
        self.keys = keys
        """The names of its keys."""
        self._decode: Callable[[bytes], Any] = codec.decode

    def __repr__(self) -> str:
        return f"<sync.Queue {self.name!r}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.keys.queue

    def handle(self, id: str) -> JobHandle[Any]:
        """Make a handle for a job by its id; nothing is sent.

        Raises:
            ValueError: Not an id.
        """
        return JobHandle(check_id(id), self.name, admitted=True, owner=self, read=self._decode)

    # --- enqueueing -------------------------------------------------------------------------

    def enqueue(self, payload: bytes, *, task: str = "", **options: Unpack[EnqueueOptions]) -> JobHandle[Any]:
        """Enqueue one job. See `echomq.Queue.enqueue`."""
        return self.send(JobOptions.of(options).new_job(task, payload), self._decode)

    def send(self, job: StampedJob, read: Callable[[bytes], T]) -> JobHandle[T]:
        """Enqueue a job that is made already."""
        answer: JobHandle[T] | EchoMQError = self._send_call([job], [read])[0]
        if isinstance(answer, EchoMQError):
            raise answer
        return answer

    def enqueue_many(
        self,
        payloads: Iterable[bytes],
        *,
        task: str = "",
        progress: Callable[[int], None] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobHandle[Any] | EchoMQError]:
        """Enqueue any number of jobs, up to 128 a call. See `echomq.Queue.enqueue_many`."""
        chosen = JobOptions.of(options)
        chosen.stamp(task)
        return self.send_many(((task, payload, chosen, self._decode) for payload in payloads), progress)

    def send_many(self, jobs: Iterable[Content], progress: Callable[[int], None] | None = None) -> list[Any]:
        """Enqueue jobs by task, payload, options and how to read the result."""
        answers: list[Any] = []
        source = iter(jobs)
        held: tuple[StampedJob, Any] | None = None
        while True:
            items: list[tuple[StampedJob, Any]] = [] if held is None else [held]
            places = [] if held is None else [len(answers)]
            before = len(answers)
            answers += [None] * len(items)
            held, room = None, MAX_CALL_BYTES - sum(job.size for job, _ in items)
            for job, read in _made(islice(source, MAX_ITEMS - len(items)), answers):
                if items and job.size > room:
                    held = (job, read)
                    break
                places.append(len(answers))
                answers.append(None)
                items.append((job, read))
                room -= job.size
            if not items:
                if len(answers) == before:
                    return answers
                continue  # all that was drawn was refused here
            try:
                found = self._send_call([job for job, _ in items], [read for _, read in items])
            except EchoMQError as error:
                found = [error] * len(items)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            if progress is not None:
                progress(len(answers))
            if isinstance(found[-1], UnavailableError):
                rest = (1 if held else 0) + sum(1 for _ in source)
                answers.extend(not_sent(found[-1]) for _ in range(rest))
                return answers

    def _send_call(self, jobs: list[StampedJob], reads: list[Any]) -> list[Any]:
        verdicts = self._multi("enqueue", jobs)
        for _ in range(MINTS - 1):
            collided = [at for at, verdict in enumerate(verdicts) if verdict.code == COLLISION]
            if not collided:
                break
            for at in collided:
                jobs[at] = jobs[at].again()
            for at, verdict in zip(collided, self._multi("enqueue", [jobs[at] for at in collided]), strict=True):
                verdicts[at] = verdict
        return [self._handle(job.id, verdict, read) for job, verdict, read in zip(jobs, verdicts, reads, strict=True)]

    def _handle(self, id: str, verdict: Verdict, read: Callable[[bytes], T]) -> JobHandle[T] | EchoMQError:
        if verdict.code == DUPLICATE:
            return JobHandle(verdict.detail, self.name, admitted=False, owner=self, read=read)
        if verdict.code == COLLISION:
            return taken(id)
        error = verdict.error(id=id, queue=self.name)
        return error or JobHandle(id, self.name, admitted=True, owner=self, read=read)

    def _multi(self, verb: str, items: list[Any]) -> list[Verdict]:
        return self.runner.remembered(self.keys, verb, lambda call: MULTI[verb](self.keys, call, items))

    # --- single jobs ------------------------------------------------------------------------

    def cancel(self, id: str, *, reason: str = "") -> CancelOutcome:
        """Cancel a job. See `echomq.Queue.cancel`."""
        item = CancelRequest(check_id(id), check_reason(reason))
        verdict = self._multi("cancel", [item])[0]
        error = verdict.error(id=id, queue=self.name, expected=CANCEL_STATES)
        if error is not None:
            raise error
        return "asked" if verdict.code == "asked" else "cancelled"

    def remove(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Erase jobs that do not run. See `echomq.Queue.remove`."""
        return self._each("remove", check_ids(ids), remove_error)

    def redrive(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Begin a new life for dead jobs. See `echomq.Queue.redrive`."""
        return self._each("redrive", check_ids(ids), redrive_error)

    def _each(
        self, verb: str, ids: list[str], error_of: Callable[[Verdict, str, str], EchoMQError | None]
    ) -> list[EchoMQError | None]:
        answers: list[EchoMQError | None] = []
        for start in range(0, len(ids), MAX_ITEMS):
            some = ids[start : start + MAX_ITEMS]
            try:
                verdicts = self._multi(verb, some)
            except EchoMQError as error:
                answers += [error] * len(some)
            else:
                answers += [error_of(verdict, id, self.name) for id, verdict in zip(some, verdicts, strict=True)]
        return answers

    def job(self, id: str, *, log: bool = False) -> JobInFull | None:
        """Read a job's row, its place and, if asked, its log; None when it has no row."""
        return self.runner.run(read_job(self.keys, self.runner.call(), check_id(id), with_log=log))

    # --- the queue --------------------------------------------------------------------------

    def pause(self) -> bool:
        """Let no more jobs be claimed, until `resume`. Answers whether this call did it."""
        return self.runner.remembered(self.keys, "pause", lambda call: pause(self.keys, call))

    def resume(self) -> bool:
        """Let jobs be claimed again. Answers whether this call did it."""
        return self.runner.remembered(self.keys, "resume", lambda call: resume(self.keys, call))

    def configure(self, *, events: EventLevel) -> bool:
        """Choose which events the queue keeps in its stream: `none`, `failures` (the default) or `all`."""
        if events not in {"none", "failures", "all"}:
            raise ValueError(f"events is none, failures or all, not {events!r}")
        return self.runner.remembered(self.keys, "configure", lambda call: configure(self.keys, call, settings={"events": events}))

    def counts(self) -> Counts:
        """Count the jobs by state, and what has ended so far."""
        return self.runner.run(counts(self.keys, self.runner.call()))

    def browse(self, state: str, *, offset: int = 0, count: int = 50, reverse: bool = False) -> Page:
        """Read a page of a state's jobs, in the order of their turn. See `echomq.Queue.browse`."""
        check_page(state, offset, count)
        return self.runner.run(
            browse(self.keys, self.runner.call(), state=state, offset=offset, count=count, reverse=reverse)
        )

    def age(self) -> tuple[str, float] | None:
        """Answer the job next in turn and for how many seconds it has been ready; None when none is."""
        oldest = self.runner.run(age(self.keys, self.runner.call()))
        return None if oldest is None else (oldest[0], to_seconds(oldest[1]))


def _made(drawn: Iterable[Content], answers: list[Any]) -> Iterator[tuple[StampedJob, Any]]:
    """Make the jobs; one that is too large, say, is answered with its error and fails no other."""
    for task, payload, options, read in drawn:
        try:
            job = options.new_job(task, payload)
        except InvalidJobError as error:
            answers.append(error)
            continue
        yield job, read
