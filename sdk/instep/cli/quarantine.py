"""`instep quarantine`: records that could not be read, kept with their bytes, to look at and to
replay.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    json_line,
    moment,
    plain,
    plain_lines,
    print_listing,
    stamp,
)
from instep.cli.store import (
    ConfigArgument,
    ConfigOption,
    ConsumerOption,
    LimitOption,
    OpenStore,
    StoreOption,
    StreamOption,
    open_store,
    open_stores,
    require_stream,
)
from instep.config.plugins import source_plugin
from instep.errors import ConfigurationError, InstepError
from instep.model.entities import Quarantined, StreamStatus
from instep.model.streams import StreamInfo
from instep.ports.reader import MessageReader, StoreReader

__all__ = ["accept", "drop", "list_", "replay", "replay_one", "show"]

_DIGEST: Final = re.compile("[0-9a-f]{32}")


async def list_(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the records in quarantine, the oldest first.

    Example: instep quarantine list --limit 20
    """
    console = Console(highlight=False)
    columns = [Column("ID", width=7), Column("Received", width=MOMENT_WIDTH)]
    columns += [Column("Times", width=7, justify="right")]
    columns += [Column("Bytes", width=9, justify="right"), Column("Replayed", width=8)]
    columns += [Column(name, ratio=1, overflow="fold") for name in ("Stream", "Reason")]
    await print_listing(
        _found(config, store, consumer, stream),
        console,
        columns,
        cells=_cells,
        facts=_facts,
        what="in quarantine",
        limit=limit,
        output=output,
    )


async def show(
    id: Annotated[int, typer.Argument(metavar="ID", min=1)],
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one record whole, with its bytes.

    Example: instep quarantine show 17
    """
    async with open_store(config, store, consumer, "quarantine show") as place:
        one = await _one(place.reader, id)
    try:
        text = one.raw.decode()
    except UnicodeDecodeError:
        raw = {"raw_base64": base64.b64encode(one.raw).decode()}
        text = one.raw.decode(errors="backslashreplace")
    else:
        raw = {"raw": text}
    if output is Format.JSONL:
        json_line({**_facts(one), **raw})
        return
    for name, value in _facts(one).items():
        typer.echo(plain(f"{name:12} {'—' if value is None else value}"))
    typer.echo(f"\n{plain_lines(text)}")


async def replay(
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1)] = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All records that were not replayed yet.")
    ] = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Read records again and commit what they state, unless something newer is stored.

    Ends with 1 when one of them still cannot be read; it stays in quarantine.

    Example: instep quarantine replay --all --stream alarms
    """
    if bool(ids) == everything:
        raise ConfigurationError(
            "it is not clear what to replay", where="quarantine replay", hint="name IDs, or --all"
        )
    ids = ids or []
    async with open_store(config, store, consumer, "quarantine replay") as place:
        reader = place.reader
        await require_stream(reader, stream)
        streams = {(one.consumer, one.stream): one for one in await reader.streams()}
        waiting = ids or [
            one.id async for one in _waiting(place, stream) if one.replayed_at_us is None
        ]
        failed = 0
        for id in waiting:
            one = await _one(reader, id)
            done = True
            try:
                outcome = await replay_one(reader, one, streams.get((one.consumer, one.stream)))
            except InstepError as error:
                done = False
                outcome = str(error)
            failed += not done
            if output is Format.JSONL:
                json_line({"id": id, "replayed": done, "text": outcome})
            else:
                typer.echo(plain(f"{id}: {outcome}"))
    if output is Format.TABLE:
        typer.echo(f"{len(waiting) - failed:,} replayed, {failed:,} still in quarantine")
    if failed:
        raise typer.Exit(1)


async def drop(
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", min=1)] = None,
    config: ConfigOption = None,
    store: StoreOption = None,
    everything: Annotated[bool, typer.Option("--all", help="All records in quarantine.")] = False,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="They are lost for good: yes.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Forget records that will never be read, so that a full quarantine takes others.

    Example: instep quarantine drop 17 18 --yes
    """
    if bool(ids) == everything or (ids and (stream or consumer)):
        raise ConfigurationError(
            "it is not clear what to drop",
            where="quarantine drop",
            hint="name IDs, or --all (of one --stream, of one --consumer)",
        )
    if not yes:
        raise ConfigurationError(
            "the bytes of these records would be lost for good",
            where="quarantine drop",
            hint="look at them with `instep quarantine show`; then give --yes",
        )
    async with open_store(config, store, consumer, "quarantine drop") as place:
        await require_stream(place.reader, stream)
        for id in ids or ():
            await _one(place.reader, id)
        if ids is None and place.consumers:
            ids = [one.id async for one in _waiting(place, stream)]
            dropped = await place.reader.drop(ids) if ids else 0
        else:
            dropped = await place.reader.drop(ids, stream=stream)
    if output is Format.JSONL:
        json_line({"dropped": dropped})
    else:
        typer.echo(f"{dropped:,} dropped")


async def accept(
    digest: Annotated[str, typer.Argument(metavar="DIGEST")],
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Accept that a record is lost: from the next attempt on it keeps no entity unproven.

    Its bytes stay in quarantine. Ends with 1 if no record has this digest.

    Example: instep quarantine accept 5f0c2a9b41d7e836
    """
    if not _DIGEST.fullmatch(digest):
        raise ConfigurationError(
            f"{digest!r} is not a digest",
            where="DIGEST",
            hint="`instep quarantine list` and `instep status` show it, with 32 digits",
        )
    accepted = 0
    async with open_stores(config, store, consumer, "quarantine accept") as places:
        for place in places:
            for name in {one.consumer for one in await place.reader.streams()}:
                if place.has(name):
                    accepted += await place.reader.accept(name, digest)
    if output is Format.JSONL:
        json_line({"digest": digest, "accepted": accepted})
    else:
        typer.echo(f"{accepted:,} accepted")
    if not accepted:
        raise typer.Exit(1)


async def _found(
    config: Path | None, store: str | None, consumer: str | None, stream: str | None
) -> AsyncGenerator[Quarantined, None]:
    async with open_stores(config, store, consumer, "quarantine list") as places:
        for place in places:
            await require_stream(place.reader, stream)
            async for one in _waiting(place, stream):
                yield one


async def _waiting(place: OpenStore, stream: str | None) -> AsyncGenerator[Quarantined, None]:
    for name in place.names:
        async for one in place.reader.quarantine(consumer=name, stream=stream):
            yield one


async def replay_one(reader: StoreReader, one: Quarantined, status: StreamStatus | None) -> str:
    """Read an entry again and commit what it states, or let the handler try it again; says what
    came of it. `status` is that of its stream. Raises `InstepError` where it still cannot be read.
    """
    if one.replayed_at_us is not None:
        return f"was replayed at {stamp(one.replayed_at_us)}"
    if isinstance(reader, MessageReader) and await reader.deliver_again(one.id):
        return "the handler is given it again by the consumer, running now or later"
    if status is None:
        raise InstepError("its stream is not in the store any more", where=one.stream)
    stream = StreamInfo.from_stored(status.info)
    delivery = source_plugin(stream.kind, f"stream {stream.id}").decode(one.raw, stream)
    if delivery.unreadable or not delivery.records:
        reasons = "; ".join(bad.reason for bad in delivery.unreadable) or "it states no record"
        raise InstepError(f"still not readable: {reasons}")
    count = await reader.replay(one.id, delivery)
    return f"replayed, {count:,} {'entity' if count == 1 else 'entities'} changed"


async def _one(reader: StoreReader, id: int) -> Quarantined:
    async for one in reader.quarantine(id=id):
        return one
    raise ConfigurationError(
        f"nothing in quarantine has the ID {id}",
        where="ID",
        hint="`instep quarantine list` tells which there are",
    )


def _cells(one: Quarantined) -> list[str]:
    return [
        str(one.id),
        moment(one.received_at_us),
        f"{one.times:,}",
        f"{len(one.raw):,}",
        "no" if one.replayed_at_us is None else "yes",
        f"{one.consumer} / {one.stream}",
        one.reason,
    ]


def _facts(one: Quarantined) -> dict[str, Any]:
    return {
        "id": one.id,
        "consumer": one.consumer,
        "stream": one.stream,
        "reason": one.reason,
        "token": one.token,
        "received_at": stamp(one.received_at_us),
        "replayed_at": None if one.replayed_at_us is None else stamp(one.replayed_at_us),
        "size_bytes": len(one.raw),
        "digest": one.digest,
        "key": one.key,
        "times": one.times,
        "last_at": stamp(one.last_at_us) if one.last_at_us else None,
        "accepted_at": None if one.accepted_at_us is None else stamp(one.accepted_at_us),
    }
