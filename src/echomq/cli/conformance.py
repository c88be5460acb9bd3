"""`echomq conformance URL`, also as `python -m echomq.conformance URL`: whether a server keeps the protocol.

Each scenario has a queue of its own under a random prefix; no other key is touched, and none is left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from echomq.cli.frame import INTERRUPTED, REFUSED, UNREACHED, CommandError, json_option
from echomq.cli.output import Output

if TYPE_CHECKING:
    from echomq.conformance.scenarios.registry import Outcome


@click.command("conformance")
@click.argument("url", required=False)
@click.option("--only", metavar="TEXT", default="", help="Only scenarios whose name contains this.")
@click.option(
    "--prefix", default="emq-proof", show_default=True, help="What the keys begin with; a random part follows."
)
@click.option("--embedded", is_flag=True, help="Start a private server and use that.")
@json_option
def conformance(url: str | None, only: str, prefix: str, *, embedded: bool, as_json: bool) -> None:
    """Show that the server at URL (valkey://host:port) keeps the protocol.

    The URL must be said, whatever the environment says: a hundred scenarios are work for a server.
    """
    # Not for the other commands: the scenarios and their driver take an eighth of a second to import.
    from echomq.conformance import scenarios  # noqa: PLC0415
    from echomq.conformance.target import NoTargetError, open_target  # noqa: PLC0415

    if (url is None) != embedded:
        raise click.UsageError("say either a URL or --embedded")
    chosen = [it for it in scenarios.SCENARIOS if only.lower() in it.name.lower()]
    if not chosen:
        raise click.UsageError(f"no scenario's name contains {only!r}")
    out = Output(as_json=as_json)
    seen: list[Outcome] = []
    try:
        with open_target(url) as (server, name):
            out.say(f"{len(chosen)} scenarios against {name}")
            for it in chosen:
                seen.append(scenarios.run(it, server, prefix=prefix))
                _tell(out, seen[-1])
    except NoTargetError as error:
        raise CommandError(f"cannot use a server: {error}", UNREACHED) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise CommandError(f"interrupted after {len(seen)} of {len(chosen)} scenarios", INTERRUPTED) from None
    failed = sum(outcome.error is not None for outcome in seen)
    out.done(
        click.style(f"{len(seen) - failed} passed, {failed} failed", fg="red" if failed else "green", bold=True),
        server=name, passed=len(seen) - failed, failed=failed, scenarios=[_plain(outcome) for outcome in seen],
    )  # fmt: skip
    if failed:
        click.get_current_context().exit(REFUSED)


def _tell(out: Output, outcome: Outcome) -> None:
    it = outcome.scenario
    # click drops the colours where nobody would see them.
    word = click.style("FAIL", fg="red", bold=True) if outcome.error else click.style("pass", fg="green")
    mark = click.style(f" [{', '.join(f'pitfall {n}' for n in it.pitfalls)}]", dim=True) if it.pitfalls else ""
    seen = "" if outcome.error else click.style(f" ({outcome.checks} answers as expected)", dim=True)
    out.say("\n".join([f"{word}  {it.name}{mark}{seen}", *(f"      {line}" for line in _lines(outcome.error))]))


def _lines(error: Exception | None) -> list[str]:
    from echomq.conformance.bench import UnexpectedError  # noqa: PLC0415

    if error is None:
        return []
    if isinstance(error, UnexpectedError):
        return [f"{error.what}", f"expected: {error.expected}", f"seen:     {error.seen}"]
    return f"{type(error).__name__}: {error}".splitlines()


def _plain(outcome: Outcome) -> dict[str, Any]:
    it = outcome.scenario
    error = "\n".join(_lines(outcome.error)) or None
    return {"name": it.name, "pitfalls": it.pitfalls, "passed": outcome.error is None, "checks": outcome.checks, "error": error}  # fmt: skip
