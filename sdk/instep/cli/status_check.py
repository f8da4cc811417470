"""`instep status --check`: one line and an exit code, on a store at rest: for exec probes, cron and
CI.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import typer

from instep.cli.output import Format, json_line, plain
from instep.cli.store import places_of, sequence_counts_of
from instep.config.plugins import open_reader, quick_status
from instep.errors import ConfigurationError, InstepError
from instep.metrics.readiness import Fault, Part, faults_of
from instep.metrics.stored import stored_healths
from instep.runtime.health import Health

__all__ = ["Limits", "check_stores", "parse_duration"]

_WITHIN_S: Final = 10.0
"""So long a store may take to answer."""
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for beyond being in step; None: nothing."""

    behind_s: float | None = None
    unproven: int | None = None
    quarantined: int | None = None
    dead: int | None = None


def parse_duration(text: str) -> float:
    """Seconds of `30`, `30s`, `5m`, `1.5h`, `2d`. Raises `ConfigurationError`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(
            f"{text!r} is not a duration", where="--max-behind", hint="write it as 30s, 5m or 1h"
        )
    return float(found[1]) * _UNITS[found[2] or "s"]


def check_stores(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    stream: str | None,
    limits: Limits,
    output: Format,
) -> None:
    """Print one line; ends with 1 where anything is not as it should be. Raises
    `ConfigurationError`. With a stream, only that stream counts.
    """
    healths: list[Health] = []
    faults: list[Fault] = []
    for url, names in places_of(config, store, consumer, "status").items():
        try:
            found = _read(url, names)
        except ConfigurationError:
            raise
        except (InstepError, TimeoutError) as error:
            text = str(error) or f"it has not answered for {_WITHIN_S:.0f} s"
            faults.append(Fault(Part.STORE, ", ".join(sorted(names)) or "all", "", text))
            continue
        if not found:
            faults.append(Fault(Part.CONSUMER, "all", "", "nothing was stored yet"))
        healths += found
    if stream is not None and healths:
        healths = list(_only(healths, stream))
        if not healths:
            faults.append(Fault(Part.CONSUMER, consumer or "all", stream, "nothing was stored yet"))
    faults += faults_of(healths)
    faults += (fault for health in healths for fault in _beyond(health, limits))
    _print(healths, faults, output)
    if faults:
        raise typer.Exit(1)


def _read(url: str, names: set[str]) -> list[Health]:
    """The consumers of a store that are meant. Raises `InstepError` and `TimeoutError`."""
    now_us = time.time_ns() // 1_000
    quick = quick_status(url)
    if quick is not None and names <= {one.consumer for one in quick[0]} and quick[0]:
        return stored_healths(quick[0], {}, {}, names, now_us)

    async def read() -> list[Health]:
        async with asyncio.timeout(_WITHIN_S), open_reader(url) as reader:
            return stored_healths(
                await reader.streams(),
                await sequence_counts_of(reader),
                await reader.followers(),
                names,
                now_us,
            )

    return asyncio.run(read())


def _only(healths: list[Health], stream: str) -> Iterator[Health]:
    """Those that have this stream, with no other."""
    for one in healths:
        if streams := tuple(each for each in one.streams if each.stream == stream):
            yield msgspec.structs.replace(one, streams=streams)


def _beyond(health: Health, limits: Limits) -> Iterator[Fault]:
    """What is over a limit."""

    def over(stream: str, value: float | None, limit: float | None, text: str) -> Iterator[Fault]:
        if limit is not None and (value is None or value > limit):
            known = "it is not known" if value is None else f"{value:,.0f}"
            yield Fault(
                Part.OPERATOR, health.consumer, stream, f"{text}: {known}, more than {limit:,.0f}"
            )

    for one in health.streams:
        yield from over(one.stream, one.behind_s, limits.behind_s, "seconds behind")
        yield from over(one.stream, one.unproven, limits.unproven, "unproven entities")
        yield from over(one.stream, one.quarantined, limits.quarantined, "records in quarantine")
    if health.intake is not None:
        yield from over("", health.intake.dead, limits.dead, "messages in the dead letter")


def _print(healths: list[Health], faults: list[Fault], output: Format) -> None:
    if output is Format.JSONL:
        told = [
            {"part": one.part, "consumer": one.consumer, "stream": one.stream, "text": one.text}
            for one in faults
        ]
        json_line({"ready": not faults, "faults": told})
        return
    if faults:
        typer.echo(plain(f"not ready: {'; '.join(map(str, faults))}"))
        return
    known = (one.behind_s for health in healths for one in health.streams)
    ages = [age_s for age_s in known if age_s is not None]
    behind = f", at most {max(ages):,.0f} s behind" if ages else ""
    typer.echo(plain(f"ready: {', '.join(one.consumer for one in healths)}{behind}"))
