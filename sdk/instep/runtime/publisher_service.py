"""Runs a publisher of a configuration beside the consumers (`[[publishers]]`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Self, Unpack

from instep.errors import InstepError, NoStoreError
from instep.model.cloud_events import CloudEvent
from instep.ports.publish_target import PublishTarget
from instep.ports.reader import StoreReader
from instep.runtime.health import ConsumerState, Health, PublisherHealth
from instep.runtime.lifecycle import Service
from instep.runtime.publisher import Publisher
from instep.runtime.retry import Environment, retrying
from instep.runtime.settings import ConsumerSettings
from instep.runtime.subscription import SubscriptionOptions

__all__ = ["PublisherService"]


class PublisherService(Service):
    """Publishes while it runs; what a `Publisher` promises holds.

    Store and target may be away, at the start as later: both are tried again, with the waits
    between two connections. What waiting does not mend (a journal that is off or was trimmed, a
    target that refuses) ends it, and no other service of the process.
    """

    def __init__(
        self,
        name: str,
        reader: Callable[[], StoreReader],
        target: Callable[[], AbstractAsyncContextManager[PublishTarget]],
        *,
        from_now: bool = False,
        settings: ConsumerSettings | None = None,
        environment: Environment | None = None,
        **chosen: Unpack[SubscriptionOptions],
    ) -> None:
        """`reader` opens the store, and `target` makes what the events go to; both are called
        again after an error. The others are as of `Publisher`.
        """
        super().__init__(name, settings, environment)
        self._reader, self._target = reader, target
        self._from_now, self._chosen = from_now, chosen
        self._open: PublishTarget | None = None
        self._published = 0
        self._trouble = ""
        """Why nothing is published now; empty: nothing prevents it."""

    def __repr__(self) -> str:
        return f"<PublisherService {self.name}: {self._state}>"

    def health(self) -> Health:
        return Health(
            consumer=self.name,
            state=self._state,
            error=str(self._error or self._trouble),
            streams=(),
            publisher=PublisherHealth(published=self._published),
        )

    async def aligned(self, timeout_s: float | None = None) -> None:  # noqa: ARG002
        """See `Service`: there is nothing to align. Raises the error that has ended it."""
        self._check()

    async def __aenter__(self) -> Self:
        """Start; nothing need be reachable yet."""
        self._begin(self._run())
        return self

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Pass events to the target, and note how it does. See `PublishTarget`."""
        assert self._open is not None
        try:
            await self._open.publish(events)
        except InstepError as error:
            self._troubled(error)
            raise
        self._published += len(events)
        self._well("the target takes changes")

    # -- inner parts -----------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async for attempt in retrying(self._settings, self._environment):
                with attempt:
                    await self._publish_on()
        except Exception as error:  # noqa: BLE001 - raised by wait()
            self._failed(error)

    async def _publish_on(self) -> None:
        reader = self._reader()
        try:
            async with self._target() as self._open:
                publisher = Publisher(
                    reader,
                    self,
                    name=self.name,
                    from_now=self._from_now,
                    settings=self._settings,
                    environment=self._environment,
                    **self._chosen,
                )
                await reader.published(self.name)
                self._well("the store can be reached; the first change tries the target")
                await publisher.run()
        except InstepError as error:
            # A consumer, here or in another process, makes the store and its journal.
            error.retriable = error.retriable or isinstance(error, NoStoreError)
            self._troubled(error)
            raise
        finally:
            self._open = None
            await reader.close()

    def _well(self, proof: str) -> None:
        if self._state is not ConsumerState.RUNNING:
            self._state, self._trouble = ConsumerState.RUNNING, ""
            self._emit("", "connected", proof)

    def _troubled(self, error: InstepError) -> None:
        if str(error) != self._trouble:
            self._state, self._trouble = ConsumerState.RETRYING, str(error)
            self._emit("", "disconnected", self._trouble)
