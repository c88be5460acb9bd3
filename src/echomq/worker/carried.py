"""An error on its way between a worker and its child: as itself, whatever its class makes of pickling.

Theory of operation
    Pickle makes an exception anew from `args`. Many a class takes something else than that: it can be pickled and not
    restored, or is restored as something else. So each error, and each one within a group, is carried in two ways. One
    is its pickle, if that was restored here, by way of trial, as the same. The other is its class, by name, with its
    arguments and attributes, each pickled by itself: there it is made without its `__init__`, and what could not be
    pickled or restored is left out. Where not even its class is found, a RuntimeError names it, and says so in a note.

If you change this
    Everything here belongs to somebody else: classes, their metaclasses, what they do when they are pickled, restored
    or shown. Nothing but Ctrl-C may come out. Groups may be nested deeper than Python's stack, and hold one error twice.
"""

from __future__ import annotations

import importlib
import types
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq.errors import DecodeError, EncodeError
from echomq.protocol.failures import ErrorRecord, leaves_of, members, name_of, text_of
from echomq.worker.frames import MAIN, dump, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BY_NAME: Final = "its type is known by name only, and is a RuntimeError here"
"""The note of an error whose class could not be carried."""

_ARGS: Final = BaseException.__dict__["args"]
_DICT: Final = BaseException.__dict__["__dict__"]
_MESSAGE: Final = BaseExceptionGroup.__dict__["message"]
_NOT_OURS: Final = (BaseException, BaseExceptionGroup)
"""Classes whose slots are carried otherwise, or not at all."""
_Parts = tuple[tuple[bytes, ...], tuple[tuple[str, bytes], ...], tuple[tuple[str, bytes], ...]]
"""Its arguments, attributes and slots."""
_HEAP: Final = 1 << 9
"""Of a class's `__flags__`: it was made while the program ran. Others make their own instances."""


@final
@attrs.frozen
class _Carried:
    """One error, a group's members apart."""

    type: str
    """Its class's name, for people."""
    text: str
    place: tuple[str, str] | None
    """Where its class is found: module and qualified name."""
    pickle: bytes | None
    """It itself, if that can be restored; never of a group."""
    args: tuple[bytes, ...]
    attributes: tuple[tuple[str, bytes], ...]
    slots: tuple[tuple[str, bytes], ...]
    """What is kept outside its `__dict__`: an OSError's `errno`, what a class has as `__slots__`."""
    members: tuple[int, ...] | None
    """Of a group, where in the list its members stand; they come before it."""


def dump_error(error: BaseException) -> tuple[bytes | None, ErrorRecord]:
    """Pickle an error, None if it cannot be, and describe it with its traceback: that is never pickled."""
    record = ErrorRecord.from_exception(error)
    here = ErrorRecord(*(text.replace(MAIN, "__main__") for text in (record.type, record.message, record.traceback)))
    try:
        data = dump("the error", _carry(error))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - what its class does
        data = None
    return data, here


def load_error(data: bytes | None, record: ErrorRecord) -> BaseException:
    """Restore an error.

    One that cannot be, or that would mean something else in a worker (a cancellation, Ctrl-C), is a RuntimeError that
    names it. See `is_by_name`.
    """
    error: BaseException | None = None
    if data is not None:
        with suppress(Exception):
            error = _restore(load("the error", data))
    # By what the record says, which is of the only error in groups of one.
    return _named(record.type, record.message) if error is None else error


def is_by_name(error: BaseException) -> bool:
    """Tell whether an error, or one within a group, has lost its class on its way."""
    return any(type(leaf) is RuntimeError and BY_NAME in _notes_of(leaf) for leaf in leaves_of(error))


def _notes_of(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", None)
    return [note for note in notes if type(note) is str] if type(notes) is list else []


def _named(type: str, text: str) -> RuntimeError:
    error = RuntimeError(f"{type}: {text}")
    error.add_note(BY_NAME)
    return error


# --- there -----------------------------------------------------------------------------------------------------------


def _carry(error: BaseException) -> list[_Carried]:
    """Take it apart: the members of groups first, each error once."""
    carried: list[_Carried] = []
    at: dict[int, int] = {}
    stack = [error]
    while stack:
        each = stack[-1]
        missing = [member for member in members(each) if id(member) not in at]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if id(each) not in at:
            at[id(each)] = len(carried)
            carried.append(_carry_one(each, at))
    return carried


def _carry_one(error: BaseException, at: dict[int, int]) -> _Carried:
    cls = type(error)
    inside = members(error)
    parts = _parts_of(error)
    return _Carried(
        name_of(cls).replace(MAIN, "__main__"),
        text_of(error),
        _place_of(cls),
        None if inside else _pickle_of(error, parts),
        *parts,
        tuple(at[id(each)] for each in inside) if inside else None,
    )


def _parts_of(error: BaseException) -> _Parts:
    args = (_MESSAGE.__get__(error),) if members(error) else _ARGS.__get__(error)
    return (
        tuple(_dump_or_text(each) for each in args),
        tuple(_dump_each(_DICT.__get__(error).items())),
        tuple(_dump_each(_slots_of(error))),
    )


def _place_of(cls: type) -> tuple[str, str] | None:
    try:
        module, name = str.__str__(cls.__module__), str.__str__(cls.__qualname__)
        return (module, name) if _find(module, name) is cls else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a metaclass, or a module that changes when it is looked at
        return None


def _pickle_of(error: BaseException, parts: _Parts) -> bytes | None:
    """Pickle it, if what is restored from that is the same: should this be wrong, the parts say as much."""
    try:
        data = dump("the error", error)
        again = load("the error", data)
    except (EncodeError, DecodeError):
        return None
    return data if type(again) is type(error) and _parts_of(again) == parts else None


def _slots_of(error: BaseException) -> Iterator[tuple[str, Any]]:
    for cls in type(error).__mro__:
        if cls in _NOT_OURS:
            continue
        for name, slot in vars(cls).items():
            if isinstance(slot, types.MemberDescriptorType):
                with suppress(AttributeError):  # it is empty
                    value = slot.__get__(error)
                    if value is not None or cls.__flags__ & _HEAP:  # of a built-in class it is empty, too
                        yield name, value


def _dump_each(values: Any) -> Iterator[tuple[str, bytes]]:
    for name, value in values:
        with suppress(EncodeError):
            if type(name) is str:
                yield name, dump("an attribute", value)


def _dump_or_text(value: Any) -> bytes:
    try:
        return dump("an argument", value)
    except EncodeError:
        return dump("an argument", text_of(value))  # the others keep their places


# --- here ------------------------------------------------------------------------------------------------------------


def _restore(carried: Sequence[_Carried]) -> BaseException | None:
    restored: list[BaseException] = []
    error = None
    for each in carried:
        error = _restore_one(each, restored)
        restored.append(_named(each.type, each.text) if error is None else error)
    return error


def _restore_one(carried: _Carried, restored: Sequence[BaseException]) -> BaseException | None:
    error: Any = None
    if carried.pickle is not None:
        with suppress(DecodeError):
            error = load("the error", carried.pickle)
    if error is None or name_of(type(error)).replace(MAIN, "__main__") != carried.type:
        try:
            error = _make(carried, restored)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a module that is imported, a metaclass
            return None
    return error if issubclass(type(error), Exception) else None


def _make(carried: _Carried, restored: Sequence[BaseException]) -> BaseException | None:
    """Make it without the help of its class."""
    cls = None if carried.place is None else _find(*carried.place)
    if cls is None or not issubclass(cls, BaseException):
        return None
    maker = cls
    while maker.__flags__ & _HEAP:
        maker = maker.__base__
    args = tuple(value for data in carried.args for _, value in _load_each([("", data)], "its text is lost"))
    error: BaseException
    if carried.members is None:
        error = maker.__new__(cls)
        _ARGS.__set__(error, args)
    else:
        error = maker.__new__(cls, *args, [restored[at] for at in carried.members])
    _DICT.__get__(error).update(_load_each(carried.attributes))
    values = dict(_load_each(carried.slots))
    for owner in cls.__mro__:
        for name, slot in vars(owner).items():
            if owner not in _NOT_OURS and name in values and isinstance(slot, types.MemberDescriptorType):
                with suppress(AttributeError, TypeError):  # it cannot be set
                    slot.__set__(error, values[name])
    return error


def _load_each(values: Sequence[tuple[str, bytes]], lost: Any = None) -> Iterator[tuple[str, Any]]:
    for name, data in values:
        try:
            yield name, load("an attribute", data)
        except DecodeError:
            if lost is not None:
                yield name, lost


def _find(module: str, name: str) -> Any:
    """Find a class, None if something else is there."""
    found: Any = importlib.import_module("__main__" if module == MAIN else module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None
