"""Long fits leave a checkpoint beside their results, and ``--resume`` takes it up."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tubal.cli._talk import Talk
    from tubal.learning.checkpoints import Checkpoint

__all__ = ["checkpointed", "resume_option"]

# The most work a crash may cost. A fit that is over sooner writes one only when it is learnt.
EVERY_SECONDS = 60.0


def resume_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--resume``."""
    return click.option("--resume", is_flag=True, help="Go on where an interrupted run of the same fit stood.")(command)


@contextlib.contextmanager
def checkpointed(out: Path, resume: bool, talk: Talk) -> Iterator[Checkpoint]:
    """Yield the checkpoint of a run that writes to ``out``; it is removed when the block ends well.

    It lies beside ``out`` as ``<name>.checkpoint``, never inside: a folder of results holds results.
    """
    from tubal.learning.checkpoints import Checkpoint

    place = out.with_name(f"{out.name}.checkpoint")
    if resume and not place.exists():
        talk.say(f"there is no {place} to resume; beginning afresh")
    if not resume and place.exists():
        talk.say(f"beginning afresh; --resume would take up {place}")
    checkpoint = Checkpoint(place, every_seconds=EVERY_SECONDS, resume=resume)
    try:
        yield checkpoint
    except KeyboardInterrupt:
        if not place.exists():
            raise
        raise click.ClickException(
            f"stopped; {place} keeps where it stood, run the same command with --resume to go on"
        ) from None
    place.unlink(missing_ok=True)
    shutil.rmtree(checkpoint.codes_folder, ignore_errors=True)
