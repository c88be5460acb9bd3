"""A handler's failure as text of bounded size."""

from __future__ import annotations

from typing import final

import attrs
import orjson


@final
@attrs.frozen
class ErrorRecord:
    """What the row remembers of the latest failure."""

    type: str = ""
    """The exception's qualified type, such as `builtins.KeyError`."""
    message: str = ""
    """Its text."""
    traceback: str = ""
    """Its traceback."""

    def to_bytes(self) -> bytes:
        """Write it as JSON."""
        return orjson.dumps({"type": self.type, "message": self.message, "traceback": self.traceback})

    @classmethod
    def from_bytes(cls, data: bytes) -> ErrorRecord:
        """Read it."""
        return cls(**orjson.loads(data))

    @classmethod
    def from_exception(cls, error: BaseException) -> ErrorRecord:
        """Describe an exception."""
        return cls(type(error).__qualname__, str(error), "")
