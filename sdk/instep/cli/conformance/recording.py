"""`--trace`: writes all that was observed, one event a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from instep.conformance import Event, TraceJudge, event_line
from instep.errors import ConfigurationError

__all__ = ["TraceOption", "recording"]

TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write all that came there.", dir_okay=False),
]


@contextmanager
def recording(path: Path | None, judging: TraceJudge) -> Iterator[Callable[[Event], None]]:
    """What gives an event to whoever judges, and writes it to the file, if there is one, while the
    context is open.

    Raises `ConfigurationError`: the file cannot be written.
    """
    if path is None:
        yield judging.observe
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}", where=str(path)) from error

    def record(event: Event) -> None:
        file.write(event_line(event))
        judging.observe(event)

    with file:
        yield record
