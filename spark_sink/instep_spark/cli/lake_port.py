"""The port of `instep lake run`: the same probes and figures as those of `instep run`.

Spark's statements hold the main thread for minutes, so the port has a loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final

from instep.metrics.port import OperationsPort
from instep.runtime.health import ConsumerState, Health, LakeHealth, TableHealth

__all__ = ["LakeHealthTracker", "serving"]

_WHERE: Final = "--listen"


class LakeHealthTracker:
    """What is known of the tables of one lake. Told by one thread, asked by another."""

    def __init__(self, consumer: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._consumer = consumer
        self._clock = clock
        self._looked_s: float | None = None
        self._tables: Mapping[str, tuple[int, float | None]] = {}
        """Table → ordinals that it lacks, and since when it lacks some."""
        self._error = ""

    def lacks(self, ordinals: Mapping[str, int]) -> None:
        """A look has shown how many ordinals each table lacks."""
        now_s, before = self._clock(), self._tables
        # Replaced as a whole: whoever asks sees one look or the other.
        self._tables = {
            table: (count, (before.get(table, (0, None))[1] or now_s) if count else None)
            for table, count in ordinals.items()
        }
        self._looked_s = now_s

    def failed(self, error: BaseException) -> None:
        """The run has ended with this error."""
        self._error = str(error) or type(error).__name__

    def health(self) -> Health:
        """The health of the job, in the shape of that of a consumer."""
        now_s, looked_s = self._clock(), self._looked_s
        tables = tuple(
            TableHealth(
                table=table,
                behind=count,
                behind_s=0.0 if since_s is None else now_s - since_s,
            )
            for table, (count, since_s) in self._tables.items()
        )
        running = ConsumerState.STARTING if looked_s is None else ConsumerState.RUNNING
        return Health(
            consumer=self._consumer,
            state=ConsumerState.FAILED if self._error else running,
            error=self._error,
            streams=(),
            lake=LakeHealth(
                tables=tables, looked_age_s=None if looked_s is None else now_s - looked_s
            ),
        )


@contextmanager
def serving(watch: LakeHealthTracker, listen: str) -> Iterator[str]:
    """Serve the port meanwhile. Gives its URL. Raises `ConfigurationError` where it cannot listen,
    or for what is no address.
    """
    port = OperationsPort(lambda: [watch], listen, _WHERE)
    loop = asyncio.new_event_loop()
    address, done = Future[str](), asyncio.Event()

    async def serve() -> None:
        try:
            async with port:
                address.set_result(port.address)
                await done.wait()
        except Exception as error:  # noqa: BLE001 - raised where the port was asked for
            if not address.done():
                address.set_exception(error)

    thread = threading.Thread(
        target=lambda: loop.run_until_complete(serve()), name="instep operations", daemon=True
    )
    thread.start()
    try:
        yield address.result()
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()
