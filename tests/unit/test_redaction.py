"""What stands under a redacted name: in values for a log, and in what errors say of arguments and results."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import pytest

from echomq.app import App
from echomq.errors import ArgumentsError, DecodeError, EncodeError
from echomq.protocol.newjob import NewJob
from echomq.redaction import HIDDEN, Redaction

SECRET = "s3cret"
redact = Redaction.of(("password", "Token"))


@attrs.frozen
class Login:
    """What an application may send."""

    user: str
    password: str


@dataclass
class Loose:
    """Another way to declare it."""

    token: str


class Pair(NamedTuple):
    """And another."""

    token: str
    rest: int


class Odd:
    """What no codec knows, and whose repr tells all."""

    def __repr__(self) -> str:
        return SECRET


def test_names_are_hidden_wherever_they_stand() -> None:
    """In mappings at any depth, whatever their case; the rest stays, and the given value is not changed."""
    value = {"user": "ada", "PASSWORD": SECRET, "more": [{"token": 1, "kept": 2}, (3, {"Token": 4})]}
    assert redact.hide(value) == {
        "user": "ada", "PASSWORD": HIDDEN, "more": [{"token": HIDDEN, "kept": 2}, (3, {"Token": HIDDEN})],
    }  # fmt: skip
    assert value["PASSWORD"] == SECRET


@pytest.mark.parametrize("value", [Login("ada", SECRET), Loose(SECRET), Pair(SECRET, 1), {1: Login("ada", SECRET)}])
def test_object_with_a_hidden_field_is_hidden_as_a_whole(value: Any) -> None:
    """A log shows its repr, which would tell."""
    assert redact.finds([value])
    assert SECRET not in repr(redact.hide([value, "kept"]))
    assert "kept" in repr(redact.hide([value, "kept"]))


def test_values_without_the_names_are_the_same_objects() -> None:
    """Nothing is copied."""
    for value in ({"user": "ada"}, [1, "password"], "token", object(), None):
        assert redact.hide(value) is value
        assert Redaction().hide({"password": 1}) == {"password": 1}


def test_what_is_too_large_or_within_itself_is_hidden() -> None:
    """As a whole where it stands too deep; a long list is no reason."""
    loop: list[Any] = []
    loop.append(loop)
    assert HIDDEN in repr(redact.hide(loop))
    many = [*range(20_000), {"token": SECRET}]
    assert redact.hide(many) == [*range(20_000), {"token": HIDDEN}]
    deep: Any = {"password": SECRET}
    for _ in range(2000):
        deep = [deep]
    assert SECRET not in repr(redact.hide(deep))


@pytest.mark.parametrize("names", ["password", (1,), ("",), None])
def test_names_are_several_texts(names: Any) -> None:
    """One name alone would be read as its letters."""
    with pytest.raises(TypeError):
        App(redact=names)


def fits(text: str, error: Exception) -> None:
    """Look for the secret in all that a log could show of an error."""
    shown = "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET not in shown, shown
    assert text in str(error)
    assert error.__context__ is None


def make(*names: str) -> Any:
    """Make a task of an app."""
    app = App(redact=names)

    @app.task(result_ttl=60)
    async def login(user: str, password: int, *more: Any, extra: Any = None) -> int:
        return 1

    return login


CALLS: list[tuple[bytes, str]] = [
    (b'{"args":["ada","s3cret"]}', "args[1]"),
    (b'{"args":["ada"],"kwargs":{"password":"s3cret"}}', "kwargs.password"),
    (b'{"args":[{"password":"s3cret"},1]}', "args[0]"),
]


@pytest.mark.parametrize(("payload", "path"), CALLS)
def test_arguments_that_do_not_fit_are_told_without_their_values(payload: bytes, path: str) -> None:
    """A worker logs this text, and the job's row keeps it; the path is there. Without the names the value is shown."""
    with pytest.raises(ArgumentsError) as caught:
        make("password").load_arguments(payload)
    fits(path, caught.value)
    assert caught.value.path == path
    with pytest.raises(ArgumentsError, match=SECRET):
        make("other").load_arguments(payload)


def test_values_of_other_calls_are_shown() -> None:
    """An app that redacts shows what has none of the names: it is what one looks for."""
    app = App(redact=("password",))

    @app.task
    async def count(number: int) -> None: ...

    with pytest.raises(ArgumentsError, match="expected int, got 'many'"):
        count.load_arguments(b'{"args":["many"]}')


@pytest.mark.parametrize("payload", [b"s3cret", b'["s3cret"]', b'{"args":"s3cret"}', b'{"args":["s3cret"'])
def test_bytes_that_are_no_call_are_counted_and_not_shown(payload: bytes) -> None:
    """Nobody can tell what is in them."""
    with pytest.raises(DecodeError) as caught:
        make("password").load_arguments(payload)
    fits(f"{len(payload)} bytes", caught.value)
    with pytest.raises(DecodeError, match=SECRET):
        make().load_arguments(payload)


@pytest.mark.parametrize(
    "call",
    [
        lambda task: task.call("ada", Odd()),
        lambda task: task.call("ada", 1, {"Password": Odd()}),
        lambda task: task.call("ada", 1, extra={"password": Odd()}),
        lambda task: task.options(priority=1).call("ada", password=Odd()),
        lambda task: task.dump_result({"password": Odd()}),
        lambda task: App(redact=("password",)).task_stub("x", queue="q").call(password=Odd()),
    ],
)
def test_what_cannot_be_encoded_is_told_without_its_value(call: Any) -> None:
    """The producer's program may log this, and the worker logs it of results."""
    with pytest.raises(EncodeError) as caught:
        call(make("password"))
    fits("cannot be encoded", caught.value)


def test_result_that_cannot_be_read_is_told_without_its_value() -> None:
    """Whatever is in it."""
    result = f'"{SECRET}"'.encode()
    with pytest.raises(DecodeError) as caught:
        make("password").load_result(result)
    fits("the result of task 'login', 8 bytes, does not fit", caught.value)
    with pytest.raises(DecodeError, match=SECRET):
        make().load_result(result)


def test_repr_of_a_call_says_how_large_its_payload_is() -> None:
    """With and without names: what holds one gets into logs."""
    assert "payload=<21 bytes>" in repr(make().call("ada", 12345).with_payload(b"x" * 21))
    assert SECRET not in repr(NewJob(task="x", payload=SECRET.encode()))
