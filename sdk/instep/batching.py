"""Makes a batch: the position after some records, and what a commit carries with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from instep.ports import Mode, StreamInfo
from instep.position import RECENT_RECORDS, Phase, Position
from instep.records import Batch, Delivery, Record, SweepStep
from instep.settings import AlignmentSettings
from instep.sweep_due import Progress

__all__ = ["NOTHING", "advanced", "batch_of"]

NOTHING = Delivery([])


def advanced(
    position: Position,
    progress: Progress,
    records: Sequence[Record] = (),
    offsets: dict[str, int] | None = None,
    *,
    known_to_us: int,
    now_us: int = 0,
) -> Position:
    """The position after these records, by what `progress` has followed of them."""
    known_to_us = max(known_to_us, position.known_to_us)
    changes: dict[str, Any] = {"ordinal": position.ordinal + 1, "known_to_us": known_to_us}
    if records:
        newest_us = max(position.appended_at_us, progress.newest_us)
        changes |= {
            "token": records[-1].token,
            "offsets": offsets,
            "appended_us": position.appended_us | progress.appended_us,
            "appended_at_us": newest_us,
            "records": position.records + len(records),
            "known_to_us": max(known_to_us, min(newest_us, now_us)),
            "recent": position.remember([r.token for r in records[-RECENT_RECORDS:]]),
        }
    return msgspec.structs.replace(position, **changes)


def batch_of(
    stream: StreamInfo,
    settings: AlignmentSettings,
    position: Position,
    records: list[Record] | None = None,
    delivery: Delivery = NOTHING,
    deviations: dict[str, int] | None = None,
) -> Batch:
    """The batch that brings a store to `position`, with a step of the sweep that is going on."""
    by_uuid = stream.mode is Mode.BASELINE
    sweep = None
    if position.phase is Phase.SWEEPING:
        sweep = SweepStep(
            position.attempt,
            position.sweep_cursor,
            settings.sweep_step_records,
            stream.readable if by_uuid else None,
        )
    return Batch(
        stream.id,
        position,
        position.ordinal - 1,
        records or [],
        delivery.unreadable,
        deviations or {},
        sweep,
        by_uuid,
    )
