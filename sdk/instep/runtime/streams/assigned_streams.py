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
        """Set when streams were added, or are offered under another uuid."""
        self._streams: Sequence[StreamInfo] = ()
        self._renamed: dict[str, StreamInfo] = {}

    def update(self, streams: Sequence[StreamInfo], ids: Collection[str]) -> None:
        """Take over what was assigned. `streams` has the streams of all processes."""
        before = {stream.id: stream.uuid for stream in self._streams}
        self._renamed |= {
            one.id: one for one in streams if before.get(one.id, one.uuid) != one.uuid
        }
        self._streams, self.ids = streams, frozenset(ids)
        self.changed.set()

    def take_renamed(self) -> dict[str, StreamInfo]:
        """The streams that are offered under another uuid since this was asked, by their ids."""
        renamed, self._renamed = self._renamed, {}
        return renamed

    def among(self, offered: Sequence[StreamInfo]) -> list[StreamInfo]:
        """Those of the offered streams that this process follows, by their ids in the store."""
        matched = match_streams(self._streams, offered)
        return [stream for stream in matched.named if stream.id in self.ids]
