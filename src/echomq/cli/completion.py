"""`echomq completion SHELL`: what a shell is told, so that it completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Write the completion of the command `echomq` for a SHELL.

    \b
    bash: eval "$(echomq completion bash)"         in ~/.bashrc
    zsh:  eval "$(echomq completion zsh)"          in ~/.zshrc, after compinit
    fish: echomq completion fish | source          in ~/.config/fish/config.fish
    """  # noqa: D301 - click knows by the control character what stands as it is typed
    root = click.get_current_context().find_root().command
    click.echo(SHELLS[shell](root, {}, "echomq", "_ECHOMQ_COMPLETE").source())
