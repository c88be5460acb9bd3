"""The table of server errors."""

from __future__ import annotations

import pytest

from echomq import errors
from echomq.protocol.refusals import Verdict
from echomq.wire.replies import Action, error_for, rule_for


@pytest.mark.parametrize(
    ("text", "error", "action"),
    [
        ("NOSCRIPT No matching script.", errors.ServerError, Action.RELOAD),
        ("LOADING dataset in memory", errors.LoadingError, Action.RETRY),
        ("BUSY running a script", errors.BusyScriptError, Action.RETRY),
        ("TRYAGAIN Multiple keys", errors.ServerError, Action.RETRY),
        ("CLUSTERDOWN The cluster is down", errors.ServerError, Action.RETRY),
        ("MASTERDOWN Link with MASTER is down", errors.ServerError, Action.RETRY),
        ("READONLY replica", errors.ReadOnlyError, Action.RECONNECT),
        ("UNBLOCKED force unblock", errors.ServerError, Action.RECONNECT),
        ("ERR max number of clients reached", errors.TooManyClientsError, Action.RECONNECT),
        ("MOVED 1 h:1", errors.ServerError, Action.RAISE),
        ("ASK 1 h:1", errors.ServerError, Action.RAISE),
        ("OOM command not allowed", errors.OutOfMemoryError, Action.RAISE),
        ("MISCONF cannot write", errors.NotPersistedError, Action.RAISE),
        ("NOREPLICAS Not enough", errors.NoReplicasError, Action.RAISE),
        ("NOPERM no permissions", errors.PermissionDeniedError, Action.RAISE),
        ("ERR ACL failure in script: x", errors.PermissionDeniedError, Action.RAISE),
        ("ACL failure in script: x", errors.PermissionDeniedError, Action.RAISE),
        ("NOAUTH Authentication required.", errors.AuthenticationError, Action.RAISE),
        ("WRONGPASS invalid", errors.AuthenticationError, Action.RAISE),
        ("ERR unknown", errors.ServerError, Action.RAISE),
        ("EMQVERSION 2.0", errors.ProtocolMismatchError, Action.RAISE),
        ("EMQKIND claim", errors.InvalidJobError, Action.RAISE),
        ("EMQSTALE call 1 is older", errors.ServerError, Action.RAISE),
    ],
)
def test_error_maps_to_its_class_and_action(text: str, error: type[Exception], action: Action) -> None:
    """Each word of the table has its exception, and what the wire does first."""
    assert type(error_for(text)) is error
    assert rule_for(text).action is action


def test_error_is_a_fresh_one_for_each_caller() -> None:
    """Two callers of one failed call do not share a traceback."""
    assert error_for("OOM x") is not error_for("OOM x")


def test_error_names_the_call_once() -> None:
    """The verb is added where the server does not name it, and only there."""
    assert str(error_for("OOM full", call="enqueue")) == "OOM full (enqueue)"
    assert str(error_for("NOPERM the 'get' command", call="get")) == "NOPERM the 'get' command"


@pytest.mark.parametrize(
    "text",
    [
        "ERR ACL failure in script: User x has no permissions to run the 'hset' command",
        "ERR ACL failure in script: User x has no permissions to run the 'hset' command script: 9f0c, on @user_script:1.",
        "ACL failure in script: User x has no permissions to run the 'hset' command script: on @user_script:1.",
        "NOPERM ACL failure in script: User x has no permissions to run the 'hset' command script: on @user_script:1.",
        "EMQTORN ERR ACL failure in script: User x has no permissions to run the 'hset' command",
        "EMQTORN NOPERM ACL failure in script: User x has no permissions to run the 'hset' command",
    ],
)
def test_right_that_is_missing_in_a_script_is_named(text: str) -> None:
    """As a call's error and as an item's verdict it is the same error, without where in the script it was."""
    of_call, of_item = error_for(text, queue="q", call="enqueue"), Verdict.parse(text).error(queue="q")
    for error in (of_call, of_item):
        assert isinstance(error, errors.PermissionDeniedError)
        assert error.code == "NOPERM"
        assert "ACL failure in script: User x has no permissions to run the 'hset' command (" in str(error)
        assert "queue 'q'" in str(error)
    assert not Verdict.parse(text).ok


@pytest.mark.parametrize("text", ["NOPERM x", "ERR x", "EMQTORN x", "EMQNEW x"])
def test_error_of_the_server_is_no_verdict_that_is_fine(text: str) -> None:
    """Whatever a script lets through as an item's verdict, nobody takes it for done."""
    verdict = Verdict.parse(text)
    assert not verdict.ok
    assert verdict.error() is not None
