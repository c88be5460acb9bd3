"""The converter under `JsonCodec`: cattrs' for orjson, made strict where it would convert in silence."""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, MutableSequence, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from cattrs import Converter
from cattrs.cols import (
    is_any_set,
    is_frozenset,
    is_mapping,
    is_namedtuple,
    is_sequence,
    is_set,
    list_structure_factory,
    mapping_structure_factory,
)
from cattrs.preconf.orjson import OrjsonConverter
from cattrs.preconf.orjson import make_converter as make_orjson_converter

from echomq.errors import EncodeError

Hook = Callable[[Any, Any], Any]

_SHOWN: Final = 80
_INTEGER: Final = re.compile(r"-?[0-9]{1,40}")
_TEXT_TYPES: Final[dict[type, Callable[[str], Any]]] = {
    dt.datetime: dt.datetime.fromisoformat,
    dt.date: dt.date.fromisoformat,
    dt.time: dt.time.fromisoformat,
    UUID: UUID,
}


def shown(value: object) -> str:
    """Show a value in an error: its repr (a raised error's text), cut to 80 characters, whatever it does."""
    try:
        text = str(value) if isinstance(value, BaseException) else repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a repr that fails must not hide the error it was wanted for
        return f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def sized(data: object) -> str:
    """Show bytes by their number: the repr of what holds a payload gets into logs."""
    return f"<{len(data)} bytes>" if isinstance(data, bytes) else f"<{type(data).__name__}>"


def type_name(type: Any) -> str:
    """Name a type as its author wrote it."""
    if type is None.__class__:
        return "None"
    if isinstance(type, _TYPE) and not get_args(type):
        return str(type.__qualname__)
    return str(type).replace("typing.", "")


_TYPE: Final = type


def make_converter() -> OrjsonConverter:
    """Make a converter of its own for a codec."""
    converter = make_orjson_converter()
    _add_leaves(converter)
    _add_containers(converter)
    return converter


def _add_leaves(converter: OrjsonConverter) -> None:
    structure, unstructure = converter.register_structure_hook, converter.register_unstructure_hook
    structure(str, _strict(str))
    structure(int, _strict(int))
    structure(bool, _strict(bool))
    structure(float, _to_float)
    structure(None.__class__, _to_none)
    structure(bytes, lambda value, _: base64.b64decode(_text(value), validate=True))
    unstructure(bytes, lambda value: base64.b64encode(value).decode())
    structure(bytearray, lambda value, _: bytearray(base64.b64decode(_text(value), validate=True)))
    unstructure(bytearray, lambda value: base64.b64encode(value).decode())
    for cls, read in _TEXT_TYPES.items():
        structure(cls, _from_text(read))
        unstructure(cls, lambda value: value)  # orjson writes them
    for path in (PurePath, Path):
        structure(path, lambda value, cls: cls(_text(value)))
    unstructure(PurePath, str)
    structure(Decimal, _to_decimal)
    unstructure(Decimal, str)
    structure(dt.timedelta, lambda value, _: dt.timedelta(seconds=_to_float(value, float)))
    unstructure(dt.timedelta, dt.timedelta.total_seconds)


def _add_containers(converter: OrjsonConverter) -> None:
    @converter.register_structure_hook_factory(
        lambda cls: (is_sequence(cls) or is_any_set(cls)) and not is_namedtuple(cls)
    )
    def _collection(cls: Any, converter: Converter) -> Hook:
        args = get_args(cls)
        element = Any if not args or isinstance(args[0], TypeVar) else args[0]
        read = list_structure_factory(list[element], converter)  # type: ignore[valid-type]
        build = _builder(cls)
        return lambda value, _: build(read(_list(value), list))

    @converter.register_structure_hook_factory(_is_hetero_tuple)
    def _tuple(cls: Any, converter: Converter) -> Hook:
        read = converter.gen_structure_hetero_tuple(cls)
        return lambda value, cls: read(_list(value), cls)

    @converter.register_structure_hook_factory(is_namedtuple)
    def _named_tuple(cls: Any, converter: Converter) -> Hook:
        hints = get_type_hints(cls, include_extras=True)  # cattrs leaves postponed annotations as text
        plain = tuple[tuple(hints.get(name, Any) for name in cls._fields)]  # type: ignore[misc, valid-type]
        read = converter.get_structure_hook(plain)
        return lambda value, _: cls(*read(_list(value), plain))

    @converter.register_structure_hook_factory(_has_odd_keys)
    def _mapping(cls: Any, converter: Converter) -> Hook:
        # A type of its own, so that the hook below is for keys only; its name is seen in errors.
        key_type = type(get_args(cls)[0].__name__, (), {"__qualname__": type_name(get_args(cls)[0])})
        read_key = _key_reader(get_args(cls)[0], converter)
        converter.register_structure_hook(key_type, lambda value, _: read_key(value))
        return mapping_structure_factory(cls, converter, key_type=key_type)

    @converter.register_unstructure_hook_factory(is_mapping)
    def _object(cls: Any, converter: Converter) -> Callable[[Any], Any]:
        args = get_args(cls)
        known = len(args) == 2 and args[1] is not Any and not isinstance(args[1], TypeVar)  # noqa: PLR2004
        write = converter.get_unstructure_hook(args[1]) if known else converter.unstructure

        def unstructure(value: Any) -> dict[str, Any]:
            plain = {key if type(key) is str else _key(key): write(each) for key, each in value.items()}
            if len(plain) != len(value):
                raise EncodeError(f"two keys become the same text in {shown(value)}")
            return plain

        return unstructure


def _strict(cls: type) -> Hook:
    def read(value: Any, wanted: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"expected {cls.__name__}")
        return value if wanted is cls else wanted(value)  # an enum, or a subclass

    return read


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("expected text")
    return value


def _from_text(read: Callable[[str], Any]) -> Hook:
    return lambda value, _: read(_text(value))


def _list(value: Any) -> list[Any]:
    if type(value) is tuple:  # a default, or a value that never was JSON
        return list(value)
    if type(value) is not list:
        raise TypeError("expected a list")
    return value


def _to_float(value: Any, wanted: Any) -> Any:
    if type(value) is not float and type(value) is not int:
        raise TypeError("expected a number")
    return float(value) if wanted is float else wanted(value)


def _to_none(value: Any, _: Any) -> None:
    if value is not None:
        raise TypeError("expected null")


def _to_decimal(value: Any, _: Any) -> Decimal:
    if type(value) not in {str, int, float}:
        raise TypeError("expected text or a number")
    return Decimal(str(value))  # a float's shortest text, not its binary expansion


def _builder(cls: Any) -> Callable[[list[Any]], Any]:
    origin = get_origin(cls) or cls
    if is_frozenset(cls):
        return frozenset
    if is_set(cls):
        return set
    if isinstance(origin, type) and issubclass(origin, deque):
        return deque
    if origin in {list, MutableSequence}:
        return _same
    if origin in {tuple, Sequence}:
        return tuple
    return origin if isinstance(origin, type) else _same


def _same(value: list[Any]) -> list[Any]:
    return value


def _is_hetero_tuple(cls: Any) -> bool:
    args = get_args(cls)
    return get_origin(cls) is tuple and not (len(args) == 2 and args[1] is ...)  # noqa: PLR2004


def _has_odd_keys(cls: Any) -> bool:
    if not is_mapping(cls) or (get_origin(cls) or cls) in {Counter, defaultdict}:
        return False
    args = get_args(cls)
    return bool(args) and (args[0] in {int, float, bool} or (isinstance(args[0], type) and issubclass(args[0], Enum)))


def _key(key: Any) -> str:
    """Write a mapping's key as text that `_key_reader` reads back."""
    if isinstance(key, Enum):
        return _key(key.value)
    if isinstance(key, str):
        return str(key)
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int) or (isinstance(key, float) and math.isfinite(key)):
        return repr(key)
    if isinstance(key, (dt.date, dt.time)):
        return key.isoformat()
    if isinstance(key, (PurePath, UUID, Decimal)):
        return str(key)
    raise EncodeError(f"the key {shown(key)} of type {type_name(type(key))} cannot be text")


def _key_reader(cls: Any, converter: Converter) -> Callable[[str], Any]:
    if cls is bool:
        return {"true": True, "false": False}.__getitem__
    if cls is int:
        return _read_int
    if cls is float:
        return float
    if isinstance(cls, type) and issubclass(cls, Enum):
        return {_key(member): member for member in cls}.__getitem__
    hook = converter.get_structure_hook(cls)
    return lambda value: hook(value, cls)


def _read_int(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("expected an integer as key")
    return int(text)
