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
    """One subscription that was granted. `keep` runs as long as it lasts."""

    def __init__(
        self,
        provider: Provider,
        session: ReportSession,
        granted: GrantedSubscription,
        options: Options,
    ) -> None:
        self._provider = provider
        self._session = session
        self._manager = granted.manager
        self._asked_s = options.expires_s
        self._status_every_s = options.status_every_s
        self._answer_s = options.request_timeout_s
        self._ends_s = asyncio.get_running_loop().time() + granted.expires_s

    def __repr__(self) -> str:
        return f"<Subscription {self._manager.address}, {self._left_s:.1f} s left>"

    @property
    def _left_s(self) -> float:
        return self._ends_s - asyncio.get_running_loop().time()

    async def keep(self) -> None:
        """Renew it, and ask for it in between, until it is lost; then the session fails, and this
        returns.
        """
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
                await self._provider.unsubscribe(self._manager)

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
    """Subscribe a session, and keep it so while the context lasts. Raises `SourceError`."""
    asking = asyncio.create_task(provider.subscribe(to, notify_to, actions, options.expires_s))
    try:
        granted = await asyncio.shield(asking)
    except asyncio.CancelledError:
        # It may be granted already, and only the answer tells how to end it.
        with suppress(SourceError, TimeoutError):
            async with asyncio.timeout(_UNSUBSCRIBE_S):
                granted = await asking
                await provider.unsubscribe(granted.manager)
        raise
    subscription = Subscription(provider, session, granted, options)
    keeping = asyncio.create_task(subscription.keep(), name="instep sdpi renewal")
    try:
        yield subscription
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await subscription.unsubscribe()
