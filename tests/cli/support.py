"""What the tests of commands share: a command run on the test's server, within this process."""

from __future__ import annotations

from typing import Any, final

import orjson
from click.testing import CliRunner, Result

from echomq.cli import main


@final
class Runner:
    """Runs commands on a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *words: str, stdin: bytes | None = None) -> Result:
        """Run a command, and let what it raises through that it should not."""
        result = CliRunner().invoke(main, [*words, "--url", self.url], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def said(self, *words: str, code: int = 0) -> str:
        """Run a command, hold its exit code, and answer what it said."""
        result = self(*words)
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, *words: str, code: int = 0) -> Any:
        """The same, as a program would."""
        return orjson.loads(self.said(*words, "--json", code=code))
