"""`instep sequences`, and the part of `instep status` about numbered sequences: their ranges, gaps
and waiting messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import Format, FormatOption, Listing, json_line, plain, stamp
from instep.cli.store import (
    ConfigArgument,
    ConsumerOption,
    LimitOption,
    StoreOption,
    StreamOption,
    open_stores,
)
from instep.errors import ConfigurationError
from instep.model.ranges import Ranges
from instep.ports.message_store import OperatorAction
from instep.ports.reader import (
    MessageReader,
    SequenceCounts,
    SequenceStatus,
    StoreReader,
)

__all__ = ["close", "give_up", "list_", "reset", "show_sequences"]

_SHOWN_RANGES = 10
_SHOWN_SEQUENCES = 100


async def show_sequences(reader: StoreReader, consumer: str | None, output: Format) -> int:
    """Show the sequences of a store; how many there are. Of many, a table shows the counts and
    those that need attention.
    """
    if not isinstance(reader, MessageReader):
        return 0
    counts = await reader.count_sequences()
    mine = {name: one for name, one in counts.items() if consumer in (None, name)}
    total = sum(one.sequences for one in mine.values())
    if output is Format.TABLE:
        if total:
            await _show_table(reader, mine, total)
        return total
    many = total > _SHOWN_SEQUENCES
    shown = 0
    async for one in reader.sequences(troubled=many):
        if one.consumer in mine and (not many or shown < _SHOWN_SEQUENCES):
            shown += 1
            json_line(_facts(one))
    for name, each in mine.items() if many else ():
        json_line(
            {
                "consumer": name,
                "sequences": each.sequences,
                "held": each.held,
                "blocked_sequences": each.blocked,
            }
        )
    return total


Sequence = Annotated[str, typer.Option("--stream", metavar="ID", help="The sequence.")]


def list_(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    troubled: Annotated[
        bool,
        typer.Option(
            "--troubled", help="Only those that have failed, are blocked, or wait behind a gap."
        ),
    ] = False,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show sequences with what is received, missing and waiting; all of them as JSON lines."""
    asyncio.run(_list(config, store, consumer, stream, troubled, limit, output))


def give_up(
    stream: Sequence,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    through: Annotated[
        int | None,
        typer.Option(
            "--through", metavar="N", help="The last number given up.", show_default="the highest"
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Go on without the messages that are missing: they are reported as lost, and refused later."""
    asyncio.run(_act(config, store, consumer, stream, OperatorAction.GIVE_UP, through, output))


def reset(
    stream: Sequence,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    following: Annotated[
        int | None,
        typer.Option("--next", metavar="N", help="The next number.", show_default="the first"),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let a sequence begin anew, also after it has failed; what waits behind a gap is dropped."""
    asyncio.run(_act(config, store, consumer, stream, OperatorAction.RESET, following, output))


def close(
    stream: Sequence,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Accept nothing more of a sequence; in time it is forgotten."""
    asyncio.run(_act(config, store, consumer, stream, OperatorAction.CLOSE, None, output))


async def _list(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    stream: str | None,
    troubled: bool,
    limit: int | None,
    output: Format,
) -> None:
    count = 0
    async with aclosing(_chosen(config, store, consumer, stream, troubled)) as found:
        async for one in found:
            count += 1
            facts = _facts(one)
            if output is Format.JSONL:
                json_line(facts)
            else:
                remarks = "blocked: " * one.blocked + one.error
                text = f"{facts['phase']}, next {facts['next_number']}"
                text += f", missing {facts['missing']}" if facts["missing"] else ""
                text += f", cancelled {facts['cancelled']}" if facts["cancelled"] else ""
                text += f", due {facts['due_at']}" if facts["due_at"] else ""
                text += f", {one.held:,} held, {one.waiting:,} waiting {remarks}"
                typer.echo(plain(f"{one.consumer} / {one.stream}: {text}").rstrip())
            if count == limit:
                break
    if not count and output is Format.TABLE:
        typer.echo("no such sequence")


async def _chosen(
    config: Path | None, store: str | None, consumer: str | None, stream: str | None, troubled: bool
) -> AsyncGenerator[SequenceStatus, None]:
    async with open_stores(config, store, consumer, "sequences") as places:
        for place in places:
            if not isinstance(place.reader, MessageReader):
                continue
            async for one in place.reader.sequences(stream=stream, troubled=troubled):
                if place.has(one.consumer):
                    yield one


async def _act(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    stream: str,
    action: OperatorAction,
    number: int | None,
    output: Format,
) -> None:
    asked = []
    async with open_stores(config, store, consumer, "sequences") as places:
        for place in places:
            if not isinstance(place.reader, MessageReader):
                continue
            names = filter(place.has, await place.reader.count_sequences())
            ask = place.reader.request_action
            asked += [name for name in names if await ask(name, stream, action, number)]
    if not asked:
        raise ConfigurationError(
            f"there is no sequence {stream!r}",
            where="--stream",
            hint="`instep sequences list` shows them",
        )
    if output is Format.JSONL:
        for name in asked:
            json_line({"consumer": name, "sequence": stream, "action": action, "number": number})
        return
    typer.echo(f"{action!s}: the consumer, running now or later, does it within seconds")


async def _show_table(
    reader: MessageReader, counts: Mapping[str, SequenceCounts], total: int
) -> None:
    columns = [Column("Sequence", ratio=4), Column("Phase", width=10), Column("Received", ratio=3)]
    columns += [Column("Missing", ratio=2), Column("Held", width=7, justify="right")]
    columns += [Column("Waiting", width=8, justify="right"), Column("Remarks", ratio=3)]
    console = Console(highlight=False)
    listing = Listing(console, columns)
    many = total > _SHOWN_SEQUENCES
    async for one in reader.sequences(troubled=many):
        if one.consumer not in counts:
            continue
        if listing.rows >= _SHOWN_SEQUENCES:
            break
        facts = _facts(one)
        remarks = "blocked: " * one.blocked + one.error
        if facts["cancelled"]:
            remarks = f"{remarks} cancelled {facts['cancelled']}".strip()
        if facts["due_at"]:
            remarks = f"{remarks} due {facts['due_at']}".strip()
        listing.add(
            f"{one.consumer} / {one.stream}",
            facts["phase"],
            facts["received"] or "—",
            facts["missing"] or "—",
            f"{one.held:,}",
            f"{one.waiting:,}",
            remarks,
        )
    if listing.rows:
        listing.flush()
    for name, each in counts.items() if many else ():
        console.print(
            f"{plain(name)}: {each.sequences:,} sequences, {each.held:,} messages held, "
            f"{each.blocked:,} blocked; `instep sequences list` shows them all",
            markup=False,
            soft_wrap=True,
        )


def _facts(one: SequenceStatus) -> dict[str, Any]:
    state = one.state
    accounted = state.received | state.cancelled
    last = max((n for n in (state.received.last, state.announced) if n is not None), default=None)
    missing = list(accounted.gaps(state.next_number, last)) if last is not None else []
    return {
        "consumer": one.consumer,
        "sequence": one.stream,
        "phase": state.phase,
        "next_number": state.next_number,
        "received": _text(state.received),
        "missing": _text(Ranges.of(*missing)),
        "gaps": len(missing),
        "cancelled": _text(state.cancelled),
        "faulted": _text(state.faulted.ranges()),
        "last_number": state.last_number,
        "held": one.held,
        "waiting": one.waiting,
        "blocked": one.blocked,
        "error": one.error,
        "due_at": None if one.due_us is None else stamp(one.due_us),
        "expires_at": stamp(state.expires_at_us) if state.expires_at_us else None,
        "updated_at": stamp(one.updated_at_us),
    }


def _text(ranges: Ranges) -> str:
    if len(ranges.lows) <= _SHOWN_RANGES:
        return str(ranges)
    first = Ranges(ranges.lows[:_SHOWN_RANGES], ranges.highs[:_SHOWN_RANGES])
    return f"{first},… ({len(ranges.lows):,} ranges)"
