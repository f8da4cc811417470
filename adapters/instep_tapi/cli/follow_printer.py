"""What `instep follow` prints: a line for each record, or for each change of an entity."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Column

from instep.cli.log_lines import say
from instep.cli.output import (
    KEY_WIDTH,
    MOMENT_WIDTH,
    WIDE,
    Format,
    Listing,
    json_line,
    moment,
    one_line,
    stamp,
)
from instep.model.entities import Change
from instep.model.records import Record, RecordType
from instep.model.streams import StreamInfo

__all__ = ["FollowPrinter"]

_BODY_SHOWN_BYTES: Final = 400
"""Bytes of a body that are read for the table, whose column shows fewer."""
_CLOCK: Final = slice(11, 19)
"""The time of day in `moment`: all of it that a narrow terminal has room for."""
_WHAT: Final = {
    RecordType.CREATE_UPDATE: "update",
    RecordType.DELETE: "delete",
    RecordType.TOMBSTONE: "tombstone",
    RecordType.CHANGE: "change",
}


class _RecordLine(msgspec.Struct, omit_defaults=True, rename={"entity_class": "class"}):
    """A record as a line of JSON; `ends` shows where the record ends its entity (A4)."""

    stream: str
    kind: str
    key: str
    entity_class: str
    token: str
    appended_at: str
    partition: str = ""
    offset: int = -1
    ends: bool = False
    body: msgspec.Raw | None = None
    envelope: msgspec.Raw | None = None


class _ChangeLine(msgspec.Struct, omit_defaults=True, rename={"entity_class": "class"}):
    """A change of an entity as a line of JSON, as `instep changes` prints it."""

    stream: str
    change: str
    key: str
    entity_class: str
    kind: str | None
    token: str
    appended_at: str
    body: msgspec.Raw | None = None


class FollowPrinter:
    """Prints what is followed, line by line, and counts it. A reader that is slow or gone is felt
    at once: nothing is buffered here.
    """

    def __init__(self, output: Format, limit: int | None) -> None:
        self._output = output
        self._limit = limit
        self._profiles: dict[str, str] = {}
        self.lines = 0
        """Lines printed so far."""
        self.full = asyncio.Event()
        """Set when as many lines were printed as were asked for: no more are printed then."""
        console = Console(highlight=False)
        self._wide = console.width >= WIDE
        columns = [Column("Appended", width=MOMENT_WIDTH if self._wide else 8)]
        columns += [Column("What", width=9)]
        columns += [Column("Stream", ratio=2, overflow="fold")] * self._wide
        columns += [Column("Class", ratio=4, overflow="fold")]
        columns += [Column("Key", width=KEY_WIDTH, overflow="fold")]
        columns += [Column("Body", ratio=5)] * self._wide
        self._listing = Listing(console, columns)

    def record(self, record: Record) -> None:
        """Print a record."""
        if self.full.is_set():
            return
        if self._output is Format.JSONL:
            line = _RecordLine(
                record.stream,
                record.kind.name,
                record.key,
                record.entity_class,
                record.token,
                stamp(record.appended_at_us),
                record.partition,
                record.offset,
                record.ends,
                one_line(record.body) if record.body else None,
                one_line(record.envelope) if record.envelope else None,
            )
            json_line(line)
        else:
            what = _WHAT[record.kind]
            if record.ends and not record.kind.ends_entity:
                what = "clear"  # an alarm, whose statement ends it (A4)
            self._row(what, record)
        self._counted()

    def change(self, change: Change) -> None:
        """Print a change of an entity."""
        if self.full.is_set():
            return
        if self._output is Format.JSONL:
            line = _ChangeLine(
                change.stream,
                change.change.value,
                change.key,
                change.entity_class,
                change.kind.name if change.kind is not None else None,
                change.token,
                stamp(change.appended_at_us),
                one_line(change.body) if change.body else None,
            )
            json_line(line)
        else:
            self._row(change.change.value, change)
        self._counted()

    def say(self, text: str, level: int = logging.WARNING) -> None:
        """Say something about the following itself, on stderr."""
        say(text, logger="instep.follow", level=level)

    def profile(self, stream: StreamInfo) -> None:
        """Say by which edition a stream is read: once, and when that changes."""
        if stream.profile != self._profiles.get(stream.id):
            self._profiles[stream.id] = stream.profile
            self.say(f"{stream.id}: {stream.profile}", logging.INFO)

    def flush(self) -> None:
        """Print what was added since the last call."""
        if self._listing.rows:
            self._listing.flush()
        sys.stdout.flush()

    def _row(self, what: str, about: Record | Change) -> None:
        at, entity_class = moment(about.appended_at_us), about.entity_class or "—"
        if self._wide:
            body = about.body[:_BODY_SHOWN_BYTES].decode(errors="replace")
            self._listing.add(at, what, about.stream, entity_class, about.key, body)
        else:
            self._listing.add(at[_CLOCK], what, entity_class, about.key)

    def _counted(self) -> None:
        self.lines += 1
        if self.lines == self._limit:
            self.full.set()
