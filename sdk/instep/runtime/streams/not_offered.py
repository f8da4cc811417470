"""Streams that are not offered any more: tells of them, and retires those that need no proof
(A20).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from instep.errors import ConfigurationError, InstepError
from instep.model.streams import StreamInfo
from instep.ports.sink import Sink
from instep.runtime.health import StreamHealth
from instep.runtime.streams.discovery import StreamDiscovery

__all__ = ["NotOfferedStreams"]


class NotOfferedStreams:
    """The known streams of a consumer that its provider does not offer any more."""

    def __init__(
        self,
        discovery: StreamDiscovery,
        sink: Sink,
        *,
        report: Callable[[str, str, str], None],
    ) -> None:
        self.streams: dict[str, StreamInfo] = {}
        """By id."""
        self._tried: dict[str, dict[str, int]] = {}
        """The aligned streams with their attempts, as a retirement was last tried with them."""
        self._discovery, self._sink, self._report = discovery, sink, report

    def forget(self) -> None:
        """The consumer begins anew: what is not offered is found again."""
        self.streams.clear()
        self._tried.clear()

    def found(self, id_: str) -> None:
        """The stream is offered under another name: it is followed from now on."""
        self.streams.pop(id_, None)

    async def settle(self, health: Iterable[StreamHealth]) -> list[str]:
        """Take over what the last discovery has found: mark what is not offered, and what is again,
        and retire what is proven by the streams that are aligned. Returns the ids of streams of
        which nothing is stored any more, by us or by the command.
        """
        missing = {one.id: one for one in self._discovery.not_offered()}
        try:
            gone = await self._gone(missing)
            for id_ in gone:
                del self.streams[id_]
            for id_ in sorted(self.streams.keys() - missing.keys()):
                await self._sink.mark_offered(id_, offered=True)
                del self.streams[id_]
                self._report(id_, "offered-again", "the provider offers it again")
            for id_, stream in missing.items():
                if id_ not in self.streams and id_ not in gone:
                    await self._sink.mark_offered(id_, offered=False)
                    self.streams[id_] = stream
                    text = "the provider does not offer it any more: its entities are unproven"
                    self._report(id_, "not-offered", text)
            return gone + await self._retire(health)
        except InstepError as error:
            # Asked again after the next discovery.
            self._report("", "undiscovered", str(error))
            return []

    async def _gone(self, missing: Iterable[str]) -> list[str]:
        """Those of which nothing is stored any more."""
        if not self.streams:
            return []
        stored = {stream.id for stream in await self._sink.known_streams()}
        return [id_ for id_ in missing if id_ in self.streams and id_ not in stored]

    async def _retire(self, health: Iterable[StreamHealth]) -> list[str]:
        proofs = {one.stream: one.attempt for one in health if one.freshness.in_step}
        retired: list[str] = []
        # Nothing else is proven where no stream was aligned anew.
        for id_ in [id_ for id_ in self.streams if proofs and self._tried.get(id_) != proofs]:
            with contextlib.suppress(ConfigurationError):
                done = await self._sink.retire(id_, proven_by=proofs.keys())
                if not done.left:
                    del self.streams[id_]
                    retired.append(id_)
                    text = f"its last {done.removed:,} entities are proven by other streams"
                    self._report(id_, "stream-retired", text)
            self._tried[id_] = proofs
        return retired
