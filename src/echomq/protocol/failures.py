"""A handler's failure as text of bounded size, whatever the exception does when it is looked at."""

from __future__ import annotations

import functools
import os
import re
import traceback as tb
from pathlib import Path
from typing import Final, final

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
_MAX_RELATED: Final = 200
"""Exceptions in a group, and causes before them, up to which Python's own traceback is made: that of a group nested
thousands deep, or wide, recurses or takes seconds, and there is room for a few lines of it."""
_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_EXAMPLES: Final = _OURS + "demo"
_LOOPS: Final = re.compile(r"[/\\](?:(?:site|dist)-packages[/\\](?:anyio|trio|outcome)|python\d\.\d+[/\\]asyncio)[/\\]")
_MEMBERS: Final = BaseExceptionGroup.__dict__["exceptions"]


def members(error: BaseException) -> tuple[BaseException, ...]:
    """Answer what a group holds, nothing for other exceptions; whatever its class says about itself."""
    return _MEMBERS.__get__(error) if issubclass(type(error), BaseExceptionGroup) else ()


def holds(error: BaseException, kinds: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Tell whether an exception is of a kind, or is a group that holds one at any depth."""
    stack, seen = [error], set()
    while stack:  # no recursion: a handler may nest groups deeper than Python's stack
        each = stack.pop()
        if issubclass(type(each), kinds):
            return True
        if id(each) not in seen:
            seen.add(id(each))
            stack.extend(members(each))
    return False


def unfold(error: BaseException) -> BaseException:
    """Unwrap groups of one: what was raised inside a nursery is still what was raised."""
    while len(inside := members(error)) == 1:
        error = inside[0]
    return error


@final
@attrs.frozen
class ErrorRecord:
    """What the row remembers of the latest failure: at most 4 KiB as JSON, with what was cut said in place."""

    type: str = ""
    """The exception's type: its module (but for builtins), a dot and its qualified name."""
    message: str = ""
    """Its text; of a group, its text and then each of its exceptions' type and text."""
    traceback: str = ""
    """Its traceback as Python prints it, causes and group members included; without the frames of the worker and the
    event loop, unless there are no others."""

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
        """Describe any exception. Raises nothing but Ctrl-C, whatever its `__str__` and the like do.

        A group that holds one exception is described as that one; the traceback still shows the group.
        """
        leaf = unfold(error)
        record = cls(name_of(type(leaf)), _message_of(leaf), _traceback_of(error, leaf))
        return cls.from_bytes(record.to_bytes())  # within its limit, and text that JSON can hold


def name_of(cls: type) -> str:
    """Name a class as it is read in a traceback, whatever its metaclass does."""
    try:
        module, name = str(cls.__module__), str.__str__(cls.__qualname__)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a metaclass of the user's
        module, name = "builtins", str.__str__(type.__dict__["__name__"].__get__(cls))
    return name if module == "builtins" else f"{module}.{name}"


def text_of(value: object) -> str:
    """Show any object as text, an exact str; what its `__str__` raises, SystemExit and the like too, is told instead."""
    try:
        return str.__str__(str(value))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 - the object matters, not what its __str__ does
        return f"<its text is lost: __str__ raised {name_of(type(failure))}>"


def _message_of(error: BaseException) -> str:
    if not members(error):
        return text_of(error)
    leaves = leaves_of(error)
    parts = [f"{name_of(type(leaf))}: {text_of(leaf)}" for leaf in leaves[:_MAX_LEAVES]]
    if len(leaves) > _MAX_LEAVES:
        parts.append(f"and {len(leaves) - _MAX_LEAVES} more")
    return "; ".join([text_of(error), *parts])


def leaves_of(error: BaseException) -> list[BaseException]:
    """Answer what a group holds at any depth, groups apart, in its order; of another exception, itself."""
    leaves: list[BaseException] = []
    stack, seen = [error], set()
    while stack:
        each = stack.pop()
        inside = members(each)
        if not inside:
            leaves.append(each)
        elif id(each) not in seen:  # a group within itself by two ways each time doubles the ways
            seen.add(id(each))
            stack.extend(reversed(inside))
    return leaves


def _is_showable(error: BaseException) -> bool:
    """Tell whether Python's own traceback of it, with all causes and members, is bounded."""
    stack, causes, left = [error], {id(error)}, _MAX_RELATED
    while stack:
        each = stack.pop()
        inside = members(each)
        left -= 1
        if left < 0 or (inside and getattr(type(each), "exceptions", None) is not _MEMBERS):
            return False
        stack.extend(inside)
        for before in (each.__cause__, each.__context__):
            if before is not None and id(before) not in causes:
                causes.add(id(before))
                stack.append(before)
    return True


@functools.cache
def _is_machinery(file: str) -> bool:
    """Tell whether a file is ours, or of the libraries that tasks run in; a frame of those says nothing of the failure."""
    return _LOOPS.search(file) is not None or (file.startswith(_OURS) and not file.startswith(_EXAMPLES))


def _drop_machinery(shown: tb.TracebackException) -> None:
    """Leave the frames of the program, and its libraries, where there are any: 4 KiB are soon full."""
    stack: list[tb.TracebackException | None] = [shown]
    while stack:
        each = stack.pop()
        if each is None:
            continue
        kept = [frame for frame in each.stack if not _is_machinery(frame.filename)]
        if kept:
            each.stack[:] = kept
        stack += [each.__cause__, each.__context__, *(each.exceptions or ())]


def _traceback_of(error: BaseException, leaf: BaseException) -> str:
    try:
        if _is_showable(error):
            shown = tb.TracebackException.from_exception(error, compact=True)
            _drop_machinery(shown)
            text = "".join(shown.format())
        else:
            frames = "".join(tb.format_tb(error.__traceback__))
            text = f"{frames}{name_of(type(error))} (its causes and members are too many to be shown)\n"
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 - as above
        return f"<its traceback is lost: {name_of(type(failure))} while it was formatted>"
    message = text_of(leaf)
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
