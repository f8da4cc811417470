"""The stream, records and scripted source that the tests of the core and its drivers share."""

from __future__ import annotations

from collections.abc import AsyncIterator

from instep import Mode, Record, RecordType, StreamInfo, testing
from instep.model import RecordChunk
from instep.testing import SILENT, ConnectionRefused, ScriptedFeed, Step
from instep.testing.scripted_source import Script

__all__ = [
    "SILENT",
    "STREAM",
    "T0_US",
    "ConnectionRefused",
    "ScriptedFeed",
    "ScriptedSource",
    "Step",
    "info",
    "record",
    "records",
]

STREAM = "alarms"
T0_US = 1_700_000_000_000_000


def info(**changes: object) -> StreamInfo:
    """A compacted stream with the retentions that TR-548 4.3 proposes."""
    fields: dict[str, object] = {
        "id": STREAM,
        "origin": "a/1",
        "kind": "scripted",
        "classes": ("NODE",),
        "may_start_with_snapshot": False,
        "compaction_delay_s": 600.0,
        "tombstone_retention_s": 4 * 3600.0,
    }
    return StreamInfo(**(fields | changes))  # type: ignore[arg-type]


def record(offset: int, key: str = "", *, ends: bool = False, at_s: float | None = None) -> Record:
    """The record at this offset of partition 0, appended `at_s` (default: the offset) after T0."""
    return Record(
        stream=STREAM,
        key=key or f"key-{offset}",
        kind=RecordType.TOMBSTONE if ends else RecordType.CREATE_UPDATE,
        token=f"token-{offset}",
        appended_at_us=T0_US + int((offset if at_s is None else at_s) * 1_000_000),
        partition="0",
        offset=offset,
        entity_class="NODE",
        body=b"" if ends else b'{"offset":%d}' % offset,
        ends=ends,
    )


def records(*offsets: int) -> RecordChunk:
    """Return a chunk with the records at these offsets."""
    return RecordChunk([record(offset) for offset in offsets])


class ScriptedSource(testing.ScriptedSource):
    """The shipped one, with `info()` for its stream; a baseline is read after T0 alone."""

    def __init__(self, *connections: Script, stream: StreamInfo | None = None) -> None:
        super().__init__(*connections, stream=stream or info())

    def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        assert stream.mode is Mode.BASELINE
        assert opened_at_us >= T0_US
        return super().baseline(stream, opened_at_us)
