"""A handler's failure as text of bounded size, whatever the exception does when it is looked at."""

from __future__ import annotations

import traceback as tb
from typing import Any, Final, final

import attrs
import orjson

from echomq.errors import DecodeError

MAX_ERROR: Final = 4096
"""Bytes of the whole record as JSON: a row of a failing job is read with every claim."""

_MAX_TYPE: Final = 256
_MIN_MESSAGE: Final = (
    1024  # what the message may always have; the traceback takes the rest, and gives back what it leaves
)
_MAX_LEAVES: Final = 20


@final
@attrs.frozen
class ErrorRecord:
    """What the row remembers of the latest failure: at most 4 KiB as JSON, with what was cut said in place."""

    type: str = ""
    """The exception's type: its module (but for builtins), a dot and its qualified name."""
    message: str = ""
    """Its text; of a group, its text and then each of its exceptions' type and text."""
    traceback: str = ""
    """Its traceback as Python prints it, causes and group members included."""

    def to_bytes(self) -> bytes:
        """Write it as JSON, cut to 4 KiB: the traceback in its middle, the message in its middle."""
        plain = _dump(self.type, self.message, self.traceback)
        if plain is not None and len(plain) <= MAX_ERROR:
            return plain
        type_ = _cut(_as_text(self.type), _MAX_TYPE)
        message, traceback = _as_text(self.message), _as_text(self.traceback)
        room = MAX_ERROR - len(orjson.dumps({"type": type_, "message": "", "traceback": ""}))
        traceback = _cut(traceback, room - min(_size(message), _MIN_MESSAGE))
        message = _cut(message, room - _size(traceback))
        return orjson.dumps({"type": type_, "message": message, "traceback": traceback})

    @classmethod
    def from_bytes(cls, data: bytes) -> ErrorRecord:
        """Read what `to_bytes` wrote; fields that are not known are left out.

        Raises:
            DecodeError: Not a JSON object of text.
        """
        try:
            fields = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise DecodeError(f"expected JSON, got {bytes(data[:80])!r} ({error})", "error") from None
        if not isinstance(fields, dict):
            raise DecodeError(f"expected an object, got {bytes(data[:80])!r}", "error")
        texts = {name: fields.get(name, "") for name in ("type", "message", "traceback")}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise DecodeError(f"expected text, got {text!r:.80}", f"error.{name}")
        return cls(**texts)

    @classmethod
    def from_exception(cls, error: BaseException) -> ErrorRecord:
        """Describe any exception. Never raises, whatever its `__str__` and the like do.

        A group that holds one exception is described as that one; the traceback still shows the group.
        """
        leaf = error
        while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
            leaf = leaf.exceptions[0]
        record = cls(_type_of(leaf), _message_of(leaf), _traceback_of(error, leaf))
        return cls.from_bytes(record.to_bytes())  # within its limit, and text that JSON can hold


def _type_of(error: BaseException) -> str:
    cls = type(error)
    module = cls.__module__
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - the handler's exception matters, not what its __str__ does
        return f"<its text is lost: __str__ raised {type(failure).__name__}>"


def _message_of(error: BaseException) -> str:
    if not isinstance(error, BaseExceptionGroup):
        return _text_of(error)
    leaves = _leaves(error)
    parts = [f"{_type_of(leaf)}: {_text_of(leaf)}" for leaf in leaves[:_MAX_LEAVES]]
    if len(leaves) > _MAX_LEAVES:
        parts.append(f"and {len(leaves) - _MAX_LEAVES} more")
    return "; ".join([_text_of(error), *parts])


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    leaves: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(reversed(error.exceptions))
        else:
            leaves.append(error)
    return leaves


def _traceback_of(error: BaseException, leaf: BaseException) -> str:
    try:
        text = "".join(tb.TracebackException.from_exception(error, compact=True).format())
    except Exception as failure:  # noqa: BLE001 - as above
        return f"<its traceback is lost: {type(failure).__name__} while it was formatted>"
    message = _text_of(leaf)
    if len(message) > _MIN_MESSAGE:  # else the text at the traceback's end would leave no room for its frames
        text = text.replace(message, _cut(_as_text(message), _MIN_MESSAGE // 4))
    return text


def _as_text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _dump(type_: str, message: str, traceback: str) -> bytes | None:
    try:
        return orjson.dumps({"type": type_, "message": message, "traceback": traceback})
    except TypeError:  # lone surrogates
        return None


def _size(text: str) -> int:
    return len(orjson.dumps(text)) - 2


def _cut(text: str, limit: int) -> str:
    """Shorten text so that its JSON has at most `limit` bytes: its middle goes, and how much is said."""
    if len(text) <= limit and _size(text) <= limit:
        return text

    def keep(count: int) -> str:
        head = count // 2
        tail = count - head
        return f"{text[:head]} ... {len(text) - count} characters cut ... {text[len(text) - tail :]}"

    low, high = 0, min(limit, len(text) - 1)
    while low < high:  # a character takes 1 to 6 bytes
        middle = (low + high + 1) // 2
        if _size(keep(middle)) <= limit:
            low = middle
        else:
            high = middle - 1
    return keep(low)
