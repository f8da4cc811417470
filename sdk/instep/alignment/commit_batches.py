"""Makes a batch: the position after some records, and what a commit carries with it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from instep.alignment.settings import AlignmentSettings
from instep.alignment.sweep_trigger import PartitionProgress
from instep.model.batches import Batch, SweepStep
from instep.model.columns import Columns, CompactedAway, RecordColumns
from instep.model.ordering import latest_records
from instep.model.position import RECENT_RECORDS, Phase, Position
from instep.model.records import DecodedRecords, RecordChunk, RecordHeader
from instep.model.streams import Mode, StreamInfo

__all__ = ["advanced_position", "batch_at", "decode_chunk", "is_incremental"]


def advanced_position(
    position: Position,
    progress: PartitionProgress,
    records: Sequence[RecordHeader] = (),
    offsets: dict[str, int] | None = None,
    *,
    watermark_us: int,
    now_us: int = 0,
    recent_records: int = RECENT_RECORDS,
) -> Position:
    """The position after these records, as `progress` has followed them; it remembers the tokens of
    the last `recent_records`.
    """
    # An entity that an attempt has marked may end, and its tombstone expire, before the attempt
    # reads it. Until the attempt has seen enough, the watermark of its opening holds (A8). A lost
    # stream keeps its own.
    # Nor is anything known while it is in doubt whether the stream was continued.
    settled = position.phase not in (Phase.ALIGNING, Phase.CONFIRMING, Phase.LOST)
    watermark_us = max(watermark_us, position.watermark_us) if settled else position.watermark_us
    changes: dict[str, Any] = {"ordinal": position.ordinal + 1, "watermark_us": watermark_us}
    if records:
        newest_us = max(position.appended_at_us, progress.newest_us)
        if settled:
            changes["watermark_us"] = max(watermark_us, min(newest_us, now_us))
        changes |= {
            "token": records[-1].token,
            "offsets": offsets,
            "appended_us": position.appended_us | progress.appended_us,
            "appended_at_us": newest_us,
            "records": position.records + len(records),
            "attempt_records": position.attempt_records + len(records),
            "recent": position.remember(_last_tokens(records, recent_records), recent_records),
        }
    return msgspec.structs.replace(position, **changes)


def _last_tokens(records: Sequence[RecordHeader], count: int) -> Sequence[str]:
    if isinstance(records, Columns):
        return records.last_tokens(count)
    return [record.token for record in records[-count:]]


def is_incremental(stream: StreamInfo) -> bool:
    """Whether an earlier statement may count beside a later one under the same key: a change, an
    end that may name an entity that only the baseline knows, or an entity of another class (A13).
    """
    return stream.partial_updates or stream.mode is Mode.BASELINE or not stream.one_class


def decode_chunk(
    stream: StreamInfo,
    chunk: RecordChunk,
    records: Sequence[RecordHeader],
    deviations: dict[str, int],
    *,
    latest_only: bool,
    in_order: bool = False,
) -> DecodedRecords:
    """What a commit needs of these records of the delivery, with all that cannot be read (A11), and
    the departures from the specification (A10).

    `in_order`: the last record of a key counts, whatever its time (A21). `latest_only`: only the
    statement that counts for each key is decoded. The others have no effect, so they are neither
    decoded nor quarantined. Where a statement that counts cannot be read, all are decoded.
    """
    found = None
    if in_order and chunk.whole:
        records = _last_of_each(records)
    present = records if isinstance(records, Columns) else _present(records)
    if latest_only and chunk.whole and not is_incremental(stream):
        found = chunk.decode(latest_records(present))
    if found is None or found.unreadable:
        opened = isinstance(present, (list, RecordColumns))
        found = chunk.decode(present if opened else _present(present))
    counts = dict(deviations)
    for kind, times in (*chunk.deviations.items(), *found.deviations.items()):
        counts[kind] = counts.get(kind, 0) + times
    unreadable = [*chunk.unreadable, *found.unreadable]
    return DecodedRecords(found.records, unreadable, counts, chunk.samples)


def _last_of_each(records: Sequence[RecordHeader]) -> list[RecordHeader]:
    """The last record of each key, of each class under it (A13), in order."""
    last = {
        (one.key, getattr(one, "entity_class", "")): at
        for at, one in enumerate(records)
        if not isinstance(one, CompactedAway)
    }
    return [records[at] for at in sorted(last.values())]


def _present(records: Sequence[RecordHeader]) -> list[RecordHeader]:
    return [one for one in records if not isinstance(one, CompactedAway)]


def batch_at(
    stream: StreamInfo,
    settings: AlignmentSettings,
    position: Position,
    content: Callable[[], DecodedRecords] | None = None,
    *,
    lineage: int | None = None,
) -> Batch:
    """The batch that brings a store to `position`, with a step of the sweep that is going on.

    `lineage`: see `Batch.lineage`.
    """
    by_uuid = stream.mode is Mode.BASELINE
    sweep = None
    if position.phase is Phase.SWEEPING:
        sweep = SweepStep(
            position.attempt,
            position.sweep_cursor,
            settings.sweep_step_records,
            stream.readable if by_uuid else None,
            position.holds,
        )
    return Batch(
        stream.id,
        position,
        position.ordinal - 1,
        sweep=sweep,
        by_uuid=by_uuid,
        lineage=lineage,
        content=content,
    )
