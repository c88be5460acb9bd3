"""Messages between a worker and its child processes: a length, then a pickle.

What is the user's (arguments, results; errors: see `carried`) is pickled by itself within a message, so that what cannot
be pickled or restored is one readable failure and breaks no stream.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq.errors import DecodeError, EncodeError
from echomq.protocol.failures import name_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from echomq.protocol.records import JobRecord

MAX_FRAME: Final = 8 << 30
"""Bytes: a longer one is no message, somebody else has written to the stream."""
SLACK: Final = 1 << 16
"""Bytes that a pickle may have beyond what its value may have when it is encoded, whatever that is."""
TIMES: Final = 8
"""How often as long as its value's encoding a pickle may be: it is rarely even twice as long."""
MAIN: Final = "__mp_main__"
"""What the worker's main module is called in a child, as `multiprocessing` has it: its `if __name__ == "__main__"` must
not run."""

_HEAD: Final = struct.Struct("!Q")


@final
@attrs.frozen
class JobFacts:
    """A job on its way to a child, which makes a `SyncJob` of it."""

    queue: str
    id: str
    token: int
    record: JobRecord


def pack(*message: Any) -> bytes:
    """Write a message of plain values."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(data)) + data


@final
class Unpacker:
    """Puts together what a stream brings in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Take a piece; answer the messages that are whole now.

        Raises:
            DecodeError: It is no message.
        """
        self._data += data
        while len(self._data) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(self._data)
            if size > MAX_FRAME:
                raise DecodeError(f"expected a message, got {bytes(self._data[:80])!r}")
            end = _HEAD.size + size
            if len(self._data) < end:
                return
            message = pickle.loads(bytes(self._data[_HEAD.size : end]))  # noqa: S301 - our own child's
            del self._data[:end]
            yield message


def read(descriptor: int) -> tuple[Any, ...] | None:
    """Read one message, blocking; None at the stream's end."""
    head = _read_exactly(descriptor, _HEAD.size)
    data = None if head is None else _read_exactly(descriptor, *_HEAD.unpack(head))
    if data is None:
        return None
    message: tuple[Any, ...] = pickle.loads(data)  # noqa: S301 - our own worker's
    return message


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = os.read(descriptor, min(size - len(data), 1 << 20))
        if not piece:
            return None
        data += piece
    return bytes(data)


def write(descriptor: int, data: bytes) -> None:
    """Write all of it, blocking."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _nothing() -> None: ...


@final
class _Unpickler(pickle.Unpickler):
    """Knows the main module by both of its names."""

    def __init__(self, data: bytes, need_main: Callable[[], None]) -> None:
        super().__init__(io.BytesIO(data))
        self._need_main = need_main

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name in {"__main__", MAIN}:
            self._need_main()
            module_name = "__main__"
        return super().find_class(module_name, global_name)


def dump(what: str, value: Any, limit: int | None = None) -> bytes:
    """Pickle something of the user's.

    Args:
        what: What it is, for the error.
        value: The value.
        limit: How many bytes it may have when it is encoded; the pickle's own limit is far above. None: any number.

    Raises:
        EncodeError: It cannot be pickled, or is larger than anything that could be kept.
    """
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a hook of the user's may raise anything
        msg = f"{what} cannot be pickled, and a process is given and gives nothing else: {_text(error)}"
        raise EncodeError(msg) from None
    if limit is not None and len(data) > TIMES * limit + SLACK:
        msg = f"{what} has {len(data)} bytes as a pickle, where the limit is {limit} when it is encoded"
        raise EncodeError(msg)
    return data


def load(what: str, data: bytes, need_main: Callable[[], None] = _nothing) -> Any:
    """Restore what `dump` has pickled.

    Args:
        what: What it is, for the error.
        data: The pickle.
        need_main: Called before something of the main module is looked up.

    Raises:
        DecodeError: It cannot be restored here.
    """
    try:
        return _Unpickler(data, need_main).load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        msg = f"{what} cannot be restored from its pickle: {_text(error)}"
        raise DecodeError(msg) from error


def _text(error: BaseException) -> str:
    return f"{name_of(type(error))}: {text_of(error)}"


def main_module() -> tuple[str | None, str | None]:
    """Answer the main module's file and package, for a child that needs it."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    return (os.path.abspath(file) if file else None), getattr(main, "__package__", None)  # noqa: PTH100 - as it stands
