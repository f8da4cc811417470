"""The part of `instep status` about numbered sequences: their ranges, gaps and waiting messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Column

from instep.cli.output import Format, Listing, json_line, plain, stamp
from instep.model.ranges import Ranges
from instep.ports.reader import (
    SequenceCounts,
    SequenceStatus,
    StoreReader,
)

__all__ = ["show_sequences"]

_SHOWN_RANGES = 10
_SHOWN_SEQUENCES = 100


async def show_sequences(reader: StoreReader, consumer: str | None, output: Format) -> int:
    """Show the sequences of a store; how many there are. Of many, a table shows the counts and
    those that need attention.
    """
    counts = await reader.count_sequences()
    mine = {name: one for name, one in counts.items() if consumer in (None, name)}
    total = sum(one.sequences for one in mine.values())
    if output is Format.JSONL:
        async for one in reader.sequences():
            if one.consumer in mine:
                json_line(_facts(one))
    elif total:
        await _show_table(reader, mine, total)
    return total


async def _show_table(
    reader: StoreReader, counts: Mapping[str, SequenceCounts], total: int
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
            f"{each.blocked:,} blocked; --format jsonl lists them all",
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
        "updated_at": stamp(one.updated_at_us),
    }


def _text(ranges: Ranges) -> str:
    if len(ranges.lows) <= _SHOWN_RANGES:
        return str(ranges)
    first = Ranges(ranges.lows[:_SHOWN_RANGES], ranges.highs[:_SHOWN_RANGES])
    return f"{first},… ({len(ranges.lows):,} ranges)"
