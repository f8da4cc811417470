"""A source that plays a script, for tests of behaviour that a real provider shows only rarely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from instep.errors import TokenRefusedError
from instep.model.records import Record, RecordChunk
from instep.model.streams import Start, StreamInfo, StreamState
from instep.ports.source import Feed, Source

__all__ = ["SILENT", "ConnectionRefused", "ScriptedFeed", "ScriptedSource", "Step", "log_script"]

SILENT: Final = "silent"
"""A step after which the connection stays open and nothing arrives."""
Step = RecordChunk | Exception | str
"""What one `receive` does: return this chunk, raise this error, or `SILENT`."""
Script = Sequence[Step] | Callable[[str | Start], Sequence[Step]]
"""The steps of one connection, or a function that returns them for the place of the opening."""


class ConnectionRefused(Exception):
    """As the first step of a script: opening the connection raises `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class ScriptedFeed(Feed):
    """One connection, which plays its steps and is silent after the last."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)

    async def receive(self) -> RecordChunk:
        """See `Feed`: the next step."""
        await asyncio.sleep(0)
        if not self._steps or self._steps[0] == SILENT:
            await asyncio.Event().wait()
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        assert isinstance(step, RecordChunk)
        return step


class ScriptedSource(Source):
    """Plays one script a connection; the last one is repeated.

    ::

        source = ScriptedSource(
            [RecordChunk([first, second]), UnreachableError("gone")],  # the first connection
            [RecordChunk([third]), SILENT],                            # each one after it
        )

    `log_script` makes a script that answers as an honest provider with this log would.
    """

    def __init__(self, *connections: Script, stream: StreamInfo | None = None) -> None:
        self.stream = stream or StreamInfo(id="scripted", origin="a script", kind="scripted")
        self.moved: StreamInfo | None = None
        """The stream to return from the second discovery on; None: the same as before."""
        self.refreshed: StreamInfo | None = None
        """The stream as `refresh` returns it; None: the same as before."""
        self.starts: list[str | Start] = []
        """The start of each connection, in order."""
        self.pages: list[list[Record]] = []
        """The pages that `baseline` returns."""
        self.stream_state = StreamState.ACTIVE
        """The state that `state` returns."""
        self.oldest: Script | None = None
        """What `probe` plays; None: what the first connection at the oldest record has played, as a
        provider that still has its log.
        """
        self.probes = 0
        self.discoveries = 0
        self.closed = False
        self._from_oldest: Sequence[Step] = ()
        self._connections: Iterator[Script] = iter(connections)
        self._last: Script = [SILENT]

    async def discover(self) -> Sequence[StreamInfo]:
        """See `Source`."""
        self.discoveries += 1
        if self.discoveries > 1 and self.moved is not None:
            self.stream = self.moved
        return [self.stream]

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        """See `Source`: `refreshed`."""
        return self.refreshed or stream

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[ScriptedFeed]:
        """See `Source`: plays the next script."""
        assert stream.id == self.stream.id, f"there is no stream {stream.id!r} in the script"
        self.starts.append(start)
        script = self._last = next(self._connections, self._last)
        steps = script(start) if callable(script) else script
        if steps and isinstance(steps[0], ConnectionRefused):
            raise steps[0].error
        if start is Start.OLDEST and not self._from_oldest:
            self._from_oldest = [step for step in steps if isinstance(step, RecordChunk)]
        yield ScriptedFeed(steps)

    @asynccontextmanager
    async def probe(self, stream: StreamInfo) -> AsyncIterator[ScriptedFeed]:
        """See `Source`: plays `oldest`."""
        del stream
        self.probes += 1
        script = self._from_oldest if self.oldest is None else self.oldest
        steps = script(Start.OLDEST) if callable(script) else script
        if steps and isinstance(steps[0], ConnectionRefused):
            raise steps[0].error
        yield ScriptedFeed(steps)

    async def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        """See `Source`: gives `pages` as they are."""
        del stream, opened_at_us
        for page in self.pages:
            yield page

    async def state(self, stream: StreamInfo) -> StreamState:
        """See `Source`: `stream_state`."""
        del stream
        return self.stream_state

    async def close(self) -> None:
        """See `Source`."""
        self.closed = True


def log_script(records: Sequence[Record]) -> Callable[[str | Start], Sequence[Step]]:
    """The script of an honest provider with this log, one record a step: it continues after a
    token, and refuses an unknown one with `TokenRefusedError`.
    """

    def play(start: str | Start) -> Sequence[Step]:
        tokens = [record.token for record in records]
        if isinstance(start, Start):
            at = 0 if start is Start.OLDEST else len(records)
        elif start in tokens:
            at = tokens.index(start) + 1
        else:
            return [ConnectionRefused(TokenRefusedError("no such token", where="the script"))]
        return [RecordChunk([record]) for record in records[at:]]

    return play
