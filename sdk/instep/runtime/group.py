"""Runs several consumers or receivers together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from instep.runtime.health import Health
from instep.runtime.lifecycle import Service

__all__ = ["Group"]


class Group:
    """Consumers that start and stop together; the failure of one stays its own.

    Each keeps its own connections and positions; none waits for another. One that fails with a
    fatal error, at its start or later, is parked: its health is `failed` and shows the error, its
    events report it, and the others go on.
    """

    def __init__(self, consumers: Sequence[Service]) -> None:
        self.consumers = tuple(consumers)
        self._stack = AsyncExitStack()
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Group of {len(self.consumers)}: {', '.join(map(repr, self.consumers))}>"

    async def __aenter__(self) -> Self:
        """Start all at once. One that cannot start is parked, as one that fails later."""
        async with AsyncExitStack() as stack:
            # Consumers that are not started must close a shared source, too.
            for consumer in self.consumers:
                stack.push_async_callback(self.remove, consumer)
            await asyncio.gather(*map(_start, self.consumers))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all at once, and wait for each in the reverse order."""
        for consumer in reversed(self.consumers):
            consumer.stop()
        consumers = self.consumers
        try:
            await self._stack.aclose()
        finally:
            # Who looks at what they came to still finds them.
            self.consumers = consumers

    async def add(self, *consumers: Service) -> None:
        """Start further consumers, which run with the others from now on."""
        for consumer in consumers:
            self._stack.push_async_callback(self.remove, consumer)
        self.consumers += consumers
        await asyncio.gather(*map(_start, consumers))
        self._wake()

    async def remove(self, consumer: Service) -> None:
        """Stop a consumer after its commit, and run it no more. Safe to call again."""
        if consumer not in self.consumers:
            return
        self.consumers = tuple(one for one in self.consumers if one is not consumer)
        self._wake()
        await consumer.__aexit__(None, None, None)

    @property
    def error(self) -> Exception | None:
        """The fatal error of the first consumer that has one; None if none has failed."""
        return next((one.error for one in self.consumers if one.error is not None), None)

    async def wait(self) -> None:
        """Wait until all have failed with a fatal error, and raise that of the first. Those that
        are added meanwhile count, and those that are removed do not.
        """
        while True:
            changed = asyncio.ensure_future(self._changed.wait())
            failing = asyncio.ensure_future(self._all([one.wait() for one in self.consumers]))
            try:
                await asyncio.wait({changed, failing}, return_when=asyncio.FIRST_COMPLETED)
                if not changed.done():
                    await failing
                    return
            finally:
                changed.cancel()
                failing.cancel()
                await asyncio.gather(changed, failing, return_exceptions=True)

    async def aligned(self, timeout_s: float | None = None) -> None:
        """Wait until each is aligned or has failed. Raises what the `aligned` of the first that
        failed raised.
        """
        await self._all([consumer.aligned(timeout_s) for consumer in self.consumers])

    def health(self) -> tuple[Health, ...]:
        """The current health of each consumer. Never waits."""
        return tuple(consumer.health() for consumer in self.consumers)

    def _wake(self) -> None:
        """Let those look again who wait for all."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @staticmethod
    async def _all(waits: list[Coroutine[None, None, None]]) -> None:
        """Wait for all, and raise the first error."""
        tasks = [asyncio.create_task(wait) for wait in waits]
        first: Exception | None = None
        try:
            for done in asyncio.as_completed(tasks):
                try:
                    await done
                except Exception as error:  # noqa: BLE001 - the first is raised below
                    first = first or error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if first is not None:
            raise first


async def _start(consumer: Service) -> None:
    # Its own `wait`, `health` and events report the error.
    with contextlib.suppress(Exception):
        await consumer.__aenter__()
