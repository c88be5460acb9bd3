"""How arguments, results and checkpoints become bytes: JSON over cattrs unless a client is given another codec.

Theory of operation
    What is written must be read back as it was, or be refused by whoever wrote it, while somebody is there to see it.
    So encoding refuses what JSON would lose in silence (`nan`, keys that fall together), and decoding to a declared
    type is strict: `"5"` is no int and `"abc"` no list of text, where cattrs alone would convert. Whatever is refused
    is named by its path.

    Plain JSON values go straight to orjson; only what it does not know takes the way through cattrs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import orjson
from cattrs.errors import BaseValidationError

from echomq.errors import DecodeError, EncodeError
from echomq.protocol._convert import make_converter, shown, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cattrs import Converter

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 64) - 1


class Codec(Protocol):
    """Turns values into bytes and back. Implementations are called from any thread and keep no state between calls."""

    def encode(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            EncodeError: It cannot be written without losing something.
        """

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """Read a value of a declared type; `Any` takes what comes.

        Raises:
            DecodeError: The bytes are not of this codec, or not of that type; the error's path says where.
        """


@final
class JsonCodec:
    """JSON: attrs classes, dataclasses, typed dicts, enums, dates, paths, UUIDs, decimals, sets, bytes and the like.

    Written as text: `Path`, `UUID`, `Decimal`, dates and times (ISO 8601), `bytes` (base64). As a number: `timedelta`
    (seconds). As a list: tuples and sets. As an object: mappings, whose keys are text, numbers, enums, dates, paths or
    UUIDs. Integers lie in -2^63..2^64-1. Read with a declared type they come back as they were; without one they stay
    text, numbers, lists and objects.
    """

    __slots__ = ("_customised", "converter")

    def __init__(self, configure: Callable[[Converter], None] | None = None) -> None:
        """Prepare a codec.

        Args:
            configure: Is handed the converter once, to register hooks of its own. Every value then takes the way
                through cattrs, which costs a few microseconds each.
        """
        self.converter: Final = make_converter()
        self._customised = configure is not None
        if configure is not None:
            configure(self.converter)

    def encode(self, value: Any) -> bytes:
        """Write a value as JSON.

        Raises:
            EncodeError: A value of a type that is not known, `nan` or an infinity (which would become null), an integer
                beyond 64 bits, text with lone surrogates, keys that fall together, or nesting beyond about 250.
        """
        if not self._customised:
            try:
                data = orjson.dumps(value, option=_OPTIONS)
            except TypeError:
                pass  # something that only the converter knows, or nobody
            else:
                _refuse_nan(value, data)
                return data
        plain = self._unstructure(value)
        try:
            data = orjson.dumps(plain)
        except TypeError as error:
            raise _blame(plain) or EncodeError(str(error)) from None
        _refuse_nan(plain, data)
        return data

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """Read JSON as a value of a declared type.

        Raises:
            DecodeError: Not JSON, or not of that type; the path says where.
        """
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise DecodeError(f"expected JSON, got {shown(bytes(data))} ({error})") from None
        return self.structure(value, type)

    def structure(self, value: Any, type: Any, path: str = "") -> Any:
        """Make decoded JSON a value of a declared type.

        Args:
            value: What `decode` without a type answered, or a part of it.
            type: Any annotation that cattrs understands.
            path: Where the value stands, such as `args[0]`, for the error.

        Raises:
            DecodeError: It is not of that type; the path says where.
        """
        if type is Any or type is object:
            return value
        if type is None:
            type = None.__class__
        try:
            return self.converter.structure(value, type)
        except Exception as error:
            raise _explain(error, value, type, path) from error

    def _unstructure(self, value: Any) -> Any:
        try:
            return self.converter.unstructure(value)
        except EncodeError:
            raise
        except RecursionError:
            raise EncodeError("nested too deeply, or within itself") from None
        except Exception as error:
            raise EncodeError(f"{type_name(type(value))}: {shown(error)}") from error


def _refuse_nan(value: Any, data: bytes) -> None:
    """Refuse a value whose `nan` orjson wrote as null; the walk is only made when a null was written."""
    if b"null" in data and _has_nan(value) and (error := _blame(value)) is not None:
        raise error


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_nan, value))


def _blame(value: Any) -> EncodeError | None:
    """Find the first leaf that JSON cannot hold, in a value that has no cycles."""
    stack = [("", value)]
    while stack:
        path, value = stack.pop()
        message = _complaint(value)
        if message:
            return EncodeError(message, path)
        if isinstance(value, dict):
            for key in value:
                if isinstance(key, str) and not _is_text(key):
                    return EncodeError(f"the key {key!r} has lone surrogates", path)
        stack.extend(reversed(list(_children(path, value))))
    return None


def _children(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield join_path(path, key), each
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield f"{path}[{index}]", each


def join_path(path: str, key: object) -> str:
    """Extend a path by an object's key: `a.b`, or `a['not a name']`."""
    if not isinstance(key, str) or not key.isidentifier():
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def _complaint(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{value!r} is not JSON, and null would not be the same"
    if isinstance(value, int):
        return "" if _MIN_INT <= value <= _MAX_INT else "the integer does not fit in 64 bits"
    if isinstance(value, str):
        return "" if _is_text(value) else f"{shown(value)} has lone surrogates, which are not text"
    if value is None or isinstance(value, (dict, list, tuple)):
        return ""
    try:
        orjson.dumps(value)
    except TypeError:
        return f"cannot encode {shown(value)} of type {type_name(type(value))}"
    return ""


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain(error: Exception, value: Any, type: Any, path: str) -> DecodeError:
    """Follow cattrs' notes to the first value at fault, walking down the value alongside."""
    while isinstance(error, BaseValidationError):
        noted, plain = error.group_exceptions()  # type: ignore[attr-defined]  # both subclasses have it
        if not noted:
            error = plain[0]
            continue
        inner, note = noted[0]
        key = getattr(note, "name", None)
        if key is not None:  # a field of a class
            if not isinstance(value, dict):
                break
            path = join_path(path, key)
            if key not in value:
                if isinstance(inner, KeyError):
                    return DecodeError("required, and missing", path)
                error = inner
                break
            value = value[key]
        else:
            key = note.index
            if "mapping key" in note:  # the key itself does not fit
                return DecodeError(f"expected {type_name(note.type)} as key, got {shown(key)}", path)
            path = join_path(path, key) if isinstance(value, dict) else f"{path}[{key!r}]"
            try:
                value = value[key]
            except (LookupError, TypeError):
                error, type = inner, note.type
                break
        error, type = inner, note.type
    message = f"expected {type_name(type)}, got {shown(value)}"
    if not isinstance(error, (BaseValidationError, TypeError)) and str(error):
        message += f" ({shown(error)})"
    return DecodeError(message, path)
