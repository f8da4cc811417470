"""The order in which the streams of a context start (TR-548 ST-4.1): nodes first, for example."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from instep.model.position import Phase
from instep.model.streams import StreamInfo
from instep.runtime.health import StreamHealth
from instep.runtime.streams.worker import StreamWorker

__all__ = ["holds_others_up", "stage_of", "streams_before"]

_STUCK: Final = frozenset({Phase.LOST, Phase.SWEEP_HELD})


def stage_of(stream: StreamInfo, order: Sequence[str]) -> int:
    """The stage in which a stream starts, from 0: that of the first class of the order that it
    carries. Streams that declare none of them are in the last one.
    """
    stages = [stage for stage, name in enumerate(order) if name in stream.classes]
    return min(stages, default=len(order))


def streams_before(
    stream: StreamInfo, workers: Iterable[StreamWorker], order: Sequence[str]
) -> list[StreamWorker]:
    """The workers of the streams that start in an earlier stage than this one."""
    stage = stage_of(stream, order)
    return [worker for worker in workers if stage_of(worker.stream, order) < stage]


def holds_others_up(health: StreamHealth) -> bool:
    """Whether a stream is on its way to its alignment. One that cannot go on for now, because it
    has no connection or a sweep is held, holds up no other.
    """
    stuck = health.failed or health.last_error or health.refusal or health.phase in _STUCK
    return not (health.freshness.in_step or stuck)
