"""Every error that echomq raises on purpose.

All of them are an `EchoMQError`. The families say whose fault it is: the job's state
(`JobStateError`, `JobNotFoundError`, `LeaseLostError`; a schedule's, `ScheduleNotFoundError`), the caller's values
(`InvalidJobError`, `EncodeError`, `DecodeError`; mere bad arguments stay `TypeError` and `ValueError`), the handler's
outcome (`JobFailedError` and its like), the server's health (`UnavailableError`, `ServerError` and its like), or two
versions that do not fit (`ProtocolMismatchError`).

The errors can be pickled, so they survive the way back from a worker process, and each message stands by itself in a
log line: it names the job, the queue and the offending value.
"""

from __future__ import annotations

import signal
from typing import Any, Self, final


def _rebuild(cls: type[EchoMQError], args: tuple[Any, ...], state: dict[str, Any]) -> EchoMQError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class EchoMQError(Exception):
    """The root of every error echomq raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by attributes: `args` holds the message, not what `__init__` takes."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def __copy__(self) -> Self:
        """Copy by attributes, for the same reason."""
        error = type(self).__new__(type(self), *self.args)
        error.__dict__.update(self.__dict__)
        return error


# --- the job is not where the caller thought --------------------------------------------------


@final
class JobStateError(EchoMQError):
    """The job is in a state in which the verb is refused; nothing was changed (EMQSTATE).

    Attributes:
        expected: The states in which the verb would have worked, for people ("" if not known).
        actual: The state the job (or queue) is in; `at step 7` of a job whose checkpoint is at a later step.
        id: The job's id, "" when the refusal is about the whole queue.
        queue: The queue's name, "" if not known.
    """

    def __init__(self, expected: str, actual: str, id: str = "", queue: str = "") -> None:
        self.expected = expected
        self.actual = actual
        self.id = id
        self.queue = queue
        wanted = f", expected {expected}" if expected else ""
        whose = id or (f"queue {queue!r}" if queue else "the queue")
        super().__init__(f"{whose} is {actual or 'in another state'}{wanted}")


@final
class JobNotFoundError(EchoMQError):
    """There is no row of that id: the job has finished and was not kept, or it never existed (EMQGONE).

    Attributes:
        id: The job's id.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"{id} is not there: finished and not kept, or it never existed")


@final
class ScheduleNotFoundError(EchoMQError):
    """The queue has no recurring schedule of that name (EMQGONE).

    Attributes:
        name: The schedule's name.
        queue: The queue's name.
    """

    def __init__(self, name: str, queue: str = "") -> None:
        self.name = name
        self.queue = queue
        super().__init__(f"queue {queue!r} has no recurring schedule {name!r}")


@final
class LeaseLostError(EchoMQError):
    """A write on behalf of a claim was refused: the claim is over and the job may be running elsewhere.

    Nothing was changed. Raised for EMQSTALE (another claim holds the job, or none) and, when a token was presented,
    for EMQGONE (the job has ended).

    Attributes:
        reason: Why, in the server's word, or "gone".
        id: The job's id.
        token: The fencing token that was presented; 0 when not known.
    """

    def __init__(self, reason: str, id: str = "", token: int = 0) -> None:
        self.reason = reason
        self.id = id
        self.token = token
        super().__init__(f"the lease of {id or 'the job'} (token {token}) is lost: {reason or 'stale'}")


@final
class QueueFullError(EchoMQError):
    """The queue holds as many jobs as its `max_size` allows; the job was not admitted (EMQFULL).

    Attributes:
        queue: The queue's name, "" when not known.
        detail: What the server added, for people.
    """

    def __init__(self, queue: str = "", detail: str = "") -> None:
        self.queue = queue
        self.detail = detail
        super().__init__(f"queue {queue!r} is full" + (f": {detail}" if detail else ""))


@final
class ProtocolMismatchError(EchoMQError):
    """The queue was written by a protocol version that this library does not speak (EMQVERSION).

    Attributes:
        queue: The queue's name, "" when not known.
        theirs: The version in the queue's `meta`.
        ours: The version this library speaks.
    """

    def __init__(self, queue: str, theirs: str, ours: str) -> None:
        self.queue = queue
        self.theirs = theirs
        self.ours = ours
        super().__init__(f"queue {queue!r} speaks protocol {theirs}, this library speaks {ours}: upgrade the older one")


# --- a value that does not fit ----------------------------------------------------------------


@final
class InvalidJobError(EchoMQError, ValueError):
    """A value of the job is out of range or too large, in the library's eyes or the server's (EMQKIND)."""


@final
class EncodeError(EchoMQError, ValueError):
    """A payload, result, progress or checkpoint cannot be written as JSON without losing something.

    Attributes:
        path: Where in the value, such as `args[0].size`; "" is the value itself.
    """

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


@final
class DecodeError(EchoMQError, ValueError):
    """Bytes that are not what they should be: not JSON, not the declared type, or a torn number in a row.

    Attributes:
        path: Where in the value, such as `args[0].size`; "" is the value itself.
    """

    def __init__(self, message: str, path: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


@final
class ArgumentsError(EchoMQError, TypeError):
    """A job's arguments do not fit its task's signature, or their declared types. Producer and worker differ.

    Attributes:
        task: The task's name.
        path: Where in the arguments, such as `args[0].size`; "" when their number or names do not fit.
    """

    def __init__(self, message: str, task: str = "", path: str = "") -> None:
        self.task = task
        self.path = path
        super().__init__(message)


# --- how a job ended, told to whoever waits for it --------------------------------------------


@final
class JobFailedError(EchoMQError):
    """The job was given up: its handler failed beyond its budget, or it was discarded or killed its workers.

    Attributes:
        id: The job's id.
        type: The qualified name of the last exception's type, such as `KeyError` or `shop.errors.Declined`; "" when there was none.
        message: Its text, or the reason in words.
        traceback: Its traceback as text, cut to the library's limit; "" when there was none.
        attempts: How often the job was claimed.
    """

    def __init__(self, id: str, type: str = "", message: str = "", traceback: str = "", attempts: int = 0) -> None:
        self.id = id
        self.type = type
        self.message = message
        self.traceback = traceback
        self.attempts = attempts
        what = ": ".join(part for part in (type, message) if part) or "no reason recorded"
        super().__init__(f"{id} failed after {attempts} attempt{'' if attempts == 1 else 's'}: {what}")


@final
class ProcessDiedError(EchoMQError):
    """The process that ran a handler (`run_in="process"`) has died: the attempt failed. Nobody had asked for it.

    Attributes:
        code: Its exit code; of one that was killed by a signal, the signal's number with a minus.
    """

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the handler's process died: {_shown_exit(code)}")


def _shown_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


@final
class JobCancelledError(EchoMQError):
    """The job was cancelled before it could complete.

    Attributes:
        id: The job's id.
        reason: What the canceller gave as the reason; "" when nothing.
    """

    def __init__(self, id: str, reason: str = "") -> None:
        self.id = id
        self.reason = reason
        super().__init__(f"{id} was cancelled" + (f": {reason}" if reason else ""))


@final
class JobExpiredError(EchoMQError):
    """The job's `expires` passed before a worker took it.

    Attributes:
        id: The job's id.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"{id} expired before a worker took it")


@final
class ResultNotKeptError(EchoMQError):
    """The job has ended, or will end, without leaving a result to read: it did not ask for one.

    Attributes:
        id: The job's id.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"{id} keeps no result: set result_ttl on its task or when enqueueing")


# --- the server -------------------------------------------------------------------------------


@final
class UnavailableError(EchoMQError):
    """The server could not be reached within the time the client was given.

    Attributes:
        sent: Whether the call may have run. False: it never left this process, trying again cannot do it twice.
    """

    def __init__(self, message: str, sent: bool = False) -> None:  # noqa: FBT001, FBT002 - read as sent=True
        self.sent = sent
        super().__init__(message)


class ServerError(EchoMQError):
    """The server answered a command with an error. The subclasses are those an operator treats differently.

    Attributes:
        code: The error's first word, such as `OOM`.
        message: The rest of its text.
    """

    def __init__(self, code: str, message: str = "") -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code} {message}".strip())


@final
class EvictionPolicyError(EchoMQError):
    """The server may evict jobs when its memory is full, so a worker will not start on it.

    Attributes:
        policy: Its `maxmemory-policy`.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy
        super().__init__(
            f"the server's maxmemory-policy is {policy}, which may drop jobs: set it to noeviction, "
            "or allow eviction if losing jobs is acceptable"
        )


@final
class HealthPortError(EchoMQError):
    """A worker cannot listen where it was told to answer health probes.

    Attributes:
        host: The host it was given.
        port: The port it was given.
        reason: Why not.
    """

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(f"cannot listen for health probes on {host} port {port}: {reason}")


@final
class OutOfMemoryError(ServerError):
    """OOM: `maxmemory` is reached. What adds work is refused until jobs have drained; draining goes on."""


@final
class PermissionDeniedError(ServerError):
    """NOPERM: the ACL user may not run the command, or touch the key or channel, that the message names."""


@final
class AuthenticationError(ServerError):
    """NOAUTH or WRONGPASS: no credentials, or wrong ones."""


@final
class ReadOnlyError(ServerError):
    """READONLY: this server is a replica; the primary is elsewhere."""


@final
class NotPersistedError(ServerError):
    """MISCONF: the server cannot write its snapshot and refuses every write until it can."""


@final
class NoReplicasError(ServerError):
    """NOREPLICAS: fewer replicas in touch than `min-replicas-to-write`; every write is refused."""


@final
class BusyScriptError(ServerError):
    """BUSY: some script, not necessarily ours, has run for longer than the server's limit."""


@final
class TooManyClientsError(ServerError):
    """The server's `maxclients` is reached; the connection was refused."""


@final
class LoadingError(ServerError):
    """LOADING: the server is reading its data set from disk and answers nothing else yet."""
