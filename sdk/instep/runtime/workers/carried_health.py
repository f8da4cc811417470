"""Health that another process reports, as it goes on over the ends of that process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from instep.runtime.health import Health, IntakeHealth, StreamHealth

__all__ = ["counted", "counted_stream", "disconnected", "lost"]


def counted(health: Health, before: Health | None) -> Health:
    """The health of a consumer, counted since it was started first. `before` is that of the last
    process that has ended.
    """
    if before is None:
        return health
    known = {stream.stream: stream for stream in before.streams}
    streams = tuple(counted_stream(one, known.get(one.stream)) for one in health.streams)
    return msgspec.structs.replace(
        health, streams=streams, intake=_counted_intake(health.intake, before.intake)
    )


def counted_stream(stream: StreamHealth, before: StreamHealth | None) -> StreamHealth:
    """The same of a stream."""
    if before is None:
        return stream
    return msgspec.structs.replace(
        stream,
        records=before.records + stream.records,
        quarantined=before.quarantined + stream.quarantined,
        deviations=_sum(before.deviations, stream.deviations),
    )


def lost(health: Health, why: str) -> Health:
    """What is known of a consumer whose process has ended: nothing of it is of now."""
    intake = health.intake
    return msgspec.structs.replace(
        health,
        error=why,
        process_lost=True,
        streams=tuple(disconnected(one, why) for one in health.streams),
        intake=None if intake is None else msgspec.structs.replace(intake, address="", queued=0),
    )


def disconnected(stream: StreamHealth, why: str) -> StreamHealth:
    """The same of a stream."""
    return msgspec.structs.replace(
        stream,
        connected=False,
        caught_up=False,
        process_lost=True,
        last_error=stream.last_error or why,
    )


def _counted_intake(
    intake: IntakeHealth | None, before: IntakeHealth | None
) -> IntakeHealth | None:
    if intake is None or before is None:
        return intake or before
    return msgspec.structs.replace(
        intake,
        accepted=before.accepted + intake.accepted,
        duplicates=before.duplicates + intake.duplicates,
        refused=before.refused + intake.refused,
        commits=before.commits + intake.commits,
        delivered=before.delivered + intake.delivered,
        handler_failures=before.handler_failures + intake.handler_failures,
        failed_sequences=before.failed_sequences + intake.failed_sequences,
        deviations=_sum(before.deviations, intake.deviations),
        refusals=_sum(before.refusals, intake.refusals),
    )


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))
