"""Keeps a subscription: renews it in time, asks for it, and ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from instep.errors import SourceError, UnreachableError
from instep_sdpi.options import Options
from instep_sdpi.provider import Provider
from instep_sdpi.session import ReportSession
from instep_sdpi.wire.eventing import GrantedSubscription
from instep_soap import EndpointReference

__all__ = ["Subscription", "subscribed"]

_RENEW_AT: Final = 0.5
"""The share of the granted time after which it is renewed: then a renewal may fail once."""
_RETRY_AT: Final = 0.25
"""The share of what is left after which a renewal that failed is tried again."""
_LEAST_WAIT_S: Final = 0.1
_MOST_UNANSWERED: Final = 3
_UNSUBSCRIBE_S: Final = 2.0

_log = logging.getLogger("instep.sdpi")


class Subscription:
    """One subscription that was asked for. `keep` runs as long as it lasts."""

    def __init__(
        self,
        provider: Provider,
        session: ReportSession,
        asking: asyncio.Task[GrantedSubscription],
        options: Options,
    ) -> None:
        self._provider = provider
        self._session = session
        self._asking = asking
        self._asked_s = options.expires_s
        self._status_every_s = options.status_every_s
        self._answer_s = options.request_timeout_s
        self._ends_s = 0.0

    def __repr__(self) -> str:
        if not self.granted:
            return "<Subscription, not granted>"
        return f"<Subscription {self._manager.address}, {self._left_s:.1f} s left>"

    @property
    def granted(self) -> bool:
        """Whether the provider has granted it."""
        asking = self._asking
        return asking.done() and not asking.cancelled() and asking.exception() is None

    @property
    def _manager(self) -> EndpointReference:
        return self._asking.result().manager

    async def opened(self) -> None:
        """Wait until it is granted, or a report shows that the provider follows it already.

        Raises `SourceError`: it is not granted.
        """
        reported = asyncio.create_task(self._session.feed.first_message())
        try:
            await asyncio.wait({self._asking, reported}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reported.cancel()
        if self._asking.done():
            self._asking.result()

    @property
    def _left_s(self) -> float:
        return self._ends_s - asyncio.get_running_loop().time()

    async def keep(self) -> None:
        """Renew it, and ask for it in between, until it is lost, or is not granted; then the
        session fails, and this returns.
        """
        try:
            granted = await asyncio.shield(self._asking)
        except SourceError as error:
            self._session.feed.fail(error)
            return
        self._ends_s = asyncio.get_running_loop().time() + granted.expires_s
        unanswered = 0
        renew_in_s = self._left_s * _RENEW_AT
        while True:
            wait_s = min(max(renew_in_s, _LEAST_WAIT_S), self._status_every_s)
            await asyncio.sleep(wait_s)
            renew_in_s -= wait_s
            due = renew_in_s <= 0
            try:
                async with asyncio.timeout(max(min(self._left_s, self._answer_s), _LEAST_WAIT_S)):
                    await (self._renew() if due else self._provider.status(self._manager))
            except (SourceError, TimeoutError) as error:
                unanswered += 1
                if self._is_over(error, unanswered):
                    return
                if due:
                    renew_in_s = self._left_s * _RETRY_AT
                continue
            unanswered = 0
            if due:
                renew_in_s = self._left_s * _RENEW_AT

    async def _renew(self) -> None:
        # It counts from the request on: the provider cannot have granted it earlier.
        asked_at_s = asyncio.get_running_loop().time()
        granted_s = await self._provider.renew(self._manager, self._asked_s)
        self._ends_s = asked_at_s + granted_s

    async def status(self) -> None:
        """Ask whether it is still there; where the provider knows none, the session fails.

        Raises `SourceError`: no answer, or it is not there.
        """
        try:
            await self._provider.status(self._manager)
        except SourceError as error:
            self._is_over(error)
            raise

    async def unsubscribe(self) -> None:
        """End it, within a short time. Never raises: what is not ended expires."""
        with suppress(SourceError, TimeoutError):
            async with asyncio.timeout(_UNSUBSCRIBE_S):
                # Only the answer to Subscribe tells how to end it.
                granted = await self._asking
                await self._provider.unsubscribe(granted.manager)

    def _is_over(self, error: Exception, unanswered: int = 0) -> bool:
        """Whether the subscription is lost: the provider knows none, its time is over, or the
        provider is silent.
        """
        if isinstance(error, SourceError) and "fault" in error.data:
            reason = "the provider knows the subscription no more"
        elif self._left_s <= 0:
            reason = "the subscription has expired"
        elif unanswered >= _MOST_UNANSWERED:
            reason = f"{unanswered} requests in a row were not answered"
        else:
            _log.debug("%r is not answered: %s", self, error)
            return False
        self._session.feed.fail(
            UnreachableError(f"{reason} ({str(error) or 'no answer'})", where=self._manager.address)
        )
        return True


@asynccontextmanager
async def subscribed(
    provider: Provider,
    session: ReportSession,
    to: EndpointReference,
    notify_to: str,
    actions: list[str],
    options: Options,
) -> AsyncIterator[Subscription]:
    """Subscribe a session, and keep it so while the context lasts. Raises `SourceError`.

    A report may come before the answer to Subscribe, and the provider may wait for the answer to
    that report first (SDPi R0800): then the context is entered without it.
    """
    asking = asyncio.create_task(provider.subscribe(to, notify_to, actions, options.expires_s))
    subscription = Subscription(provider, session, asking, options)
    keeping: asyncio.Task[None] | None = None
    try:
        await subscription.opened()
        keeping = asyncio.create_task(subscription.keep(), name="instep sdpi renewal")
        yield subscription
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await subscription.unsubscribe()
