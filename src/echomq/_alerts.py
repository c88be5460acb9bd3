"""Tasks that are told of dead jobs: `@app.on_dead` declares one, and workers of the app tell their queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, final

from echomq.protocol._convert import shown
from echomq.protocol.keys import check_queue_name
from echomq.tasks import DEFAULT_CODEC, Sender, Task

if TYPE_CHECKING:
    from collections.abc import Mapping


class _HasTasks(Sender, Protocol):
    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        """The tasks by name."""


@final
class OnDead:
    """What is told of each job that dies: `@app.on_dead` makes a function such a task.

    ::

        @app.on_dead(queue="mails")
        async def tell(job: echomq.Job, dead_id: str) -> None:
            dead = await app.queue("mails").job(dead_id)
            ...

    Its jobs are admitted in the very script that buries a job, in the same queue, so that none is missed and none is told
    twice; each has the dead job's id, with the kind `DED`. It is not told of its own jobs' deaths, nor of children that
    were buried because their parent died.

    A worker of the app tells the queues that it serves when it starts. They remember it: when the declaration is gone,
    `python -m echomq` or `queue.configure` has to clear it.
    """

    def __init__(self, app: _HasTasks) -> None:
        self._app = app
        self._all: Task[Any, Any] | None = None
        self._of: dict[str, Task[Any, Any]] = {}

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        queue: str | Iterable[str] | None = None,
        name: str | None = None,
        max_attempts: int = 3,
        timeout: float | None = None,
    ) -> Any:
        """Make a function a task that is told: `@app.on_dead`, or `@app.on_dead(queue=...)`.

        Args:
            function: The handler, a coroutine function or a plain one; it takes the id of the dead job, and the job of its
                own if a parameter is annotated `Job` (or `SyncJob`).
            queue: Of which queue's jobs, or of several queues'; None: of all that a worker of this app serves.
            name: How its jobs name it; None: the function's own name.
            max_attempts: How many failures bury one of them.
            timeout: Seconds that an attempt may run; None: no limit.

        Raises:
            TypeError: The function cannot be such a handler, or `queue` is neither a name nor several.
            ValueError: The name is taken, a queue has another one already, or a value is out of range.
        """
        queues = _names(queue)

        def decorate(given: Callable[..., Any]) -> Task[..., Any]:
            chosen = getattr(given, "__name__", None) if name is None else name
            if chosen is None:
                raise TypeError(f"{given!r} has no name of its own: give one, as in app.on_dead(name=...)")
            # The script writes its arguments, whatever codec the app has.
            task: Task[..., Any] = Task(
                name=chosen, queue=queues[0] if queues else "default", function=given, max_attempts=max_attempts,
                timeout=timeout, codec=DEFAULT_CODEC, sender=self._app,
            )  # fmt: skip
            try:
                task.signature.check(("an id",), {})
            except TypeError as error:
                raise TypeError(f"what is told of dead jobs is called with (job, dead_id): {error}") from None
            self._add(task, queues)
            return task

        return decorate if function is None else decorate(function)

    def _add(self, task: Task[..., Any], queues: tuple[str, ...] | None) -> None:
        if task.name in self._app.tasks or task.name in self.names:
            raise ValueError(f"the task name {task.name!r} is taken: give {task.function!r} another")
        for queue in queues or ():
            other = self._of.get(queue) or self._all
            if other is not None:
                raise ValueError(
                    f"queue {queue!r} tells {other.name!r} of dead jobs already, and can tell one task only"
                )
        if queues is None:
            others = [each for each in (self._all, *self._of.values()) if each is not None]
            if others:
                raise ValueError(
                    f"{others[0].name!r} is told of dead jobs already, and a queue can tell one task only: name the queues of "
                    f"{task.name!r}"
                )
            self._all = task
        else:
            self._of.update(dict.fromkeys(queues, task))

    def of(self, queue: str) -> Task[Any, Any] | None:
        """Answer which task is told of a queue's dead jobs; None: none."""
        return self._of.get(queue) or self._all

    @property
    def names(self) -> frozenset[str]:
        """The names of its tasks."""
        return frozenset(task.name for task in self.tasks)

    @property
    def tasks(self) -> tuple[Task[Any, Any], ...]:
        """Its tasks."""
        found = dict.fromkeys(self._of.values())
        return (*found, self._all) if self._all is not None else tuple(found)


def _names(queue: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if queue is None:
        return None
    names = (queue,) if isinstance(queue, str) else tuple(queue)
    if not names:
        raise ValueError("on_dead is of a queue, of several, or of all (None), not of none")
    for each in names:
        if not isinstance(each, str):
            raise TypeError(f"a queue is named, not {shown(each)}")
        check_queue_name(each)
    return names
