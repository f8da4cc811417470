"""`instep handlers …`: the handlers of changes, and the changes that they have failed at."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    json_line,
    moment,
    one_line,
    print_listing,
    stamp,
)
from instep.cli.store import (
    AllOption,
    ConfigArgument,
    ConfigOption,
    ConsumerOption,
    IdsArgument,
    LimitOption,
    OpenStore,
    StoreOption,
    StreamOption,
    check_choice,
    open_store,
    open_stores,
)
from instep.errors import ConfigurationError
from instep_sql.handlers.failed_changes import FailedChange, HandlerStatus
from instep_sql.reader import SqlReader

__all__ = ["handlers"]

_NAME = Annotated[str | None, typer.Option("--handler", metavar="NAME", help="Only this handler.")]


class _Chosen(msgspec.Struct, frozen=True):
    """Which failed changes are meant; None: all."""

    handler: str | None = None
    stream: str | None = None
    ids: Sequence[int] | None = None

    def takes(self, one: FailedChange) -> bool:
        return (
            self.handler in {None, one.handler}
            and self.stream in {None, one.change.stream}
            and (self.ids is None or one.id in self.ids)
        )


async def list_(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the handlers of changes.

    It shows how far each has come with each stream, and what blocks it.

    Example: instep handlers list --store sqlite:///network.db
    """
    columns = [Column("Handler", ratio=2, overflow="fold")]
    columns += [Column("Stream", ratio=3, overflow="fold")]
    columns += [Column(name, width=8, justify="right") for name in ("Cursor", "Failed")]
    columns += [Column("Blocked", width=7), Column("Error", ratio=4, overflow="fold")]
    await print_listing(
        _statuses(config, store, consumer),
        Console(highlight=False),
        columns,
        cells=_status_cells,
        facts=_status_facts,
        what="handlers",
        limit=limit,
        output=output,
    )


async def failed(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    handler: _NAME = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List failed changes with the reason, oldest first.

    `--format jsonl` shows each change whole, with its body.

    Example: instep handlers failed --handler outbox
    """
    columns = [Column("ID", width=8, justify="right"), Column("Handler", ratio=2, overflow="fold")]
    columns += [Column("Stream", ratio=2, overflow="fold"), Column("Since", width=MOMENT_WIDTH)]
    columns += [Column("Change", width=7), Column("Key", ratio=3, overflow="fold")]
    columns += [Column("Reason", ratio=4, overflow="fold")]
    await print_listing(
        _failed(config, store, consumer, _Chosen(handler, stream)),
        Console(highlight=False),
        columns,
        cells=_failed_cells,
        facts=_failed_facts,
        what="failed changes",
        limit=limit,
        output=output,
    )


async def retry(
    ids: IdsArgument = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    everything: AllOption = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    handler: _NAME = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let handlers try failed changes again.

    The process with the handler does it, now or later.

    Example: instep handlers retry --all --handler outbox
    """
    chosen = _checked("retry", ids, everything, handler, stream)
    count = await _each(config, store, consumer, chosen, "retry", SqlReader.retry_change)
    _told("asked for again", count, output)


async def drop(  # noqa: PLR0917 - options, given by name on the command line
    ids: IdsArgument = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    everything: AllOption = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    handler: _NAME = None,
    yes: Annotated[bool, typer.Option("--yes", help="They are lost for good: yes.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Forget failed changes for good.

    A handler that they block goes on without them.

    Example: instep handlers drop 17 --yes
    """
    chosen = _checked("drop", ids, everything, handler, stream)
    if not yes:
        raise ConfigurationError(
            "the handler would never be given these changes",
            where="handlers drop",
            hint="look at them with `instep handlers failed`; then give --yes",
        )
    count = await _each(config, store, consumer, chosen, "drop", SqlReader.drop_change)
    _told("dropped", count, output)


handlers: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "list": list_,
    "failed": failed,
    "retry": retry,
    "drop": drop,
}
"""See handlers of changes; retry or drop failed changes."""


def _checked(
    verb: str,
    ids: list[int] | None,
    everything: bool,
    handler: str | None,
    stream: str | None,
) -> _Chosen:
    # What narrows `--all` contradicts IDs as `--all` does.
    everything = everything or bool(ids and (handler or stream))
    check_choice(f"handlers {verb}", ids, everything=everything, of=("handler",))
    return _Chosen(handler, stream, ids)


def _reader(place: OpenStore) -> SqlReader:
    if not isinstance(place.reader, SqlReader):
        raise ConfigurationError("this store has no handlers of changes")
    return place.reader


async def _statuses(
    config: Path | None, store: str | None, consumer: str | None
) -> AsyncGenerator[HandlerStatus, None]:
    async with open_stores(config, store, consumer, "handlers list") as places:
        for place in places:
            for one in await _reader(place).handlers():
                if place.has(one.consumer):
                    yield one


async def _found(place: OpenStore, chosen: _Chosen) -> AsyncGenerator[FailedChange, None]:
    async for one in _reader(place).failed_changes():
        if place.has(one.change.consumer) and chosen.takes(one):
            yield one


async def _failed(
    config: Path | None, store: str | None, consumer: str | None, chosen: _Chosen
) -> AsyncGenerator[FailedChange, None]:
    async with open_stores(config, store, consumer, "handlers failed") as places:
        for place in places:
            async with aclosing(_found(place, chosen)) as found:
                async for one in found:
                    yield one


async def _each(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    chosen: _Chosen,
    verb: str,
    act: Callable[[SqlReader, int], Awaitable[bool]],
) -> int:
    """Do it to each; returns how many there were. Raises for an id that is not there."""
    async with open_store(config, store, consumer, f"handlers {verb}") as place:
        found = [one.id async for one in _found(place, chosen)]
        for id in chosen.ids or ():
            if id not in found:
                raise ConfigurationError(
                    f"no failed change has the ID {id}",
                    where="ID",
                    hint="`instep handlers failed` tells which there are",
                )
        return sum([await act(_reader(place), id) for id in found])


def _told(done: str, count: int, output: Format) -> None:
    if output is Format.JSONL:
        json_line({done.replace(" ", "_"): count})
    else:
        typer.echo(f"{count:,} {done}")


def _status_cells(one: HandlerStatus) -> list[str]:
    return [
        one.name,
        f"{one.consumer} / {one.stream}",
        str(one.cursor),
        f"{one.failed:,}",
        "yes" if one.blocked else "no",
        "; ".join(filter(None, (one.error, one.missed))),
    ]


def _status_facts(one: HandlerStatus) -> dict[str, Any]:
    return {
        "handler": one.name,
        "consumer": one.consumer,
        "stream": one.stream,
        "cursor": one.cursor,
        "attempts": one.attempts,
        "error": one.error,
        "missed": one.missed,
        "failed_changes": one.failed,
        "blocked": one.blocked,
        "updated_at": stamp(one.updated_at_us),
    }


def _failed_cells(one: FailedChange) -> list[str]:
    return [
        str(one.id),
        one.handler,
        f"{one.change.consumer} / {one.change.stream}",
        moment(one.failed_at_us),
        one.change.change.value,
        one.change.key,
        one.reason + "; blocks" * one.blocks,
    ]


def _failed_facts(one: FailedChange) -> dict[str, Any]:
    change = one.change
    return {
        "id": one.id,
        "handler": one.handler,
        "consumer": change.consumer,
        "stream": change.stream,
        "key": change.key,
        "class": change.entity_class,
        "change": change.change.value,
        "cursor": change.cursor,
        "blocks": one.blocks,
        "reason": one.reason,
        "failed_at": stamp(one.failed_at_us),
        "body": one_line(change.body) if change.body else None,
    }
