"""``tubal completion``: print the completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that lets SHELL complete commands, options and file names of tubal.

    Write it where your shell reads its start-up scripts, then open a new terminal.

    \b
    Examples:
      tubal completion bash >> ~/.bashrc
      tubal completion zsh >> ~/.zshrc
      tubal completion fish > ~/.config/fish/completions/tubal.fish
    """
    from tubal.cli import group

    completer = get_completion_class(shell)
    if completer is None:
        raise ValueError(f"there is no completion for {shell!r}; choose bash, zsh or fish")
    # The plain template, because source() would run the shell to ask for its version.
    click.echo(completer.source_template % completer(group, {}, "tubal", "_TUBAL_COMPLETE").source_vars())
