"""`instep alarms`: the alarms of stores, those that stand or all episodes, or the events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import (
    MOMENT_WIDTH,
    Format,
    FormatOption,
    moment,
    print_listing,
    stamp,
)
from instep.cli.store import (
    ConfigArgument,
    ConsumerOption,
    KeyOption,
    LimitOption,
    StoreOption,
    StreamOption,
    open_stores,
    require_stream,
)
from instep.errors import ConfigurationError
from instep.model.durations import duration
from instep_tapi.derivations import alarms as derived
from instep_tapi.derivations.alarms import AlarmEpisode

__all__ = ["alarms"]


class _Chosen(NamedTuple):
    """What of the alarms is asked for."""

    stream: str | None
    key: str | None
    measured: str | None
    standing: bool | None
    events: bool


async def alarms(  # noqa: PLR0917 - options, given by name on the command line
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    key: KeyOption = None,
    measured: Annotated[
        str | None, typer.Option(metavar="UUID", help="Only those of this measured entity.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    events: Annotated[
        bool, typer.Option("--events", help="The events instead, which never clear.")
    ] = False,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """List the alarms of a store.

    Without --all only active ones, in the order in which they were stored.

    Example: instep alarms --all --limit 20
    """
    if all_ and events:
        raise ConfigurationError(
            "--all and --events were both given",
            where="alarms",
            hint="an event is over as it happens: leave --all out",
        )
    standing = None if all_ or events else True
    chosen = _Chosen(stream, key, measured, standing, events)
    console = Console(highlight=False)
    columns = [Column("Raised", width=MOMENT_WIDTH), Column("State", width=12)]
    columns += [Column("Severity", width=8)]
    columns += [Column("Consumer", width=8, overflow="fold")]
    columns += [Column("Alarm", ratio=1, overflow="fold")]
    if chosen.standing is None and not chosen.events:
        columns += [Column("Lasted", width=8)]

    def cells(one: AlarmEpisode) -> list[str]:
        lasted = "" if one.duration_s is None else duration(one.duration_s)
        raised, severity = moment(one.raised_at_us), one.severity or "—"
        return [raised, one.state, severity, one.consumer, _words(one), lasted][: len(columns)]

    await print_listing(
        _found(config, store, consumer, chosen),
        console,
        columns,
        cells=cells,
        facts=_line,
        what="events" if chosen.events else "alarms",
        limit=limit,
        output=output,
    )


async def _found(
    config: Path | None, store: str | None, consumer: str | None, chosen: _Chosen
) -> AsyncGenerator[AlarmEpisode, None]:
    async with open_stores(config, store, consumer, "alarms") as places:
        for place in places:
            await require_stream(place.reader, chosen.stream)
            for name in place.names:
                async for one in derived.alarms(
                    place.reader,
                    standing=chosen.standing,
                    events=chosen.events,
                    key=chosen.key,
                    measured=chosen.measured,
                    consumer=name,
                    stream=chosen.stream,
                ):
                    yield one


def _words(one: AlarmEpisode) -> str:
    """What is wrong, and where."""
    condition = one.condition_normalized or one.condition or one.key
    place = one.measured_native_id or one.measured_uuid
    return f"{condition} at {place}" if place else condition


def _line(one: AlarmEpisode) -> dict[str, Any]:
    """The alarm as a line of JSON, times as RFC 3339."""
    line: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(one).items():
        if name.endswith("_us"):
            line[name.removesuffix("_us")] = None if value is None else stamp(value)
        else:
            # In the lines of all commands, `event` is a kind.
            line["is_event" if name == "event" else name] = value
    return {**line, "duration_s": one.duration_s}
