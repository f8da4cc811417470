"""`instep sweep`: the sweeps that the guard holds, and their release (A6); and classes of which the
provider states nothing, and the word that they are gone (A19).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import typer

from instep.cli.output import Format, FormatOption, counted, json_line, plain
from instep.cli.store import (
    ConfigArgument,
    ConsumerOption,
    StoreOption,
    StreamOption,
    find_streams,
)
from instep.model.entities import StreamStatus
from instep.model.position import Phase
from instep.ports.reader import SweepReader

__all__ = ["release", "status"]


async def status(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the streams whose sweep is held, or that have classes of which the provider states
    nothing, and how much the sweep would remove.

    Example: instep sweep status --consumer east
    """
    count = 0
    async for reader, one in _held(config, store, consumer, stream):
        count += 1
        estimate = await reader.estimate_sweep(one.consumer, one.stream, one.position.attempt)
        empty = one.position.empty.since_us if one.position.phase is Phase.ALIGNED else ()
        removed = estimate.unmarked
        if empty:
            removed = sum(estimate.by_class.get(name, (0, 0))[1] for name in empty)
        if output is Format.JSONL:
            json_line(
                {
                    "consumer": one.consumer,
                    "stream": one.stream,
                    "attempt": one.position.attempt,
                    "entities": estimate.total,
                    "would_remove": removed,
                    "empty_classes": sorted(empty),
                }
            )
        else:
            text = f"would remove {removed:,} of {counted(estimate.total, 'entities')}"
            if empty:
                text += f": the provider states nothing of {', '.join(sorted(empty))}"
            typer.echo(plain(f"{one.consumer} / {one.stream}: {text}"))
    if not count and output is Format.TABLE:
        typer.echo("no sweep is held")


async def release(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Release held sweeps. A running consumer goes on within seconds, another at its start.

    It also confirms that classes of which the provider states nothing are gone. It releases only
    sweeps that are held now, and ends with 1 if there are none.

    Example: instep sweep release --consumer east --stream network
    """
    count = 0
    async for reader, one in _held(config, store, consumer, stream):
        count += 1
        await reader.release_sweep(one.consumer, one.stream, one.position.attempt)
        if output is Format.JSONL:
            json_line(
                {
                    "consumer": one.consumer,
                    "stream": one.stream,
                    "attempt": one.position.attempt,
                    "released": True,
                }
            )
        else:
            typer.echo(plain(f"{one.consumer} / {one.stream}: released"))
    if not count:
        typer.echo("no such sweep is held", err=True)
        raise typer.Exit(1)


async def _held(
    config: Path | None, store: str | None, consumer: str | None, stream: str | None
) -> AsyncIterator[tuple[SweepReader, StreamStatus]]:
    """The streams whose sweep is held, or that wait for a confirmation (A19)."""
    async for reader, one in find_streams(config, store, consumer, stream, "sweep"):
        phase, empty = one.position.phase, one.position.empty.since_us
        if phase is Phase.SWEEP_HELD or (phase is Phase.ALIGNED and empty):
            yield SweepReader.of(reader), one
