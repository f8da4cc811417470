"""Which stores a command reads, and what of them: CONFIG or `--store URL`, and the options that
choose consumers, streams, classes and keys, alike in all commands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from instep.config.file import Configuration, ConsumerConfiguration, default_path, load
from instep.config.plugins import open_reader
from instep.config.shown import shown_text
from instep.errors import ConfigurationError

if TYPE_CHECKING:
    from instep.coordination.lease import LeaseState
    from instep.model.entities import StreamStatus
    from instep.ports.reader import SequenceCounts, StoreReader

__all__ = [
    "AllOption",
    "ClassOption",
    "ConfigArgument",
    "ConfigOption",
    "ConsumerOption",
    "IdsArgument",
    "KeyOption",
    "LimitOption",
    "OpenStore",
    "StoreOption",
    "StreamOption",
    "check_choice",
    "chosen_of",
    "configured",
    "find_streams",
    "leases_of",
    "open_store",
    "open_stores",
    "places_of",
    "require_consumer",
    "require_stream",
    "sequence_counts_of",
]

_NAMED = 20
"""Most names that an error lists."""
_CONFIG_HELP = "The file; default: $INSTEP_CONFIG, else instep.toml."

ConfigArgument = Annotated[
    Path | None, typer.Argument(metavar="CONFIG", help=_CONFIG_HELP, show_default=False)
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help=_CONFIG_HELP, show_default=False)
]
"""For commands whose arguments are something else."""
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="A store instead of CONFIG: sqlite:///network.db."),
]
ConsumerOption = Annotated[
    str | None, typer.Option("--consumer", metavar="NAME", help="Only this consumer.")
]
StreamOption = Annotated[
    str | None, typer.Option("--stream", metavar="ID", help="Only this stream.")
]
ClassOption = Annotated[
    str | None, typer.Option("--class", metavar="CLASS", help="Only this class, such as NODE.")
]
IdsArgument = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1)]
AllOption = Annotated[bool, typer.Option("--all", help="All of them.")]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only this entity.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="End after so many lines.")
]


def check_choice(
    command: str, ids: list[int] | None, *, everything: bool, of: tuple[str, ...] = ()
) -> None:
    """Raise `ConfigurationError` unless either IDs or all are meant. `of`: the options that narrow
    `--all` beside stream and consumer.
    """
    if bool(ids) == everything:
        narrowed = ", ".join(f"of one --{one}" for one in (*of, "stream", "consumer"))
        raise ConfigurationError(
            f"it is not clear what to {command.rpartition(' ')[2]}",
            where=command,
            hint=f"name IDs, or --all ({narrowed})",
        )


class OpenStore(NamedTuple):
    """A store, and what of it is meant."""

    reader: StoreReader
    consumers: frozenset[str]
    """The consumers; empty for all that it has."""

    def has(self, consumer: str) -> bool:
        """Whether this consumer is meant."""
        return not self.consumers or consumer in self.consumers

    @property
    def names(self) -> list[str | None]:
        """The consumers one after the other; a single None for all of them together."""
        return [*sorted(self.consumers)] or [None]

    @property
    def consumer(self) -> str | None:
        """The consumer, where it is a single one."""
        return next(iter(self.consumers)) if len(self.consumers) == 1 else None


@asynccontextmanager
async def open_stores(
    config: Path | None, store: str | None, consumer: str | None, where: str
) -> AsyncIterator[list[OpenStore]]:
    """The stores of a configuration, or the one of `--store`; closed at the end.

    Raises `ConfigurationError`, also for a consumer that is not there, and `SinkError`.
    """
    found = places_of(config, store, consumer, where)
    async with AsyncExitStack() as stack:
        places = []
        for url, names in found.items():
            reader = await stack.enter_async_context(open_reader(url))
            places.append(OpenStore(reader, frozenset(names)))
        try:
            if store is not None:
                await require_consumer(places[0].reader, consumer)
            yield places
        except ConfigurationError as error:
            # What a reader cannot do at all, it raises without saying whose it is.
            error.where = error.where or ", ".join(map(shown_text, found))
            raise


@asynccontextmanager
async def open_store(
    config: Path | None, store: str | None, consumer: str | None, where: str
) -> AsyncIterator[OpenStore]:
    """The same for a command that is about one store: several are a `ConfigurationError`."""
    async with open_stores(config, store, consumer, where) as places:
        if len(places) > 1:
            raise ConfigurationError(
                f"the configuration has {len(places)} stores, and this command reads one",
                where=where,
                hint="choose by --consumer or --store",
            )
        yield places[0]


async def find_streams(
    config: Path | None, store: str | None, consumer: str | None, stream: str | None, where: str
) -> AsyncIterator[tuple[StoreReader, StreamStatus]]:
    """The streams that are meant, each with the reader of its store. Raises as `open_stores`, also
    for a stream that is not there.
    """
    async with open_stores(config, store, consumer, where) as places:
        for place in places:
            await require_stream(place.reader, stream)
            for one in await place.reader.streams():
                if place.has(one.consumer) and stream in (None, one.stream):
                    yield place.reader, one


async def require_consumer(reader: StoreReader, consumer: str | None) -> None:
    """Raise `ConfigurationError` for a consumer that the store does not have."""
    if consumer is None:
        return
    known = {status.consumer for status in await reader.streams()}
    known |= set(await leases_of(reader)) | set(await sequence_counts_of(reader))
    if consumer not in known:
        raise _unknown(f"the store has no consumer {consumer!r}", "--consumer", known)


async def leases_of(reader: StoreReader) -> dict[str, LeaseState]:
    """The leases of a store by consumer; none of a store that keeps none."""
    from instep.ports.reader import LeaseReader

    return await reader.leases() if isinstance(reader, LeaseReader) else {}


async def sequence_counts_of(reader: StoreReader) -> dict[str, SequenceCounts]:
    """The sequences of a store by consumer, counted; none of a store that keeps none."""
    from instep.ports.reader import MessageReader

    return await reader.count_sequences() if isinstance(reader, MessageReader) else {}


async def require_stream(reader: StoreReader, stream: str | None) -> None:
    """Raise `ConfigurationError` for a stream that the store does not have; None is all streams."""
    if stream is None:
        return
    known = {status.stream for status in await reader.streams()}
    if stream in known:
        return
    from instep.ports.reader import MessageReader

    if isinstance(reader, MessageReader):
        async for _ in reader.sequences(stream=stream):
            return
        async for sequence in reader.sequences():
            if len(known) >= _NAMED:
                break
            known.add(sequence.stream)
    raise _unknown(f"the store has no stream {stream!r}", "--stream", known)


def _unknown(message: str, where: str, known: Collection[str]) -> ConfigurationError:
    named = sorted(known)[:_NAMED]
    return ConfigurationError(
        message, where=where, hint=f"it has: {', '.join(named) or 'none yet'}"
    )


def places_of(
    config: Path | None, store: str | None, consumer: str | None, where: str
) -> dict[str, set[str]]:
    """The URL of each store → the consumers that are meant; empty for all that it has. Raises
    `ConfigurationError`.
    """
    if config is not None and store is not None:
        raise ConfigurationError(
            "CONFIG and --store were both given", where=where, hint="leave one of them out"
        )
    if store is not None:
        return {store: {consumer} if consumer is not None else set()}
    found: dict[str, set[str]] = {}
    for one in configured(config, consumer):
        for url in _urls(one.sink.options):
            found.setdefault(url, set()).add(one.name)
    return found


def configured(config: Path | None, consumer: str | None) -> list[ConsumerConfiguration]:
    """The consumers of the file that are meant: all, or the named one. Raises
    `ConfigurationError`.
    """
    return chosen_of(load(config or default_path()), consumer)


def chosen_of(
    configuration: Configuration, consumer: str | None, *, or_none: bool = False
) -> list[ConsumerConfiguration]:
    """The consumers of a configuration that are meant: all, or the named one; with `or_none` none
    of a file that has publishers only. Raises `ConfigurationError`.
    """
    if or_none and consumer is None and not configuration.consumers:
        return []
    chosen = [one for one in configuration.consumers if consumer in (None, one.name)]
    if not configuration.consumers:
        raise ConfigurationError(
            "the file has publishers, and no consumer whose store could be read",
            where=str(configuration.path),
            hint="name the store by --store",
        )
    if not chosen:
        known = [one.name for one in configuration.consumers]
        raise _unknown(f"no consumer {consumer!r} is configured", "--consumer", known)
    return chosen


def _urls(options: Mapping[str, Any]) -> list[str]:
    """The URL of a sink, or those of the sinks of a tee."""
    sinks = options.get("sinks")
    if isinstance(sinks, list):
        return [str(one.get("url", "")) for one in sinks if isinstance(one, dict)]
    return [str(options.get("url", ""))]
