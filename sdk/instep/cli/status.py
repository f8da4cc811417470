"""`instep status`: the position of each stream of a store, and the deviations of its provider."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from instep.alignment.reading_progress import NO_PROGRESS_AFTER
from instep.cli.output import Format, FormatOption, counted, json_line, plain, stamp
from instep.cli.store import (
    ConfigArgument,
    ConsumerOption,
    StoreOption,
    StreamOption,
    leases_of,
    open_stores,
    places_of,
    require_stream,
)
from instep.config.plugins import deviations_of, quick_status
from instep.coordination.lease import LeaseState
from instep.errors import ConfigurationError
from instep.metrics.stored import behind_of, margin_s, stored_fidelity
from instep.model.durations import duration
from instep.model.entities import StreamStatus
from instep.model.holds import UnprovenReason
from instep.model.position import Phase

__all__ = ["status"]

_SAMPLE_CHARS: Final = 60

Stored = tuple[StreamStatus, LeaseState | None]
"""A stream, and the lease of its consumer."""


def status(  # noqa: PLR0917 - as many as options
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    output: FormatOption = Format.TABLE,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Print one line: 0 where all is in step and followed, else 1."
        ),
    ] = False,
    max_behind: Annotated[
        str | None,
        typer.Option(
            "--max-behind",
            metavar="DURATION",
            help="With --check: end with 1 if the store may lack more, such as 5m.",
        ),
    ] = None,
    max_unproven: Annotated[
        int | None,
        typer.Option(
            "--max-unproven",
            metavar="N",
            min=0,
            help="With --check: end with 1 if more entities are unproven.",
        ),
    ] = None,
    max_quarantined: Annotated[
        int | None,
        typer.Option(
            "--max-quarantined",
            metavar="N",
            min=0,
            help="With --check: end with 1 if quarantine has more records.",
        ),
    ] = None,
    max_dead: Annotated[
        int | None,
        typer.Option(
            "--max-dead",
            metavar="N",
            min=0,
            help="With --check: end with 1 if the dead letter has more messages.",
        ),
    ] = None,
) -> None:
    """Show phase, position, read delay and deviations of each stream, as durable in the store.

    With --check it ends with 0 if each stream is in step, heard and followed now, else with 1. It
    finds a consumer that was stopped or killed, too: its process is silent (`stale_after_s`).

    Example: instep status --check --max-behind 5m
    """
    limits = (max_behind, max_unproven, max_quarantined, max_dead)
    if check:
        from instep.cli.status_check import Limits, check_stores, parse_duration

        behind_s = None if max_behind is None else parse_duration(max_behind)
        wanted = Limits(
            behind_s=behind_s, unproven=max_unproven, quarantined=max_quarantined, dead=max_dead
        )
        check_stores(config, store, consumer, stream, wanted, output)
        return
    if any(limit is not None for limit in limits):
        raise ConfigurationError(
            "a limit was given without --check", where="status", hint="add --check"
        )
    found = _quickly(config, store, consumer, stream, output)
    if found is None:
        import asyncio

        found = asyncio.run(_by_readers(config, store, consumer, stream, output))
    if not found:
        # Without streams, JSON output is empty.
        Console(quiet=output is Format.JSONL).print("no stream was stored yet")


def _quickly(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    stream: str | None,
    output: Format,
) -> int | None:
    """As `_by_readers`, where all stores have a short cut; None where one has none, or lacks what
    was named: a reader says what there is.
    """
    stores = []
    for url, consumers in places_of(config, store, consumer, "status").items():
        one = quick_status(url)
        if one is None:
            return None
        streams, leases = one
        known = {each.consumer for each in streams} | set(leases)
        if store is not None and not consumers <= known:
            return None
        if stream is not None and stream not in {each.stream for each in streams}:
            return None
        stores.append((streams, leases, consumers))
    return sum(_show(*one, stream, output) for one in stores)


async def _by_readers(
    config: Path | None,
    store: str | None,
    consumer: str | None,
    stream: str | None,
    output: Format,
) -> int:
    """Show the streams and sequences; returns how many there are."""
    from instep.cli.conformance.stored import show_conformance
    from instep.cli.sequences import show_sequences

    found = 0
    async with open_stores(config, store, consumer, "status") as places:
        for place in places:
            await require_stream(place.reader, stream)
            streams = await place.reader.streams()
            leases = await leases_of(place.reader)
            found += _show(streams, leases, place.consumers, stream, output)
            if stream is None:
                for name in place.names:
                    found += await show_sequences(place.reader, name, output)
                found += await show_conformance(place.reader, place.consumers, output)
    return found


def _show(
    stored: Sequence[StreamStatus],
    leases: Mapping[str, LeaseState],
    consumers: Collection[str],
    stream: str | None,
    output: Format,
) -> int:
    """Show the streams of these consumers, or of all; returns how many there are."""
    streams = [
        (one, leases.get(one.consumer))
        for one in stored
        if (not consumers or one.consumer in consumers) and stream in (None, one.stream)
    ]
    now_us = time.time_ns() // 1_000
    if output is Format.JSONL:
        for one, lease in streams:
            json_line(_facts(one, lease, now_us))
    else:
        _print(streams, now_us)
    return len(streams)


def _facts(one: StreamStatus, lease: LeaseState | None, now_us: int) -> dict[str, Any]:
    behind_s = behind_of(one, now_us)
    position, info = one.position, one.info
    margins = {
        "compaction": margin_s(info.get("compaction_delay_s"), behind_s),
        "retention": margin_s(info.get("tombstone_retention_s"), behind_s),
    }
    return {
        "consumer": one.consumer,
        "stream": one.stream,
        "profile": one.info.get("profile") or None,
        "phase": position.phase,
        "attempt": position.attempt,
        "attempts_without_alignment": position.unaligned_attempts,
        "token": position.token,
        "appended_at": stamp(position.appended_at_us) if position.appended_at_us else None,
        "ordinal": position.ordinal,
        "records": position.records,
        "behind_s": behind_s,
        "fidelity": stored_fidelity(one, behind_s),
        "margin_s": margins,
        "entities": one.entities,
        "unproven": one.unproven,
        "unproven_because": [
            {
                "reason": why.reason,
                "class": why.entity_class,
                "partition": why.partition,
                "digest": why.digest,
                "since": stamp(why.since_us),
            }
            for why in one.unproven_because
        ],
        "state": one.freshness.state,
        "heard_s": one.heard_s,
        "stale_after_s": one.stale_after_s or None,
        "unreadable": one.freshness.unreadable,
        "error": one.report.trouble if one.report else "",
        "monitor": _monitor(one),
        "unprovable": sorted(one.info.get("unprovable", ())),
        "quarantined": one.quarantined,
        "deviations": dict(sorted(one.deviations.items())),
        "samples": {kind: _shown(raw) for kind, raw in sorted(one.samples.items())},
        "updated_at": stamp(one.updated_at_us),
        "lease": {"holder": lease.holder, "epoch": lease.epoch} if lease else None,
    }


def _monitor(one: StreamStatus) -> dict[str, Any] | None:
    """What the provider says of our reading, beside our own figures (TR-548 3.18)."""
    said = one.monitor
    if said is None:
        return None
    return {
        "read_id": said.read_id,
        "written_id": said.written_id,
        "lag_records": said.lag_records,
        "connections": said.connections,
        "since": stamp(said.since_us) if said.since_us else None,
        "difference": said.difference,
    }


def _monitor_text(said: dict[str, Any]) -> str:
    lag = said["lag_records"]
    told = [f"{counted(lag, 'records')} behind"] if lag is not None else []
    read, written = said["read_id"] or "nothing", said["written_id"] or "nothing"
    told.append(f"read up to {read}, written {written}")
    if (count := said["connections"]) is not None:
        told.append(f"{count} connection{'' if count == 1 else 's'} of this client")
    if said["since"]:
        told.append(f"since {said['since']}")
    return "; ".join(told)


def _shown(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _unproven(facts: dict[str, Any]) -> list[str]:
    """Why entities are unproven, and since when."""
    told = [f"{facts['unproven']:,} of {facts['entities']:,} entities"]
    for why in facts["unproven_because"]:
        if why["reason"] == UnprovenReason.NO_RESOURCE:
            continue
        of = why["class"] or "the stream"
        if why["partition"] is not None:
            of += f", partition {why['partition']!r}"
        told.append(f"{of}: {why['reason']} {why['digest']}".rstrip() + f", since {why['since']}")
    if facts["unprovable"]:
        classes = ", ".join(facts["unprovable"])
        told.append(f"of {classes} only what the log still held is known")
    return told


def _print(streams: Sequence[Stored], now_us: int) -> None:
    console = Console(highlight=False)
    for one, lease in streams:
        facts = _facts(one, lease, now_us)
        console.print(Text(plain(f"{one.consumer} / {one.stream}"), style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=12)
        for name, value in _rows(one, lease, facts):
            table.add_row(Text(f"  {name}"), Text(plain(value)))
        console.print(table)
        if facts["deviations"]:
            console.print(Text("  the provider deviates from its specification"))
            deviations_table = Table.grid(padding=(0, 2))
            deviations_table.add_column(justify="right", min_width=12)
            # The source that explains them takes time to import: only if there are some.
            explained = deviations_of(str(one.info.get("kind", "")))
            for kind, count in facts["deviations"].items():
                text = f"{kind}: {explained.get(kind, '')}".rstrip(": ")
                if kind in facts["samples"]:
                    text += f"; for example {facts['samples'][kind][:_SAMPLE_CHARS]!r}"
                deviations_table.add_row(Text(f"{count:,}"), Text(plain(text)))
            console.print(deviations_table)


def _rows(
    one: StreamStatus, lease: LeaseState | None, facts: dict[str, Any]
) -> list[tuple[str, str]]:
    """What is said of a stream, by name."""
    rows = [
        ("phase", f"{one.freshness.text}, attempt {facts['attempt']}{_progress(one)}"),
        ("position", f"{facts['token'] or 'none yet'}"),
        ("appended", facts["appended_at"] or "—"),
        ("behind", _behind(one, facts)),
        ("entities", f"{one.entities:,} from {counted(facts['records'], 'records')}"),
        ("quarantined", f"{one.quarantined:,}"),
    ]
    if facts["profile"]:
        rows.append(("profile", facts["profile"]))
    if facts["monitor"]:
        rows.append(("provider", _monitor_text(facts["monitor"])))
        if facts["monitor"]["difference"]:
            rows.append(("difference", facts["monitor"]["difference"]))
    if facts["error"]:
        rows.append(("error", facts["error"]))
    if one.position.phase is Phase.NOT_OFFERED:
        rows.append(("unproven", "all: the provider does not offer the stream any more"))
    elif facts["unprovable"] or facts["unproven"] or facts["unproven_because"]:
        rows += zip(repeat("unproven"), _unproven(facts), strict=False)
    if lease is not None:
        rows.append(("lease", f"{lease.holder or 'held by nobody'}, epoch {lease.epoch}"))
    return rows


def _progress(one: StreamStatus) -> str:
    """A remark where attempts come to nothing (A16)."""
    position = one.position
    if position.unaligned_attempts < NO_PROGRESS_AFTER:
        return ""
    return (
        f": no progress, {position.unaligned_attempts} attempts without an alignment,"
        f" {counted(position.attempt_records, 'records')} read by this one"
    )


def _behind(one: StreamStatus, facts: dict[str, Any]) -> str:
    if facts["behind_s"] is None:
        return "—"
    compaction = duration(one.info.get("compaction_delay_s"))
    retention = duration(one.info.get("tombstone_retention_s"))
    return (
        f"at most {duration(facts['behind_s'])}: {facts['fidelity']} "
        f"(compaction delay {compaction}, tombstone retention {retention})"
    )
