"""Names whose values are not to be seen: `App(redact=("password", "token"))`.

What a job carries is never logged as such. It can get into a log by the text of an error that shows it, and by what a
handler logs; both look here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import attrs

HIDDEN: Final = "[redacted]"
"""What stands in the place of a value."""
UNSAID: Final = "no values are shown, since there are redacted ones among them"
"""What an error says instead of them."""
_MOST: Final = 10_000
"""Values that are looked through at once; what has more of them is taken to have the names."""
_DEEP: Final = 10
"""Levels down to which only what must be is hidden of a value; what stands deeper is, as a whole."""
_LEAVES: Final = (str, bytes, int, float, bool, type(None))


@final
@attrs.frozen
class Redaction:
    """Hides the values of some names: of arguments, of keys in mappings, of fields in classes. Case does not matter."""

    names: frozenset[str] = frozenset()
    """The names, in lower case."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Redaction:
        """Make it of names as they are written.

        Raises:
            TypeError: They are not several names.
        """
        if isinstance(names, str):
            raise TypeError(f"redact is several names, such as redact=({names!r},), not {names!r}")
        found: tuple[Any, ...] = tuple(names)
        for name in found:
            if not isinstance(name, str) or not name:
                raise TypeError(f"redact: a name is text, not {name!r}")
        return cls(frozenset(name.lower() for name in found))

    def __bool__(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self.names)

    def covers(self, name: object) -> bool:
        """Tell whether the values of a name are hidden."""
        return isinstance(name, str) and name.lower() in self.names

    def finds(self, value: object) -> bool:
        """Tell whether a value has one of the names in it, at any depth; also if it is too large to be looked through."""
        if not self.names:
            return False
        stack, left = [value], _MOST
        while stack:
            each = stack.pop()
            left -= 1
            if left < 0:
                return True
            if isinstance(each, _LEAVES):
                continue
            fields = _fields_of(each)
            if fields is None:
                if isinstance(each, (list, tuple, set, frozenset)):
                    stack.extend(each)
            elif any(map(self.covers, fields)):
                return True
            else:
                stack.extend(fields.values())
        return False

    def hide(self, value: Any) -> Any:
        """Answer a value for a log: the same, but for what is hidden. An object with such a field is hidden as a whole."""
        return self._hide(value, _DEEP)

    def _hide(self, value: Any, deep: int) -> Any:
        if not self.finds(value):
            return value
        if deep > 0 and isinstance(value, Mapping):
            return {key: HIDDEN if self.covers(key) else self._hide(each, deep - 1) for key, each in value.items()}
        if deep > 0 and type(value) in {list, tuple}:
            return type(value)(self._hide(each, deep - 1) for each in value)
        return HIDDEN


NOTHING_HIDDEN: Final = Redaction()
"""What an app has that was not given any names."""


def _fields_of(value: object) -> Mapping[Any, Any] | None:
    """Answer the values of a mapping, or of an object of a class with declared fields, by their names."""
    if isinstance(value, Mapping):
        return value
    cls = type(value)
    if attrs.has(cls):
        names: Iterable[str] = (field.name for field in attrs.fields(cls))
    elif dataclasses.is_dataclass(cls):
        names = (field.name for field in dataclasses.fields(cls))
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = cls._fields
    else:
        return None
    return {name: getattr(value, name, None) for name in names}
