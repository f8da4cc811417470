"""`--trace`: writes all that was observed, one event a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from instep.conformance import Event, event_line
from instep.errors import ConfigurationError

__all__ = ["TraceOption", "recording"]

TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write all that came there.", dir_okay=False),
]


@contextmanager
def recording(path: Path | None) -> Iterator[Callable[[Event], None] | None]:
    """What writes an event to the file while the context is open; None without a file.

    Raises `ConfigurationError`: it cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        file = path.open("wb")
    except OSError as error:
        raise ConfigurationError(f"cannot be written: {error.strerror}", where=str(path)) from error
    with file:
        yield lambda event: _write(file.write, event)


def _write(write: Callable[[bytes], int], event: Event) -> None:
    write(event_line(event))
