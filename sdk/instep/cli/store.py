"""Opens the store of a command that reads: `--store URL`, through the sink that reads such URLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from instep.config.file import default_path, load
from instep.config.plugins import store_plugin
from instep.errors import ConfigurationError
from instep.ports.reader import StoreReader

__all__ = ["StoreOption", "StreamOption", "open_reader", "places", "require_stream"]

StoreOption = Annotated[
    str,
    typer.Option("--store", metavar="URL", help="The store, for example sqlite:///network.db."),
]
_NAMED = 20
"""Most streams that an error names."""

StreamOption = Annotated[
    str | None, typer.Option("--stream", metavar="ID", help="Only this stream.")
]


@asynccontextmanager
async def open_reader(url: str) -> AsyncIterator[StoreReader]:
    """A reader of the store, closed at the end. Raises `ConfigurationError` and `SinkError`."""
    reader = store_plugin(url).reader(url)
    try:
        yield reader
    except ConfigurationError as error:
        # What a reader cannot do at all, it raises without saying whose it is.
        error.where = error.where or url
        raise
    finally:
        await reader.close()


def places(config: Path | None, store: str | None, where: str) -> dict[str, set[str]]:
    """Store → the consumers of a configuration that use it; none named for `store`. Raises
    `ConfigurationError`.
    """
    if config is not None and store is not None:
        raise ConfigurationError(
            "CONFIG and --store were both given", where=where, hint="leave one of them out"
        )
    if store is not None:
        return {store: set()}
    found: dict[str, set[str]] = {}
    for consumer in load(config or default_path()).consumers:
        url = str(consumer.sink.options.get("url", ""))
        found.setdefault(url, set()).add(consumer.name)
    return found


async def require_stream(reader: StoreReader, stream: str | None) -> None:
    """Raise `ConfigurationError` for a stream that the store does not have; None is all streams."""
    if stream is None:
        return
    known = {status.stream for status in await reader.streams()}
    if stream in known:
        return
    async for _ in reader.sequences(stream=stream):
        return
    async for sequence in reader.sequences():
        if len(known) >= _NAMED:
            break
        known.add(sequence.stream)
    raise ConfigurationError(
        f"the store has no stream {stream!r}",
        where="--stream",
        hint=f"it has: {', '.join(sorted(known)) or 'none yet'}",
    )
