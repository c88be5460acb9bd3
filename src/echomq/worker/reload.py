"""`--reload`: which files of the program have changed. Needs watchfiles, the extra `reload`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, final

from watchfiles import PythonFilter, awatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import anyio


@final
class Changes:
    """Watches directories for Python files that change; caches, version control and environments apart."""

    def __init__(self, directories: Sequence[Path]) -> None:
        """Prepare; nothing is watched before it is called."""
        self._directories = [each.resolve() for each in directories]

    async def __call__(self, stop: anyio.Event) -> AsyncIterator[Sequence[str]]:
        """Answer what has changed, together what changes together, until it is to stop."""
        async for found in awatch(*self._directories, watch_filter=PythonFilter(), stop_event=stop):
            yield sorted({self._short(path) for _, path in found})

    @staticmethod
    def _short(path: str) -> str:
        here = Path.cwd()
        return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
