"""Publishes the journal to a target of the ecosystem, at least once and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from instep.errors import ConfigurationError
from instep.model.entities import Change, JournalEnd
from instep.ports.publish_target import PublishTarget
from instep.ports.reader import StoreReader
from instep.runtime.cloud_events import cloud_event
from instep.runtime.retry import Environment
from instep.runtime.settings import ConsumerSettings
from instep.runtime.subscription import Subscription, SubscriptionOptions

__all__ = ["Publisher"]


class Publisher:
    """Publishes each change as a CloudEvent.

    Promised: each chosen change is published at least once, in the order of the commits. The store
    keeps under `name` how far the publisher has come, once the target has the events. An event that
    comes again has the same id. Raises as `Subscription` does where the journal no longer reaches
    back so far, or is another one.

    Not promised: that an event comes once only: whoever is killed between publishing and keeping
    the cursor publishes up to one batch again.

    Args:
        reader: The store. It may be read beside the consumer that writes it.
        target: Where the events go.
        name: Under which the store keeps the cursor; each publisher has its own.
        from_now: Whether a publisher that is new begins with the next change, not with the oldest.
        settings: The waits between attempts (`reconnect_initial_s` and so on).
        environment: Clock and chance, for tests.
        chosen: What is published, as for `Subscription`.
    """

    def __init__(
        self,
        reader: StoreReader,
        target: PublishTarget,
        *,
        name: str,
        from_now: bool = False,
        settings: ConsumerSettings | None = None,
        environment: Environment | None = None,
        **chosen: Unpack[SubscriptionOptions],
    ) -> None:
        if not name:
            raise ConfigurationError("it has no name", where="Publisher", key="name")
        self.name = name
        self._reader = reader
        self._target = target
        self._from_now = from_now
        self._settings = settings
        self._environment = environment
        self._chosen = chosen

    def __repr__(self) -> str:
        return f"<Publisher {self.name}>"

    async def run(self) -> None:
        """Publish until cancelled; with `follow=False` until the newest change."""
        at = await self._reader.published(self.name)
        if at is None:
            at = await self._reader.journal_end() if self._from_now else JournalEnd(0)
            if self._from_now:
                # What is committed before the next start is not left out.
                await self._reader.keep_published(self.name, at)
        subscription = Subscription(self._reader, at.cursor, epoch=at.epoch, **self._chosen)

        async def keep(cursor: int) -> None:
            await self._reader.keep_published(self.name, JournalEnd(cursor, subscription.epoch))

        await subscription.run(
            self._publish, saved=keep, settings=self._settings, environment=self._environment
        )

    async def _publish(self, changes: Sequence[Change]) -> None:
        await self._target.publish([cloud_event(change) for change in changes])
