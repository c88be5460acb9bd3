"""What a worker hears: signals, and how they add up; under a supervisor also that it is gone."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})
HURRY: Final = signal.SIGQUIT
"""Tells a supervised worker to skip its grace."""


@final
class Orders:
    """What a supervised worker has from its supervisor: two ends of pipes, a place and a name, by `--supervised`."""

    def __init__(self, life: int, checked: int, place: int, name: str) -> None:
        """Take them over.

        Args:
            life: Ends when the supervisor is gone.
            checked: Is written to when the app has been looked at.
            place: Which of the workers it is, from 0.
            name: What it is called.
        """
        self._checked = checked
        self.place = place
        self.name = name
        for each in (life, checked):
            os.set_inheritable(each, False)
        # Until the event loop listens there is nothing to end in order; and Ctrl-C is no error.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

        def follow() -> None:
            os.read(life, 1)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=follow, name="echomq-orders", daemon=True).start()

    @classmethod
    def read(cls, text: str) -> Orders:
        """Make them of what stands in the command line."""
        life, checked, place, name = text.split(",", 3)
        return cls(int(life), int(checked), int(place), name)

    def tell_checked(self) -> None:
        """Tell that the app is there and in order."""
        with suppress(OSError):  # nobody waits for it any more
            os.write(self._checked, b".")
        os.close(self._checked)


def urgency(numbers: Sequence[int], *, supervised: bool) -> int:
    """Tell what the signals so far mean together: 0: nothing, 1: stop, 2 or more: skip the grace."""
    if supervised:
        return 2 if HURRY in numbers else min(1, len(numbers))
    return len(numbers)
