"""Runs several consumers or receivers together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from instep.runtime.health import Health
from instep.runtime.lifecycle import Service

__all__ = ["Group"]


class Group:
    """Consumers that start and stop together.

    Each keeps its own connections and positions; none waits for another. If one fails with a fatal
    error, `wait` raises it, and the caller decides about the others.
    """

    def __init__(self, consumers: Sequence[Service]) -> None:
        self.consumers = tuple(consumers)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Group of {len(self.consumers)}: {', '.join(map(repr, self.consumers))}>"

    async def __aenter__(self) -> Self:
        """Start all. Raises `SinkError`; those already started are then stopped."""
        async with AsyncExitStack() as stack:
            # Consumers that are not started must close a shared source, too.
            for consumer in self.consumers:
                stack.push_async_exit(consumer)
            for consumer in self.consumers:
                await consumer.__aenter__()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all, in the reverse order."""
        await self._stack.aclose()

    async def wait(self) -> None:
        """Wait until one fails with a fatal error, and raise it."""
        await self._all([consumer.wait() for consumer in self.consumers])

    async def aligned(self, timeout_s: float | None = None) -> None:
        """Wait until all are aligned; raises as their `aligned` does."""
        await self._all([consumer.aligned(timeout_s) for consumer in self.consumers])

    def health(self) -> tuple[Health, ...]:
        """The current health of each consumer. Never waits."""
        return tuple(consumer.health() for consumer in self.consumers)

    @staticmethod
    async def _all(waits: list[Coroutine[None, None, None]]) -> None:
        tasks = [asyncio.create_task(wait) for wait in waits]
        try:
            for done in asyncio.as_completed(tasks):
                await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
