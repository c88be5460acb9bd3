"""The instruments of an app or worker as one, from which no error comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, final

from echomq._logs import get_logger
from echomq.instruments.measurements import Instrument, Measurement
from echomq.protocol._convert import shown

_log = get_logger("echomq.instruments")


@final
class Instruments:
    """Some instruments. Falsy when there are none: then nothing is to be measured, and no value to be made."""

    __slots__ = ("_each", "_failed")

    def __init__(self, instruments: Iterable[Instrument] = ()) -> None:
        """Take the instruments.

        Raises:
            TypeError: It is not several; or one has no `record`.
        """
        if not isinstance(instruments, Iterable):
            raise TypeError(f"instruments are several, such as [StructlogInstrument()], not {shown(instruments)}")
        self._each = tuple(instruments)
        self._failed: set[int] = set()
        for each in self._each:
            if isinstance(each, type) or not callable(getattr(each, "record", None)):
                raise TypeError(f"an instrument has a method record(measurement), and this has none: {shown(each)}")

    def __bool__(self) -> bool:
        return bool(self._each)

    def __len__(self) -> int:
        return len(self._each)

    def __iter__(self) -> Iterator[Instrument]:
        """Go over them."""
        return iter(self._each)

    def record(self, measurement: Measurement) -> None:
        """Hand a measurement to each."""
        for at, each in enumerate(self._each):
            try:
                each.record(measurement)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - it may be the user's, and we are in the middle of something
                self._tell(at)

    def expose(self) -> bytes | None:
        """Answer the Prometheus text of the first that has one; None when none has, or it fails."""
        for at, each in enumerate(self._each):
            expose: Callable[[], bytes] | None = getattr(each, "expose", None)
            if expose is not None:
                try:
                    return bytes(expose())
                except KeyboardInterrupt:
                    raise
                except BaseException:  # noqa: BLE001 - as above
                    self._tell(at)
        return None

    def hooks(self, name: str) -> list[Callable[..., Any]]:
        """Answer the methods `around_enqueue` or `around_handling` of those that have them."""
        return [hook for each in self._each if (hook := getattr(each, name, None)) is not None]

    def _tell(self, at: int) -> None:
        if at not in self._failed:
            self._failed.add(at)
            _log.exception(
                "instrument_failed", instrument=shown(self._each[at]), hint="not told again, and called as before"
            )


NO_INSTRUMENTS: Final = Instruments()
"""Nothing is measured."""
