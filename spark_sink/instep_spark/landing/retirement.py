"""Removes what is landed of a stream that is not offered any more, and the stream with it (A20):
an attempt that meets nothing, and its sweep.
"""

from __future__ import annotations

from collections.abc import Collection

from instep.errors import SinkError
from instep.model.batches import Batch, SweepStep
from instep.model.position import Position
from instep.model.streams import Retirement
from instep_spark.landing import live_view
from instep_spark.landing.commit import LandingTables
from instep_spark.landing.stream_metadata import StreamMetadata
from instep_spark.landing.writers.base import Writer

__all__ = ["retire"]


def retire(
    writer: Writer,
    landing: LandingTables,
    stream_metadata: StreamMetadata,
    consumer: str,
    stream: str,
    proven_by: Collection[str] | None,
) -> Retirement:
    """Retire the stream with all its entities; with `proven_by` only where each of them is proven
    in one of these streams. Raises `SinkError` where the stream is offered, or unknown.
    """
    known = {one.id: one for one in stream_metadata.streams()}
    if stream not in known:
        raise SinkError("there is no such stream", where=stream)
    if not known[stream].not_offered_since_us:
        raise SinkError(
            "the provider offers the stream, as far as is known",
            where=stream,
            hint="only one that is not offered any more is retired (`instep streams list`)",
        )
    own = left = live_view.identities(writer, consumer, stream)
    for other in proven_by or ():
        left -= live_view.identities(writer, consumer, other, proven_only=True)
    if proven_by is not None and left:
        return Retirement(0, len(left))
    landing.forget(stream)
    before = landing.state(stream).position
    attempt = before.attempt + 1
    # Not to be held by the guard: it is meant to remove all (A6).
    stream_metadata.release(stream, attempt)
    position = Position(
        ordinal=before.ordinal + 1,
        attempt=attempt,
        lineage=before.lineage,
        records=before.records,
    )
    [answer] = landing.commit([Batch(stream, position, before.ordinal, sweep=SweepStep(attempt))])
    if isinstance(answer, SinkError):
        raise answer
    stream_metadata.retire(stream)
    return Retirement(len(own))
