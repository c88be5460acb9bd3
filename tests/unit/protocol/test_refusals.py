"""Verdicts and the errors that refusals become."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.errors import (
    InvalidJobError,
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    ProtocolMismatchError,
    QueueFullError,
    ServerError,
)
from echomq.protocol.refusals import Verdict, raise_for


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("ok", "ok", ""),
        (b"admitted", "admitted", ""),
        (b"duplicate JOB00000000000", "duplicate", "JOB00000000000"),
        ("cancel a reason of words", "cancel", "a reason of words"),
        (b"cancel ", "cancel", ""),
        (b"cancel \xff", "cancel", "\ufffd"),
        ("EMQKIND priority nan", "EMQKIND", "priority nan"),
        ("", "", ""),
    ],
)
def test_verdict_parses_word_and_detail(text: bytes | str, code: str, detail: str) -> None:
    """A verdict is a word of class and whatever follows it, from bytes or text alike."""
    assert Verdict.parse(text) == Verdict(code, detail)


@pytest.mark.parametrize(
    "text", ["ok", "admitted", "duplicate X", "collision", "asked", "ended", "cancel x", "retry 5"]
)
def test_verdict_without_refusal_is_no_error(text: bytes | str) -> None:
    """What the verb did, or an answer short of a refusal, raises nothing."""
    verdict = Verdict.parse(text)
    assert verdict.ok
    assert verdict.error(id="JOB0") is None
    raise_for(verdict)


@pytest.mark.parametrize(
    ("text", "token", "error", "attributes"),
    [
        ("EMQSTALE pending", 5, LeaseLostError, {"reason": "pending", "id": "JOB0", "token": 5}),
        ("EMQSTALE", 5, LeaseLostError, {"reason": "stale"}),
        ("EMQGONE", 5, LeaseLostError, {"reason": "gone", "token": 5}),
        ("EMQGONE", 0, JobNotFoundError, {"id": "JOB0"}),
        ("EMQSTATE active", 0, JobStateError, {"actual": "active", "expected": "dead", "id": "JOB0"}),
        ("EMQSTATE closing", 0, JobStateError, {"actual": "closing", "expected": "", "id": "", "queue": "q"}),
        ("EMQKIND priority nan", 0, InvalidJobError, {}),
        ("EMQFULL 10", 0, QueueFullError, {"queue": "q", "detail": "10"}),
        ("EMQVERSION 2.0", 0, ProtocolMismatchError, {"queue": "q", "theirs": "2.0", "ours": "1.0"}),
        ("EMQSTALE call 3 is older than the last call 4", 0, ServerError, {"code": "EMQSTALE"}),
        ("EMQTORN boom", 0, ServerError, {"code": "EMQTORN", "message": "boom"}),
        ("EMQNEW of a later version", 5, ServerError, {"code": "EMQNEW"}),
    ],
)
def test_verdict_refusal_becomes_its_error(
    text: bytes | str, token: int, error: type[Exception], attributes: dict[str, Any]
) -> None:
    """Each refusal is one error, which carries what the caller needs to act."""
    verdict = Verdict.parse(text)
    assert not verdict.ok
    with pytest.raises(error) as caught:
        raise_for(verdict, id="JOB0", token=token, queue="q", expected="dead")
    assert {name: getattr(caught.value, name) for name in attributes} == attributes


def test_closing_is_said_of_the_queue_not_of_the_job() -> None:
    """Whichever item met it; what else is refused in a state is said of the job."""
    closing, active = (
        Verdict.parse(f"EMQSTATE {state}").error(id="JOB0", queue="mails") for state in ("closing", "active")
    )
    assert str(closing) == "queue 'mails' is closing"
    assert str(active) == "JOB0 is active"
