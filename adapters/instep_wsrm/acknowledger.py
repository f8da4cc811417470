"""Sends acknowledgements on their own, to sources whose AcksTo is an address."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from instep.errors import InstepError
from instep.ports.listener import Intake
from instep_soap import AllowedEndpoints
from instep_wsrm.answers import standalone_acknowledgement
from instep_wsrm.sequences import SequenceAttributes

__all__ = ["Acknowledger"]

_MOST_WANTED: Final = 10_000

_log = logging.getLogger("instep.wsrm")


class Acknowledger:
    """Acknowledges sequences, at most once in an interval unless it is asked for.

    One that could not be sent is not sent again by itself: its source sends again, or asks.

    Args:
        intake: Knows what may be acknowledged.
        endpoints: Sends.
        interval_s: The time, in seconds, that an acknowledgement waits for more messages.
    """

    def __init__(self, intake: Intake, endpoints: AllowedEndpoints, interval_s: float) -> None:
        self._intake = intake
        self._endpoints = endpoints
        self._interval_s = interval_s
        self._wanted: dict[str, SequenceAttributes] = {}
        self._at_once: set[str] = set()
        self._under_way: set[str] = set()
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Acknowledger {len(self._wanted)} wanted, {len(self._under_way)} under way>"

    def want(
        self, identifier: str, attributes: SequenceAttributes, *, at_once: bool = False
    ) -> None:
        """Acknowledge a sequence, within the interval or at once. When too many are wanted, it is
        left out: its source asks.
        """
        if len(self._wanted) >= _MOST_WANTED and identifier not in self._wanted:
            return
        first = not self._wanted
        self._wanted[identifier] = attributes
        if at_once:
            self._at_once.add(identifier)
        if first or at_once:
            self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        loop, due_s = asyncio.get_running_loop(), None
        async with asyncio.TaskGroup() as tasks:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due_s):
                        await self._wake.wait()
                self._wake.clear()
                now_s = loop.time()
                over = due_s is not None and now_s >= due_s
                # One that is under way may carry an older state: the next one waits for it.
                wanted = set(self._wanted) if over else self._at_once
                for identifier in wanted - self._under_way:
                    self._begin(tasks, identifier)
                if over or not self._wanted:
                    due_s = None
                if due_s is None and self._wanted.keys() - self._under_way:
                    due_s = now_s + self._interval_s

    def _begin(self, tasks: asyncio.TaskGroup, identifier: str) -> None:
        self._at_once.discard(identifier)
        self._under_way.add(identifier)
        tasks.create_task(self._send(identifier, self._wanted.pop(identifier)))

    async def _send(self, identifier: str, attributes: SequenceAttributes) -> None:
        try:
            claims = await self._intake.claims(identifier)
            written = claims and standalone_acknowledgement(identifier, attributes, claims)
            if written:
                await self._endpoints.send(
                    attributes.acks_endpoint(), written[0], attributes.soap_version, written[1]
                )
        except InstepError as error:
            _log.debug("an acknowledgement could not be sent: %s", error)
        finally:
            self._under_way.discard(identifier)
            if self._wanted:
                self._wake.set()
