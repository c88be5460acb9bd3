"""`python -m echomq.conformance URL`: run the scenarios against a server, a line each.

The exit code is 0 if all pass, 1 if one fails, 2 if the server cannot be reached. Each scenario has a queue of its own
under a random prefix; no other key is touched, and none is left behind.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import cast

import click
import redis

from echomq.conformance.bench import UnexpectedError
from echomq.conformance.driver import connect
from echomq.conformance.scenarios import SCENARIOS, run
from echomq.embedded import EmbeddedServerError, open_server


def _report(error: Exception) -> None:
    if isinstance(error, UnexpectedError):
        lines = [f"{error.what}", f"expected: {error.expected}", f"seen:     {error.seen}"]
    else:
        lines = f"{type(error).__name__}: {error}".splitlines()
    for line in lines:
        click.echo(f"      {line}")


@click.command("conformance")
@click.argument("url", required=False)
@click.option("--only", metavar="TEXT", default="", help="Only scenarios whose name contains this.")
@click.option(
    "--prefix", default="emq-proof", show_default=True, help="What the keys begin with; a random part follows."
)
@click.option("--embedded", is_flag=True, help="Start a private server and use that.")
def main(url: str | None, only: str, prefix: str, *, embedded: bool) -> None:
    """Show that the server at URL (redis://host:port) keeps the protocol."""
    if (url is None) != embedded:
        raise click.UsageError("say either a URL or --embedded")
    chosen = [it for it in SCENARIOS if only.lower() in it.name.lower()]
    if not chosen:
        raise click.UsageError(f"no scenario's name contains {only!r}")
    with ExitStack() as stack:
        try:
            where = url if url is not None else stack.enter_context(open_server()).url
            server = stack.enter_context(connect(where))
            info = cast("dict[str, str]", server.info("server"))
        except (EmbeddedServerError, redis.RedisError, OSError, ValueError) as error:
            click.echo(f"cannot use a server: {error}", err=True)
            sys.exit(2)
        name = "Valkey" if "valkey_version" in info else "Redis"
        click.echo(f"{len(chosen)} scenarios against {name} {info.get('valkey_version', info['redis_version'])}")
        failed = 0
        for it in chosen:
            outcome = run(it, server, prefix=prefix)
            failed += outcome.error is not None
            # click drops the colours where nobody would see them.
            word = click.style("FAIL", fg="red", bold=True) if outcome.error else click.style("pass", fg="green")
            mark = click.style(f" [{', '.join(f'pitfall {n}' for n in it.pitfalls)}]", dim=True) if it.pitfalls else ""
            seen = "" if outcome.error else click.style(f" ({outcome.checks} answers as expected)", dim=True)
            click.echo(f"{word}  {it.name}{mark}{seen}")
            if outcome.error is not None:
                _report(outcome.error)
        click.echo(
            click.style(f"{len(chosen) - failed} passed, {failed} failed", fg="red" if failed else "green", bold=True)
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(prog_name="python -m echomq.conformance")
