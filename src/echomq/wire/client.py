"""The wire's front: transitions in, values out, whatever happens to the connection in between.

Theory of operation
    A client has connections by purpose, opened when first needed: `control` carries claims,
    renewals and verdicts, `bulk` enqueues and reads, so that a flood of the latter cannot delay a
    heartbeat. Each park, each subscription and each tail of a stream has its own. All are service tasks in the client's
    task group, shielded: they end when the client's context exits and its body is over.

    Opening waits for the first try to connect. A refusal that will not heal (password, certificate,
    database number) is raised there; a server that is merely not up is not: a worker must start
    before its server does, and a producer's first call then fails after `unavailable_after` with
    the reason.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Literal, TypeVar, final

import anyio
from anyio.abc import TaskGroup

from echomq.protocol.ids import new_tag
from echomq.protocol.keys import QueueKeys
from echomq.protocol.times import to_wait
from echomq.transitions.base import Call, Transition
from echomq.wire import forks
from echomq.wire.calls import Ignored, NumberedCall, RawCall, ScriptCall
from echomq.wire.connection import Connection, Timing
from echomq.wire.group import Group
from echomq.wire.home import foreign, is_home, soon
from echomq.wire.packing import pack
from echomq.wire.park import Park
from echomq.wire.slots import Slot
from echomq.wire.statistics import Statistics
from echomq.wire.subscription import Subscription
from echomq.wire.tail import Tail
from echomq.wire.topology import SingleServer, Topology
from echomq.wire.urls import parse

T = TypeVar("T")
Route = Literal["bulk", "control"]

CONTROL: Final = frozenset(
    {"claim", "extend", "complete", "fail", "release", "snooze", "end", "rate_limited", "suspend"}
)
"""Verbs that a lease depends on: they have a connection of their own."""
NOTED_FOR: Final = 3600.0
"""Seconds after which it is said again that a queue is used."""
FORGOTTEN_MS: Final = 90 * 86_400_000
"""How long a queue that nobody uses is known, ms."""


@final
class WireClient:
    """Runs transitions. Made by `open_wire`; belongs to one event loop and one process."""

    def __init__(self, topology: Topology, *, timing: Timing, name: str, tasks: TaskGroup) -> None:
        self.tag = new_tag()
        """The client's tag (Protocol, section 3), drawn for each client."""
        self.url = str(topology.address(topology.node(None)))
        """Where the server is; the password is hidden."""
        self.timing = timing
        """How long the wire waits for what."""
        self._is_home = is_home()
        self._soon = soon()
        self.on_connect: list[Callable[[], None]] = []
        """Called, each without arguments, when a connection stands (again). Must not raise."""
        self.on_disconnect: list[Callable[[], None]] = []
        """Called, each without arguments, when a connection is lost. Must not raise."""
        self._topology = topology
        self._name = name
        self._tasks = tasks
        self._lanes: dict[tuple[str, str], Connection] = {}
        self._beside: set[Connection] = set()
        self._slots: dict[tuple[str, str], Slot] = {}
        self._groups: dict[tuple[str, str], Group[Any]] = {}
        self._noted: dict[str, float] = {}
        # `anyio.Event()` looks the loop up each time, which costs more than the event.
        self._new_event: type[anyio.Event] = type(anyio.Event())
        self._unusable: str | None = None
        forks.watch(self)

    # --- calls ------------------------------------------------------------------------------

    async def run(self, transition: Transition[T], *, route: Route | None = None) -> T:
        """Run one transition and answer its value.

        Args:
            transition: What to run. A number in it must come from this client's own counting: use
                `remembered` or a group for verbs that have one.
            route: Which connection; None means the verb's own.

        Raises:
            UnavailableError: The server could not be reached in time; `sent` says whether it may have run.
            EchoMQError: The server refused the call.
            RuntimeError: As `check` says.

        Cancellation: an unsent call is taken out; a sent one runs, and its reply is thrown away.
        Delivery: sent again after a lost connection only if it is remembered or harmless to repeat.
        """
        self.check()
        call = ScriptCall(transition, self._new_event())
        self._lane(transition.keys, route or _route(transition.verb)).submit(call)
        return transition.read(await call.result())

    async def remembered(
        self,
        keys: QueueKeys,
        build: Callable[[Call], Transition[T]],
        *,
        verb: str | None = None,
        route: Route | None = None,
    ) -> T:
        """Run a transition under the next number of its verb; one at a time for each queue and verb.

        Args:
            keys: The queue.
            build: Makes the transition for the number, when its turn has come. Called once, before
                that once more to learn the verb if it is not given.
            verb: The verb.
            route: Which connection; None means the verb's own. Fixed by the verb's first use.

        Raises:
            UnavailableError: As for `run`.
            EchoMQError: The server refused the call.

        Cancellation: as for `run`. The next call of the verb waits until the reply was read or the
            connection is gone.
        Delivery: at most once; a resend is answered from the server's memory.
        """
        self.check()
        if verb is None:
            verb = build(Call(self.tag)).verb
        value: T = await self.start(keys, build, verb=verb, route=route).value()
        return value

    def start(
        self,
        keys: QueueKeys,
        build: Callable[[Call], Transition[Any]],
        *,
        verb: str,
        route: Route | None = None,
    ) -> NumberedCall:
        """Send as `remembered` and do not wait: `value()` of what it answers does. For callbacks within the client's loop."""
        slot = self._slot(keys, verb, route or _route(verb))
        call = NumberedCall(slot, self.tag, build)
        slot.enter(call)
        return call

    def group(
        self,
        keys: QueueKeys,
        verb: str,
    ) -> Group[Any]:
        """Answer the group commit of a verb on a queue, always the same one.

        Args:
            keys: The queue.
            verb: A multi-item verb.
        """
        key = (keys.base, verb)
        group = self._groups.get(key)
        if group is None:
            self.check()
            route = _route(verb)
            group = Group(
                keys,
                self._slot(keys, verb, route),
                self.tag,
                check=self.check,
                check_home=self.check_home,
            )
            self._lane(keys, route).pipeline.sources.append(group)
            self._groups[key] = group
        return group

    async def command(
        self, *args: bytes | str | float, route: Route = "bulk", keys: QueueKeys | None = None, repeat: bool = False
    ) -> Any:
        """Run a plain command, such as INFO, and answer the raw reply (RESP3).

        Not for commands that block, or that change what the connection is (SUBSCRIBE, MULTI,
        CLIENT REPLY): others share it.

        Args:
            args: The command and its arguments.
            route: Which connection.
            keys: The queue it is about, which says on which server; None: any.
            repeat: Whether it may be sent again after a lost connection: a read.

        Raises:
            ValueError: There is no command. The server would not answer it, and every later reply
                would go to the wrong caller.
            UnavailableError: As for `run`; it is never sent twice unless it may be repeated.
            ServerError: The server refused it.
        """
        self.check()
        if not args:
            raise ValueError("an empty command")
        call = RawCall(args, self._new_event(), repeat=repeat)
        self._lane(keys, route).submit(call)
        return await call.result()

    def note_use(self, keys: QueueKeys) -> None:
        """Say that a queue is used, once an hour: for those who ask which queues there are. Nobody waits for it.

        Delivery: best effort; lost with its connection, or where the ACL user may not write the key.
        """
        now = time.monotonic()
        if now < self._noted.get(keys.base, 0.0):
            return
        self._noted[keys.base] = now + NOTED_FOR
        at = round(time.time() * 1000)
        submit = self._lane(None, "bulk").submit
        for command in note_of_use(keys, at):
            submit(Ignored(pack(command)))

    # --- connections of one's own -----------------------------------------------------------

    @asynccontextmanager
    async def open_park(self) -> AsyncIterator[Park]:
        """Open a doorbell: a connection that carries nothing but BLPOP, closed at once on leaving."""
        connection = self._open_beside("park", watched=False)
        try:
            yield Park(connection, self.check_home)
        finally:
            await self._close_beside(connection)

    @asynccontextmanager
    async def open_subscription(self) -> AsyncIterator[Subscription]:
        """Open a subscription, on a connection of its own."""
        subscription = Subscription(self.check_home)
        connection = self._open_beside("subscription", on_push=subscription.push, opening=subscription.opening)
        subscription.attach(connection)
        try:
            yield subscription
        finally:
            subscription.close()
            await self._close_beside(connection)

    def tail(self, keys: QueueKeys) -> Tail:
        """Make what waits for a queue's events, on a connection of its own: it is closed with the last reference."""
        connection = self._open_beside("events", keys, watched=False)

        def close() -> None:
            connection.close()
            self._beside.discard(connection)

        return Tail(connection, self.check_home, close, self._soon)

    # --- state ------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether every connection that was needed so far stands (parks and subscriptions aside)."""
        return bool(self._lanes) and all(lane.connected for lane in self._lanes.values())

    @property
    def statistics(self) -> Statistics:
        """Count what was done so far."""
        every = [*self._lanes.values(), *self._beside]
        return Statistics(
            connections=sum(each.connected for each in every),
            connects=sum(each.connects for each in every),
            sent=sum(each.pipeline.sent for each in every),
            resent=sum(each.pipeline.resent for each in every),
            waiting=sum(each.pipeline.waiting for each in every),
            unanswered_bytes=sum(each.pipeline.unanswered_bytes for each in every),
        )

    async def ready(self) -> None:
        """Wait until connecting was tried once.

        Raises:
            EchoMQError: It was refused for good: a wrong password, a certificate, a database number.
        """
        await self._lane(None, "bulk").first_try()

    def check(self) -> None:
        """Refuse to be used where it cannot work. Each public entry calls it before it touches anything.

        Raises:
            RuntimeError: It is closed, was opened before a fork, or belongs to another event loop or thread.
        """
        if self._unusable is not None:
            raise RuntimeError(self._unusable)
        if not self._is_home():
            raise foreign()

    def check_home(self) -> None:
        """Refuse as `check` does, but for a closed client: for calls that hear of the closing as of a lost server.

        Raises:
            RuntimeError: It was opened before a fork, or belongs to another event loop or thread.
        """
        if not self._is_home():
            raise foreign() if self._unusable is None else RuntimeError(self._unusable)

    def close(self) -> None:
        """End all service tasks; callers that still wait fail. Called when the context exits."""
        self._unusable = self._unusable or "this client is closed"
        for connection in (*self._lanes.values(), *self._beside):
            connection.close("the client's context has been left")

    def forked(self) -> None:
        """In a forked child: drop the sockets, refuse to be used."""
        self._unusable = "this client was opened before a fork: a child process opens its own"
        self._is_home = lambda: False
        for connection in (*self._lanes.values(), *self._beside):
            connection.drop_inherited()

    # --- inside -----------------------------------------------------------------------------

    def _lane(self, keys: QueueKeys | None, route: str) -> Connection:
        node = self._topology.node(keys)
        lane = self._lanes.get((node, route))
        if lane is None:
            lane = Connection(
                lambda: self._topology.address(node),
                name=f"echomq-{self._name}{route}-{self.tag}",
                timing=self.timing,
                on_change=lambda: self._changed(node, route),
            )
            self._lanes[node, route] = lane
            self._tasks.start_soon(lane.run)
        return lane

    def _open_beside(self, purpose: str, keys: QueueKeys | None = None, **options: Any) -> Connection:
        self.check()
        node = self._topology.node(keys)
        connection = Connection(
            lambda: self._topology.address(node),
            name=f"echomq-{self._name}{purpose}-{self.tag}",
            timing=self.timing,
            **options,
        )
        self._beside.add(connection)
        self._tasks.start_soon(connection.run)
        return connection

    async def _close_beside(self, connection: Connection) -> None:
        connection.close()
        await connection.closed()
        self._beside.discard(connection)

    def _slot(self, keys: QueueKeys, verb: str, route: Route) -> Slot:
        key = (keys.base, verb)
        slot = self._slots.get(key)
        if slot is None:
            lane = self._lane(keys, route)
            slot = self._slots[key] = Slot(lane, keys.queue, verb)
            lane.pipeline.sources.append(slot)
        return slot

    def _changed(self, node: str, route: str) -> None:
        stands = self._lanes[node, route].connected
        for hear in tuple(self.on_connect if stands else self.on_disconnect):
            hear()


def note_of_use(keys: QueueKeys, at: int) -> tuple[tuple[str | int, ...], ...]:
    """Spell the commands that say when a queue was used, Unix ms, and forget those that nobody has used for long."""
    return (
        ("ZADD", keys.known, "GT", at, keys.queue),
        ("ZREMRANGEBYSCORE", keys.known, "-inf", at - FORGOTTEN_MS),
    )


def _route(verb: str) -> Route:
    return "control" if verb in CONTROL else "bulk"


def open_wire(
    url: str | Topology,
    *,
    unavailable_after: float = 10.0,
    ping_deadline: float = 5.0,
    connect_timeout: float = 5.0,
    name: str = "",
) -> AbstractAsyncContextManager[WireClient]:
    """Open a client: an async context manager.

    Args:
        url: See `echomq.wire.urls.parse`; or a topology.
        unavailable_after: Seconds a caller waits for a server that is away.
        ping_deadline: Seconds of silence that mean a dead peer.
        connect_timeout: Seconds for connecting, TLS and the handshake together.
        name: Shown in CLIENT LIST, as `echomq-<name>-<purpose>-<tag>`.

    Raises:
        TypeError, ValueError: Not a URL of a server, a time is not a positive number, or the name cannot be one.
        EchoMQError: On entering: the server refuses us in a way that waiting will not heal.

    Cancellation: entering may be cancelled. While the body runs, cancelling does not touch the
        connections; leaving closes them without waiting for the server.
    """
    if name and not re.fullmatch(r"[!-~]{1,64}", name):
        raise ValueError(f"a client's name is 1 to 64 printable ASCII characters without spaces, not {name!r}")
    topology = SingleServer(parse(url)) if isinstance(url, str) else url
    timing = Timing(
        unavailable_after=to_wait(unavailable_after, "unavailable_after", positive=True),
        ping_deadline=to_wait(ping_deadline, "ping_deadline", positive=True),
        connect_timeout=to_wait(connect_timeout, "connect_timeout", positive=True),
    )
    return _open(topology, timing, f"{name}-" if name else "")


@asynccontextmanager
async def _open(topology: Topology, timing: Timing, name: str) -> AsyncIterator[WireClient]:
    # The task group is our own affair: an exception of the body leaves as it is, not in a group.
    own: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            client = WireClient(topology, timing=timing, name=name, tasks=tasks)
            try:
                await client.ready()
                yield client
            except BaseException as error:
                own = error
                raise
            finally:
                client.close()
    except BaseExceptionGroup as group:
        if own is None or group.exceptions != (own,):
            raise
    # Outside of the handler, so that the group does not become its context.
    if own is not None:
        raise own
