"""Runs transitions over redis-py, from any thread, each call at most once.

Theory of operation
    A thread has a tag of its own and counts its calls of each verb and queue, so that at most one call of a tag, queue
    and verb is in flight (Protocol, section 4, rule 6). A call is packed once, and whatever breaks, the same bytes go
    again: the server answers them from its memory if they have run.

    The tries are made here and not by redis-py, which would hide whether the call may have run. Connections come from
    its pool, which knows what to do after a fork; tags are drawn anew there.

If you change this
    A connection whose reply was not read must not go back to the pool open: the next caller would read it.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, final

import redis

from echomq.errors import EchoMQError, UnavailableError
from echomq.protocol.ids import new_tag
from echomq.protocol.keys import QueueKeys
from echomq.transitions.base import Call, Transition
from echomq.transitions.scripts import Script
from echomq.wire.client import NOTED_FOR, note_of_use
from echomq.wire.packing import pack
from echomq.wire.replies import Action, error_for, rule_for

T = TypeVar("T")

BROKEN: Final = (redis.ConnectionError, redis.TimeoutError, OSError)
"""What a lost connection looks like. Some error replies are of these classes too: see `reply_text`."""

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_MAX_LOADS: Final = 3
"""SCRIPT LOADs for one call: a server that forgets a script faster than that is broken."""

# redis-py takes the first word off the errors it knows. Subclasses come before their bases.
_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.AskError, "ASK"),
    (redis.exceptions.AuthenticationError, "NOAUTH"),
)


@final
class _Mine(threading.local):
    """A thread's tag and its counting."""

    def __init__(self) -> None:
        self.pid = 0
        self.tag = ""
        self.numbers: dict[tuple[str, str], int] = {}


@final
class Runner:
    """Runs transitions on connections of a pool."""

    def __init__(self, pool: redis.ConnectionPool, *, unavailable_after: float) -> None:
        self.pool = pool
        """Where connections come from."""
        self._patience = unavailable_after
        self._mine = _Mine()
        self._noted: dict[str, float] = {}

    def call(self) -> Call:
        """Answer this thread's tag, for a call that is not remembered."""
        return Call(self._tag())

    def run(self, transition: Transition[T], *, within: float = math.inf) -> T:
        """Run one transition, which may be repeated without harm: a read; `within`: see `command`."""
        return transition.read(self._execute(transition, sure=False, within=within))

    def remembered(self, keys: QueueKeys, verb: str, build: Callable[[Call], Transition[T]]) -> T:
        """Run a transition under this thread's next number of its verb, at most once.

        Raises:
            UnavailableError: The server could not be reached in time; `sent` says whether the call may have run.
            EchoMQError: The server refused it.
        """
        tag = self._tag()
        numbers = self._mine.numbers
        number = numbers[keys.base, verb] = numbers.get((keys.base, verb), 0) + 1
        transition = build(Call(tag, number))
        return transition.read(self._execute(transition, sure=True))

    def command(self, *args: bytes | str | float, within: float = math.inf) -> Any:
        """Run a plain read, such as SCAN, and answer the raw reply; it is sent again after a lost connection.

        Args:
            args: The command.
            within: Seconds after which no further try is made, if that is sooner than the client gives up.

        Raises:
            UnavailableError: The server could not be reached in time.
            EchoMQError: The server refused it.
        """
        data = pack(args)
        tries = _Tries(str(args[0]), min(self._patience, within))
        while True:
            try:
                return self._exchange(data, tries)
            except (redis.RedisError, OSError) as error:
                text = reply_text(error)
                if text is None:
                    tries.pause(error)
                    continue
            problem = error_for(text, call=str(args[0]))
            if rule_for(text).action not in {Action.RETRY, Action.RECONNECT}:
                raise problem
            tries.pause(problem)

    def note_use(self, keys: QueueKeys) -> None:
        """Say that a queue is used, once an hour: for those who ask which queues there are. As well as it goes."""
        now = time.monotonic()
        if now < self._noted.get(keys.base, 0.0):
            return
        self._noted[keys.base] = now + NOTED_FOR
        for command in note_of_use(keys, round(time.time() * 1000)):
            try:
                self._exchange(pack(command), _Tries(str(command[0]), 0.0))
            except (redis.RedisError, OSError):  # nobody depends on it
                return

    def _tag(self) -> str:
        mine = self._mine
        if mine.pid != os.getpid():  # a new thread, or a forked child
            mine.pid, mine.tag = os.getpid(), new_tag()
            mine.numbers = {}
        return mine.tag

    def _execute(self, transition: Transition[Any], *, sure: bool, within: float = math.inf) -> Any:
        data = pack(transition.command())
        tries = _Tries(transition.verb, min(self._patience, within))
        while True:
            before = tries.sent
            try:
                reply = self._exchange(data, tries)
            except (redis.RedisError, OSError) as error:
                text = reply_text(error)
                if text is None:
                    tries.pause(error)
                    continue
            else:
                return reply
            # An error reply: this sending has not run. An earlier one may have.
            tries.sent = before
            action = rule_for(text).action
            if action is Action.RELOAD and tries.loads < _MAX_LOADS:
                self._load(transition.script, tries)
                continue
            problem = error_for(text, queue=transition.keys.queue, call=transition.verb)
            if action in {Action.RETRY, Action.RECONNECT}:
                tries.pause(problem)
            elif before and sure:
                raise tries.unavailable("was sent again", problem) from problem
            else:
                raise problem

    def _load(self, script: Script, tries: _Tries) -> None:
        sent = tries.sent
        try:
            self._exchange(pack(("SCRIPT", "LOAD", script.source)), tries)
        except (redis.RedisError, OSError) as error:
            tries.sent = sent  # loading is not the call
            text = reply_text(error)
            if text is None:
                tries.pause(error)  # a lost connection says nothing about the script
                return
            if rule_for(text).action is Action.RAISE:
                raise error_for(text, call="SCRIPT LOAD") from error
            # Else the call meets the same trouble, or NOSCRIPT again.
        tries.sent = sent
        tries.loads += 1

    def _exchange(self, data: bytes, tries: _Tries) -> Any:
        connection = self.pool.get_connection()
        try:
            tries.sent = True
            connection.send_packed_command([data], check_health=False)
            reply = connection.read_response()
        except BaseException as error:
            if not isinstance(error, redis.RedisError) or reply_text(error) is None:
                connection.disconnect()
            raise
        finally:
            self.pool.release(connection)
        return reply


@final
class _Tries:
    """The tries of one call: how long already, and whether one of them may have run."""

    __slots__ = ("_deadline", "_pause", "_verb", "loads", "sent")

    def __init__(self, verb: str, patience: float) -> None:
        self._verb = verb
        self._deadline = time.monotonic() + patience
        self._pause = _FIRST_PAUSE
        self.loads = 0
        self.sent = False

    def pause(self, error: Exception) -> None:
        """Wait a moment before the next try.

        Raises:
            UnavailableError: The time is up.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self.unavailable("was given up", error) from error
        time.sleep(min(left, random.uniform(self._pause / 2, self._pause)))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def unavailable(self, what: str, error: Exception) -> UnavailableError:
        """Make the error."""
        outcome = "it may have run" if self.sent else "it has not run"
        return UnavailableError(f"{self._verb} {what}, {outcome}: {error}", sent=self.sent)


def reply_text(error: BaseException) -> str | None:
    """Answer what the server said, first word and all; None when it said nothing: the connection broke."""
    for cls, code in _CODES:
        if isinstance(error, cls):
            return f"{getattr(error, 'status_code', None) or code} {error}"
    if isinstance(error, redis.ResponseError):
        text = str(error)
        return text if text.partition(" ")[0].isupper() else f"ERR {text}"
    if isinstance(error, redis.ConnectionError) and "max number of clients" in str(error):
        return f"ERR {error}"
    return None


def mapped(error: Exception, *, call: str) -> EchoMQError:
    """Make the library's error of a redis-py error."""
    text = reply_text(error)
    if text is None:
        return UnavailableError(f"{call}: {error}", sent=True)
    return error_for(text, call=call)
