"""Where the events of a publisher go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from instep.model.cloud_events import CloudEvent

__all__ = ["PublishTarget"]


class PublishTarget(Protocol):
    """Where events go: a receiver of CloudEvents, a broker."""

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Publish the events in their order; return when the target has them durably.

        Raises `SourceError`; where it is retriable, all of them are published again.
        """
        ...
