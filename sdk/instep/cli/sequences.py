"""`instep sequences`, and the part of `instep status` about numbered sequences: their ranges, gaps
and waiting messages, and what became of their numbers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from instep.cli.output import Format, FormatOption, Listing, counted, json_line, plain, stamp
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
from instep.ports.reader import (
    MessageReader,
    SequenceCounts,
    SequenceStatus,
    StoreReader,
)
from instep.sequencing.ends import NumberEnd, RecordedEnd, resolve_ends
from instep.sequencing.operator_actions import OperatorAction, why_not
from instep.sequencing.settings import SequencerSettings

__all__ = [
    "Wait",
    "action_outcome",
    "close",
    "give_up",
    "list_",
    "reset",
    "resume",
    "show",
    "show_sequences",
]

_SHOWN_RANGES = 10
_SHOWN_SEQUENCES = 100
_POLL_S = 0.1
_NAMES = {
    NumberEnd.LOST: "lost",
    NumberEnd.EXPIRED: "expired",
    NumberEnd.FAILED: "failed_numbers",
}
_TROUBLES = tuple(_NAMES)


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
            json_line(sequence_facts(one))
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


def sequence_remark(one: SequenceStatus, facts: dict[str, Any]) -> str:
    """What needs attention, in one line."""
    parts = ["blocked: " * one.blocked + one.error, facts["reason"]]
    parts += [f"{end!s} {facts[_NAMES[end]]}" for end in _TROUBLES if facts[_NAMES[end]]]
    if facts["content_changed"]:
        parts.append(f"other content came {facts['content_changed']:,} times")
    return ", ".join(filter(None, parts))


Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, max=3600, help="How long to wait until it is done."
    ),
]
Sequence = Annotated[str, typer.Option("--stream", metavar="ID", help="The sequence.")]


async def list_(
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    stream: StreamOption = None,
    troubled: Annotated[
        bool,
        typer.Option(
            "--troubled",
            help="Only those that have failed, are blocked, wait behind a gap, or lost something.",
        ),
    ] = False,
    limit: LimitOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show sequences with what is received, missing and waiting; all of them as JSON lines.

    Example: instep sequences list --troubled
    """
    count = 0
    async with aclosing(_chosen(config, store, consumer, stream, troubled)) as found:
        async for one in found:
            count += 1
            facts = sequence_facts(one)
            if output is Format.JSONL:
                json_line(facts)
            else:
                remarks = sequence_remark(one, facts)
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


async def show(
    id: Annotated[str, typer.Argument(metavar="ID")],
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one sequence, and what became of each of its numbers.

    Of a sequence that was forgotten, what is recorded. As JSON lines: the sequence, then each range
    of numbers with its end.

    Example: instep sequences show urn:example:sequence-1
    """
    stream = id
    found = False
    async with open_stores(config, store, consumer, "sequences show") as places:
        for place in places:
            if not isinstance(place.reader, MessageReader):
                continue
            known = [one async for one in place.reader.sequences(stream=stream)]
            status = {one.consumer: one for one in known}
            for name in filter(place.has, await place.reader.consumers_of_messages()):
                ends = await place.reader.numbers(name, stream)
                if name in status or ends:
                    found = True
                    _show_one(name, stream, status.get(name), ends, output)
    if not found:
        raise _unknown_sequence(stream, "ID")


async def give_up(
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
    wait_s: Wait = 3.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Go on without the messages that are missing: they are reported as lost, and refused later.

    In a sequence that has failed, what it kept is delivered; it accepts nothing new before
    `instep sequences resume`.

    Example: instep sequences give-up --stream orders --through 12
    """
    await _act(config, store, consumer, stream, OperatorAction.GIVE_UP, through, wait_s, output)


async def reset(
    stream: Sequence,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    following: Annotated[
        int | None,
        typer.Option("--next", metavar="N", help="The next number.", show_default="the first"),
    ] = None,
    wait_s: Wait = 3.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let a sequence begin anew, also after it has failed; what waits behind a gap goes to the dead
    letter.

    Example: instep sequences reset --stream orders --next 1
    """
    await _act(config, store, consumer, stream, OperatorAction.RESET, following, wait_s, output)


async def close(
    stream: Sequence,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    wait_s: Wait = 3.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Accept nothing more of a sequence; in time it is forgotten.

    Example: instep sequences close --stream orders
    """
    await _act(config, store, consumer, stream, OperatorAction.CLOSE, None, wait_s, output)


async def resume(
    stream: Sequence,
    config: ConfigArgument = None,
    store: StoreOption = None,
    consumer: ConsumerOption = None,
    wait_s: Wait = 3.0,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let a sequence that has failed go on: what is missing may come again, and what it kept
    follows in order.

    Example: instep sequences resume --stream orders
    """
    await _act(config, store, consumer, stream, OperatorAction.RESUME, None, wait_s, output)


def _show_one(
    consumer: str,
    stream: str,
    status: SequenceStatus | None,
    ends: list[RecordedEnd],
    output: Format,
) -> None:
    facts = (
        sequence_facts(status)
        if status is not None
        else {"consumer": consumer, "sequence": stream, "phase": "forgotten"}
    )
    lines = [
        {
            "numbers": str(Ranges.of((one.low, one.high))),
            "end": one.end,
            "reason": one.reason,
            "by": one.by,
            "told": one.told,
            "decided_at": stamp(one.at_us) if one.at_us else None,
            "epoch": one.epoch,
        }
        for one in ends
    ]
    if output is Format.JSONL:
        for line in (facts, *lines):
            json_line(line)
        return
    typer.echo(plain(f"{consumer} / {stream}"))
    for name, value in facts.items():
        if name not in ("consumer", "sequence") and value not in ("", None, False):
            typer.echo(plain(f"  {name.replace('_', ' ')}: {value}"))
    for line in lines:
        words = [f"  {line['numbers']}: {line['end']}"]
        words += [f"({line['reason']})"] if line["reason"] else []
        words += [f"by the {line['by']}"] if line["by"] else []
        words += [f"told: {line['told']}"] if line["told"] else []
        words += [str(line["decided_at"])] if line["decided_at"] else []
        words += [f"count {line['epoch']}"] if line["epoch"] else []
        typer.echo(plain(" ".join(words)))


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
    wait_s: float,
    output: Format,
) -> None:
    found = failed = False
    async with open_stores(config, store, consumer, "sequences") as places:
        for place in places:
            if not isinstance(place.reader, MessageReader):
                continue
            known = [one async for one in place.reader.sequences(stream=stream)]
            for one in known:
                if place.has(one.consumer):
                    found = True
                    outcome = await _ask(place.reader, one, action, number, wait_s)
                    failed = failed or ": refused: " in outcome
                    _tell(one, action, number, outcome, output)
    if not found:
        raise _unknown_sequence(stream, "--stream")
    if failed:
        raise typer.Exit(1)


async def _ask(
    reader: MessageReader,
    one: SequenceStatus,
    action: OperatorAction,
    number: int | None,
    wait_s: float,
) -> str:
    """Ask for an action; returns what became of it, empty where nobody has done it in time."""
    settings = one.state.settings or SequencerSettings()
    why = why_not(one.state, settings, action, number, held=one.held > 0)
    if why:
        return f"{action!s}: refused: {why}"
    id = await reader.request_action(one.consumer, one.stream, action, number)
    return await action_outcome(reader, id, time.monotonic() + wait_s)


async def action_outcome(reader: MessageReader, id: int, until_s: float) -> str:
    """What became of a request; empty where nobody has done it by then (monotonic time)."""
    while True:
        outcome = await reader.action_outcome(id)
        if outcome or not id or time.monotonic() >= until_s:
            return outcome
        await asyncio.sleep(_POLL_S)


def _tell(
    one: SequenceStatus, action: OperatorAction, number: int | None, outcome: str, output: Format
) -> None:
    if output is Format.JSONL:
        told = {"consumer": one.consumer, "sequence": one.stream, "action": action}
        json_line({**told, "number": number, "outcome": outcome})
    else:
        later = f"{action!s}: the consumer, running now or later, does it within seconds"
        typer.echo(plain(outcome or later))


def _unknown_sequence(stream: str, where: str) -> ConfigurationError:
    return ConfigurationError(
        f"there is no sequence {stream!r}", where=where, hint="`instep sequences list` shows them"
    )


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
        facts = sequence_facts(one)
        remarks = sequence_remark(one, facts)
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
    for name, each in counts.items():
        for told in _dead_and_deviations(each):
            console.print(f"{plain(name)}: {told}", markup=False, soft_wrap=True)
    for name, each in counts.items() if many else ():
        console.print(
            f"{plain(name)}: {counted(each.sequences, 'sequences')}, "
            f"{counted(each.held, 'messages')} held, "
            f"{each.blocked:,} blocked; `instep sequences list` shows them all",
            markup=False,
            soft_wrap=True,
        )


def _dead_and_deviations(counts: SequenceCounts) -> list[str]:
    """What the dead letter has, and in what the peers deviate."""
    told = []
    if counts.dead:
        told.append(
            f"{counted(counts.dead, 'messages')} in the dead letter, {counts.dead_bytes:,} bytes, "
            f"the oldest since {stamp(counts.dead_since_us)}; "
            "`instep messages dead list` shows them"
        )
    if counts.ended:
        ended = ", ".join(f"{count:,} {end}" for end, count in sorted(counts.ended.items()))
        told.append(f"numbers that ended otherwise than by delivery: {ended}")
    if counts.deviations:
        kinds = sorted(counts.deviations.items())
        told.append(f"deviations: {', '.join(f'{kind} {count:,}' for kind, count in kinds)}")
    return told


def sequence_facts(one: SequenceStatus) -> dict[str, Any]:
    """A sequence as its JSON line has it."""
    state = one.state
    ends: dict[NumberEnd, Ranges] = {}
    for end in resolve_ends(state, one.held_numbers, one.record):
        if end.epoch == state.epoch:
            ends.setdefault(end.end, Ranges()).add_range(end.low, end.high)
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
        **{_NAMES[end]: _text(ends.get(end, Ranges())) for end in _TROUBLES},
        "filled": _text(ends.get(NumberEnd.FILLED, Ranges())),
        "reason": state.reason,
        "content_changed": state.content_changed,
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
