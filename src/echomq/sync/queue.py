"""One queue, for programs that block. The verbs and their promises are those of `echomq.Queue`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final

from echomq._bulk import not_sent
from echomq._delivery import news_walk
from echomq._events import history_walk, new_reader
from echomq._items import (
    MINTS,
    cancel_outcome,
    check_ids,
    check_page,
    check_progress,
    check_reason,
    dedup_key,
    dedup_shown,
    holder_of,
    new_due,
    new_payload,
    new_priority,
    reassign_error,
    redrive_error,
    remove_error,
    reschedule_error,
    taken,
    waiting_error,
)
from echomq._options import EnqueueOptions, JobOptions
from echomq.clearing import drain_walk, trim_walk
from echomq.errors import EchoMQError, InvalidJobError, UnavailableError
from echomq.finding import find_walk, job_walk
from echomq.limits import QueueOptions, QueueSettings, lane_name, spell_queue
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import COLLISION, Verdict
from echomq.protocol.states import State
from echomq.protocol.times import to_wait
from echomq.repairs import RepairReport, obliterate_walk, repair_walk
from echomq.sweeps import CancelReport, cancel_walk
from echomq.sync.driving import drive, each, found
from echomq.sync.events import EventStream
from echomq.sync.handles import JobHandle
from echomq.sync.lanes import Lane, Lanes
from echomq.sync.morgue import Morgue
from echomq.sync.schedules import Schedules
from echomq.transitions import (
    MAX_CALL_BYTES,
    MAX_ITEMS,
    MULTI,
    CancelRequest,
    Counts,
    JobInFull,
    NewPriority,
    NewTime,
    Page,
    Reassignment,
    age,
    browse,
    configure,
    counts,
    pause,
    read_settings,
    resume,
)
from echomq.waits import next_in_turn, waits_walk
from echomq.workers import workers_walk

if TYPE_CHECKING:
    import datetime as dt

    from echomq._bulk import Content
    from echomq._events import Event, Since
    from echomq._items import CancelOutcome
    from echomq.finding import JobFilters
    from echomq.protocol.codec import Codec
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.stamps import StampedJob
    from echomq.sync.runner import Runner
    from echomq.waits import Waits
    from echomq.workers import WorkerInfo

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
        return JobHandle(check_id(id), self.name, "admitted", self, self._decode)

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

    def enqueue_stream(
        self,
        payloads: Iterable[bytes],
        *,
        task: str = "",
        progress: Callable[[int], None] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Iterator[JobHandle[Any] | EchoMQError]:
        """Enqueue any number of jobs, up to 128 a call, in memory that does not grow with their number.

        Nothing is sent before the answers are iterated over. See `echomq.Queue.enqueue_stream`.
        """
        check_progress(progress)
        chosen = JobOptions.of(options)
        chosen.stamp(task)
        return self.stream(((task, payload, chosen, self._decode) for payload in payloads), progress)

    def enqueue_many(
        self,
        payloads: Iterable[bytes],
        *,
        task: str = "",
        progress: Callable[[int], None] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobHandle[Any] | EchoMQError]:
        """Enqueue any number of jobs, up to 128 a call. See `echomq.Queue.enqueue_many`."""
        return list(self.enqueue_stream(payloads, task=task, progress=progress, **options))

    def stream(self, jobs: Iterable[Content], progress: Callable[[int], None] | None = None) -> Iterator[Any]:
        """Enqueue jobs by task, payload, options and how to read the result."""
        source = iter(jobs)
        held: tuple[StampedJob, Any] | None = None
        answered = 0
        while True:
            answers: list[Any] = []
            items: list[tuple[StampedJob, Any]] = []
            places: list[int] = []
            room = MAX_CALL_BYTES
            if held is not None:
                _place(held, items, places, answers)
                room -= held[0].size
            held = None
            for job, read in _made(islice(source, MAX_ITEMS - len(items)), answers):
                if items and job.size > room:
                    held = (job, read)
                    break
                _place((job, read), items, places, answers)
                room -= job.size
            if not answers:
                return
            found: list[Any] = []
            if items:  # else all that was drawn was refused here
                try:
                    found = self._send_call([job for job, _ in items], [read for _, read in items])
                except EchoMQError as error:
                    found = [error] * len(items)
                for place, answer in zip(places, found, strict=True):
                    answers[place] = answer
            answered += len(answers)
            if progress is not None:
                progress(answered)
            yield from answers
            if found and isinstance(found[-1], UnavailableError):
                for _ in chain([held] if held else [], source):
                    yield not_sent(found[-1])
                return

    def _send_call(self, jobs: list[StampedJob], reads: list[Any]) -> list[Any]:
        verdicts = self._multi("enqueue", jobs)
        self.runner.note_use(self.keys)
        for _ in range(MINTS - 1):
            collided = [at for at, verdict in enumerate(verdicts) if verdict.code == COLLISION]
            if not collided:
                break
            for at in collided:
                jobs[at] = jobs[at].again()
            for at, verdict in zip(collided, self._multi("enqueue", [jobs[at] for at in collided]), strict=True):
                verdicts[at] = verdict
        return [self._answer(job.id, verdict, read) for job, verdict, read in zip(jobs, verdicts, reads, strict=True)]

    def _answer(self, id: str, verdict: Verdict, read: Callable[[bytes], T]) -> JobHandle[T] | EchoMQError:
        holder = holder_of(verdict)
        if holder is not None:
            return JobHandle(holder[0], self.name, holder[1], self, read)
        if verdict.code == COLLISION:
            return taken(id)
        error = verdict.error(id=id, queue=self.name)
        return error or JobHandle(id, self.name, "admitted", self, read)

    def _multi(self, verb: str, items: list[Any]) -> list[Verdict]:
        return self.runner.remembered(self.keys, verb, lambda call: MULTI[verb](self.keys, call, items))

    # --- single jobs ------------------------------------------------------------------------

    def cancel(self, id: str, *, reason: str = "") -> CancelOutcome:
        """Cancel a job. See `echomq.Queue.cancel`."""
        item = CancelRequest(check_id(id), check_reason(reason))
        return self._told(cancel_outcome(self._multi("cancel", [item])[0], id, self.name))

    def cancel_dedup(self, key: str, *, reason: str = "") -> CancelOutcome:
        """Cancel the job that holds a dedup key. See `echomq.Queue.cancel_dedup`."""
        item = CancelRequest("", check_reason(reason), dedup=dedup_key(key))
        return self._told(cancel_outcome(self._multi("cancel", [item])[0], dedup_shown(key), self.name))

    def reschedule(
        self, ids: Iterable[str], *, delay: float | dt.timedelta | None = None, at: dt.datetime | None = None
    ) -> list[EchoMQError | None]:
        """Give jobs that wait another time. See `echomq.Queue.reschedule`."""
        due = new_due(delay, at)
        return self._each("reschedule", check_ids(ids), reschedule_error, lambda id: NewTime(id, due))

    def promote(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Let scheduled jobs run now. See `echomq.Queue.promote`."""
        return self.reschedule(ids, delay=0)

    def reprioritise(self, ids: Iterable[str], *, priority: int) -> list[EchoMQError | None]:
        """Give jobs that wait, or are dead, another priority. See `echomq.Queue.reprioritise`."""
        priority = new_priority(priority)
        return self._each("reprioritise", check_ids(ids), waiting_error, lambda id: NewPriority(id, priority))

    def update(self, id: str, payload: bytes) -> None:
        """Replace the payload of a job that waits or is dead. See `echomq.Queue.update`."""
        item = new_payload(id, payload)
        outcome = each(self.runner, self.keys, "update", [item])[0]
        error = waiting_error(outcome, id, self.name) if isinstance(outcome, Verdict) else outcome
        if error is not None:
            raise error

    def remove(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Erase jobs that do not run. See `echomq.Queue.remove`."""
        return self._told(self._each("remove", check_ids(ids), remove_error))

    def redrive(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Begin a new life for dead jobs. See `echomq.Queue.redrive`."""
        return self._told(self._each("redrive", check_ids(ids), redrive_error))

    def reassign(self, ids: Iterable[str], *, lane: str) -> list[EchoMQError | None]:
        """Move jobs that wait, or are dead, to another lane. See `echomq.Queue.reassign`."""
        lane = lane_name(lane)
        return self._each("reassign", check_ids(ids), reassign_error, lambda id: Reassignment(id, lane))

    def _told(self, outcome: T) -> T:
        """Deliver what a verb may have caused, and answer what became of it."""
        drive(self.runner, self.keys, news_walk(self.keys))
        return outcome

    def _each(
        self,
        verb: str,
        ids: list[str],
        error_of: Callable[[Verdict, str, str], EchoMQError | None],
        item: Callable[[str], Any] = str,
    ) -> list[EchoMQError | None]:
        outcomes = each(self.runner, self.keys, verb, list(map(item, ids)))
        return [
            error_of(outcome, id, self.name) if isinstance(outcome, Verdict) else outcome
            for id, outcome in zip(ids, outcomes, strict=True)
        ]

    def job(self, id: str, *, log: bool = False, children: bool = False) -> JobInFull | None:
        """Read a job's row, its place, who runs it; None when it has no row. See `echomq.Queue.job`."""
        return drive(self.runner, self.keys, job_walk(self.keys, id, log=log, children=children))

    # --- the queue --------------------------------------------------------------------------

    def pause(self) -> bool:
        """Let no more jobs be claimed, until `resume`. Answers whether this call did it."""
        return self.runner.remembered(self.keys, "pause", lambda call: pause(self.keys, call))

    def resume(self) -> bool:
        """Let jobs be claimed again. Answers whether this call did it."""
        return self.runner.remembered(self.keys, "resume", lambda call: resume(self.keys, call))

    def configure(self, *, only_unset: bool = False, **settings: Unpack[QueueOptions]) -> bool:
        """Change the queue's settings; those not named stay, and None clears one. See `echomq.Queue.configure`."""
        spelled = spell_queue(settings)
        return self.runner.remembered(
            self.keys, "configure", lambda call: configure(self.keys, call, settings=spelled, only_unset=only_unset)
        )

    def settings(self) -> QueueSettings:
        """Read what the queue was told."""
        return QueueSettings.of(self.runner.run(read_settings(self.keys, self.runner.call())))

    def lane(self, name: str) -> Lane:
        """Answer one of its lanes; "" is the lane of the jobs without one. Nothing is sent.

        Raises:
            ValueError: A lane cannot have that name.
        """
        return Lane(self, name)

    @property
    def lanes(self) -> Lanes:
        """Its lanes that have jobs or settings: `for lane in queue.lanes`, or by pages."""
        return Lanes(self)

    @property
    def schedules(self) -> Schedules:
        """Its recurring jobs: `queue.schedules.put(...)`, `for schedule in queue.schedules`."""
        return Schedules(self)

    def counts(self) -> Counts:
        """Count the jobs by state, and what has ended so far."""
        return self.runner.run(counts(self.keys, self.runner.call()))

    def browse(self, state: str, *, offset: int = 0, count: int = 50, reverse: bool = False, lane: str = "") -> Page:
        """Read a page of a state's jobs, in the order of their turn. See `echomq.Queue.browse`."""
        lane = check_page(state, offset, count, lane)
        call = self.runner.call()
        return self.runner.run(
            browse(self.keys, call, state=state, offset=offset, count=count, reverse=reverse, lane=lane)
        )

    def find(
        self,
        state: str,
        *,
        lane: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        **filters: Unpack[JobFilters],
    ) -> Iterator[JobInFull]:
        """Go through a state's jobs in full, in the order of their turn. See `echomq.Queue.find`."""
        walk = find_walk(self.keys, state, filters, lane=lane, limit=limit, reverse=reverse)
        return found(self.runner, self.keys, walk, State(state), lambda job: job)

    def waits(self, *, lanes: int = 100) -> Waits:
        """Tell how many jobs are in each state and lane, and how long the first has waited. See `echomq.Queue.waits`."""
        return drive(self.runner, self.keys, waits_walk(self.keys, lanes))

    def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, and what they run. See `echomq.Queue.workers`."""
        return drive(self.runner, self.keys, workers_walk(self.keys))

    def age(self) -> tuple[str, float] | None:
        """Answer the job next in turn and for how many seconds it has been ready; None when none is."""
        return next_in_turn(self.runner.run(age(self.keys, self.runner.call())))

    # --- control and recovery ---------------------------------------------------------------

    def cancel_where(
        self,
        *,
        task: str | None = None,
        lane: str | None = None,
        reason: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> CancelReport:
        """Cancel all jobs of a task, or of a lane, or of a task in a lane. See `echomq.Queue.cancel_where`."""
        walk = cancel_walk(self.keys, task=task, lane=lane, reason=reason)
        return drive(self.runner, self.keys, walk, progress)

    def events(
        self,
        since: Since = None,
        *,
        follow: bool = True,
        timeout: float = math.inf,
        job: str | None = None,
        kinds: Iterable[str] | None = None,
    ) -> EventStream:
        """Answer what happens in the queue, to be iterated over. See `echomq.Queue.events`.

        Args:
            since: From where: an event's `id`, "0" or an aware datetime; None: from the first iteration, or `with`, on.
            follow: Wait for what happens next. False: end where the stream ended at the first look.
            timeout: Seconds to wait for the next event, also while the server is away. Then the iteration ends; a later one
                goes on where it was. 0 or less: only what is there by now.
            job: Events of this job only.
            kinds: Events of these kinds only.

        Raises:
            TypeError, ValueError: An argument does not fit, or there is nothing to wait for; nothing was sent.
        """
        reader = new_reader(self.keys, since=since, follow=follow, job=job, kinds=kinds)
        timeout = to_wait(timeout)
        return EventStream(self.runner, self.keys.events, reader, follow=follow, timeout=timeout)

    def history(self, id: str) -> list[Event]:
        """Read what is kept of one job's events, the oldest first. See `echomq.Queue.history`."""
        return drive(self.runner, self.keys, history_walk(self.keys, check_id(id)))

    @property
    def dead(self) -> Morgue:
        """Its dead jobs: `for job in queue.dead.find(error="Timeout")`, to redrive or remove some or all."""
        return Morgue(self)

    def repair(self, progress: Callable[[int], None] | None = None) -> RepairReport:
        """Bring rows, sets, logs, dedup keys and lanes together again. See `echomq.Queue.repair`."""
        return drive(self.runner, self.keys, repair_walk(self.keys), progress)

    def drain(self, *, scheduled: bool = False, progress: Callable[[int], None] | None = None) -> int:
        """Remove the jobs that are ready, or scheduled, too. See `echomq.Queue.drain`."""
        return drive(self.runner, self.keys, drain_walk(self.keys, scheduled=scheduled), progress)

    def trim(
        self,
        *,
        dead_max: int | None = None,
        dead_age: float | dt.timedelta | None = None,
        done_max: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Drop the dead and the results that are too old or too many, now. See `echomq.Queue.trim`."""
        walk = trim_walk(self.keys, dead_max=dead_max, dead_age=dead_age, done_max=done_max)
        return drive(self.runner, self.keys, walk, progress)

    def obliterate(self, *, force: bool = False, progress: Callable[[int], None] | None = None) -> int:
        """Erase the queue, and answer how many jobs went. See `echomq.Queue.obliterate`."""
        return drive(self.runner, self.keys, obliterate_walk(self.keys, force=force), progress)


def _place(
    job: tuple[StampedJob, Any], items: list[tuple[StampedJob, Any]], places: list[int], answers: list[Any]
) -> None:
    """Give a job the next place among the answers."""
    places.append(len(answers))
    answers.append(None)
    items.append(job)


def _made(drawn: Iterable[Content], answers: list[Any]) -> Iterator[tuple[StampedJob, Any]]:
    """Make the jobs; one that is too large, say, is answered with its error and fails no other."""
    for task, payload, options, read in drawn:
        try:
            job = options.new_job(task, payload)
        except InvalidJobError as error:
            answers.append(error)
            continue
        yield job, read
