"""The one table of what a server's error means: the exception, and what the wire does about it.

An error is known by its first word (`OOM command not allowed ...`). All actions but RAISE rest on
one fact: such an answer says that the call did *not* run, so that sending it again is safe.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, final

import attrs

from echomq.errors import (
    AuthenticationError,
    BusyScriptError,
    EchoMQError,
    LoadingError,
    NoReplicasError,
    NotPersistedError,
    OutOfMemoryError,
    PermissionDeniedError,
    ReadOnlyError,
    ServerError,
    TooManyClientsError,
)
from echomq.protocol.refusals import Verdict, missing_right


@final
class Action(enum.Enum):
    """What the wire does when a call is answered so."""

    RAISE = "hand it to the caller"
    RELOAD = "load the script and send the call again"
    RETRY = "send the call again after a moment, until the caller's time is up"
    RECONNECT = "connect anew, perhaps to another server, and send the call again"


@final
@attrs.frozen
class Rule:
    """One line of the table."""

    code: str
    """The error's first word."""
    error: type[ServerError]
    """What the caller gets when it is told."""
    action: Action
    """What the wire does first."""


def _rule(code: str, action: Action, error: type[ServerError] = ServerError) -> Rule:
    return Rule(code, error, action)


TABLE: Final = {
    rule.code: rule
    for rule in (
        _rule("NOSCRIPT", Action.RELOAD),
        # The server, or the slot, is busy with itself and will serve again.
        _rule("LOADING", Action.RETRY, LoadingError),
        _rule("BUSY", Action.RETRY, BusyScriptError),
        _rule("TRYAGAIN", Action.RETRY),
        _rule("CLUSTERDOWN", Action.RETRY),
        _rule("MASTERDOWN", Action.RETRY),
        # The role changed under us: the name may lead to the new primary by now.
        _rule("READONLY", Action.RECONNECT, ReadOnlyError),
        _rule("UNBLOCKED", Action.RECONNECT),
        # One server, no cluster client: the answer names where the slot is, which the caller should see.
        _rule("MOVED", Action.RAISE),
        _rule("ASK", Action.RAISE),
        # An operator must do something: waiting for it here would only hide it.
        _rule("OOM", Action.RAISE, OutOfMemoryError),
        _rule("MISCONF", Action.RAISE, NotPersistedError),
        _rule("NOREPLICAS", Action.RAISE, NoReplicasError),
        _rule("NOPERM", Action.RAISE, PermissionDeniedError),
        _rule("NOAUTH", Action.RAISE, AuthenticationError),
        _rule("WRONGPASS", Action.RAISE, AuthenticationError),
    )
}
"""Errors by their first word."""

_TOO_MANY: Final = Rule("ERR", TooManyClientsError, Action.RECONNECT)
_SCRIPT_NOPERM: Final = Rule("NOPERM", PermissionDeniedError, Action.RAISE)
_OTHER: Final = Rule("ERR", ServerError, Action.RAISE)


def rule_for(text: str) -> Rule:
    """Find the line of the table for an error's text."""
    code = text.split(" ", 1)[0]
    rule = TABLE.get(code)
    if rule is not None:
        return rule
    if code == "ERR" and "max number of clients" in text:
        return _TOO_MANY
    if missing_right(text) is not None:  # what a script may not do is told under ERR, or a word of the script's
        return _SCRIPT_NOPERM
    return _OTHER


def error_for(text: str, *, queue: str = "", call: str = "") -> EchoMQError:
    """Make the exception for an error's text.

    Args:
        text: What the server said, without the leading `-`.
        queue: The queue whose call it was, for the message of a refusal.
        call: The command or verb, appended where the server does not name it.

    Returns:
        A new exception each time: one failed call may have many callers, and an exception raised
        in several tasks would mix their tracebacks.
    """
    code, _, rest = text.partition(" ")
    if code.startswith("EMQ") and code != "EMQSTALE":
        # A whole call refused. (EMQSTALE of a whole call is rule 6's "too old", and no lost lease.)
        refusal = Verdict.parse(text).error(queue=queue)
        if refusal is not None:
            return refusal
    rule = rule_for(text)
    denied = missing_right(text) if rule.error is PermissionDeniedError else None
    if denied is not None:
        code, rest = "NOPERM", denied
    if call and call not in rest:
        # The server names a command that is denied, but no key: the queue does.
        of_queue = f", queue {queue!r}" if queue and rule.error is PermissionDeniedError else ""
        rest = f"{rest} ({call}{of_queue})"
    return rule.error(code, rest)


MakeError = Callable[[], EchoMQError]
"""Makes a fresh exception for each caller of one failed call."""
