"""Which streams of a consumer a worker process follows, and under which names."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from instep.alignment.stream_identity import match_streams
from instep.model.streams import StreamInfo

__all__ = ["AssignedStreams"]


class AssignedStreams:
    """The streams of one worker process; it changes when a stream is found.

    One process names and assigns the streams of all. A worker that names them by itself could read
    another instance of the provider at that moment, and take a stream for one of another worker.
    """

    def __init__(self) -> None:
        self.ids: frozenset[str] = frozenset()
        """The ids of the streams that this process follows."""
        self.changed = asyncio.Event()
        """Set when streams were added."""
        self._streams: Sequence[StreamInfo] = ()

    def update(self, streams: Sequence[StreamInfo], ids: Collection[str]) -> None:
        """Take over what was assigned. `streams` has the streams of all processes."""
        self._streams, self.ids = streams, frozenset(ids)
        self.changed.set()

    def among(self, offered: Sequence[StreamInfo]) -> list[StreamInfo]:
        """Those of the offered streams that this process follows, by their ids in the store."""
        matched = match_streams(self._streams, offered)
        return [stream for stream in matched.named if stream.id in self.ids]
