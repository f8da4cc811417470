"""What the monitor looks at: the port of a process, and stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from instep.cli.output import stamp
from instep.cli.quarantine import replay_one
from instep.cli.store import OpenStore, open_stores, sequence_counts_of
from instep.config.derivations import table_derivations
from instep.errors import DerivationOffError, InstepError
from instep.metrics.figures import facts_of
from instep.metrics.stored import stored_healths
from instep.model.entities import Quarantined, StoredEntity
from instep.ports.reader import DeadMessage, MessageReader, SequenceStatus, StoreReader
from instep.sequencing.operator_actions import OperatorAction

__all__ = ["SUMMARY", "MonitorSnapshot", "MonitoredPlace"]

SUMMARY: Final = "summary"
"""The query of a derivation whose rows are shown: alarms by severity, for example."""
_MOST_ROWS: Final = 200
"""Of each kind: who has more looks with the commands that page."""
_WITHIN_S: Final = 3.0
_T = TypeVar("_T")


class MonitorSnapshot(msgspec.Struct, kw_only=True):
    """What was found at one time."""

    told: Mapping[str, Any]
    """As `/status.json`."""
    source: str
    """What the figures are of: the URL of a port, or `the store`."""
    error: str = ""
    """Why something is missing; empty: nothing is."""
    sequences: list[SequenceStatus] = []
    """Those in trouble."""
    unproven: list[StoredEntity] = []
    quarantined: list[Quarantined] = []
    dead: list[DeadMessage] = []
    summaries: dict[str, list[Mapping[str, Any]]] = {}
    """What each derivation says in short: name → rows."""


class MonitoredPlace:
    """Where the monitor looks. Every read is bounded in time and rows."""

    def __init__(
        self, url: str, stores: Mapping[str, set[str]], consumer: str | None = None
    ) -> None:
        """`url`: of the port, empty for none; `stores`: URL → consumers, as `places_of`."""
        self._url, self._stores, self._consumer = url.rstrip("/"), stores, consumer

    async def read(self) -> MonitorSnapshot:
        """Look once. What does not answer is said, and never raised."""
        told, error = await self._port()
        found = MonitorSnapshot(told=told, source=self._url, error=error)
        healths = []
        for url, names in self._stores.items():
            try:
                async with (
                    asyncio.timeout(_WITHIN_S),
                    open_stores(None, url, None, "monitor") as (opened,),
                ):
                    place = OpenStore(opened.reader, frozenset(names))
                    if not told:
                        healths += stored_healths(
                            await place.reader.streams(),
                            await sequence_counts_of(place.reader),
                            await place.reader.followers(),
                            names,
                            time.time_ns() // 1_000,
                        )
                    await _look(place, found)
            except (InstepError, TimeoutError) as why:
                found.error = str(why) or f"a store has not answered for {_WITHIN_S:.0f} s"
        if not told:
            consumers = [facts_of(one) for one in healths]
            found.source = "the store"
            found.told = {
                "at": stamp(time.time_ns() // 1_000),
                "ready": bool(consumers) and all(one["ready"] for one in consumers),
                "consumers": consumers,
            }
        return found

    async def replay(self, one: Quarantined | DeadMessage) -> str:
        """Have an entry of the quarantine or of the dead letter read or delivered again; says what
        came of it.
        """
        for url in self._stores:
            try:
                async with open_stores(None, url, None, "monitor") as (place,):
                    found = await _replay(place.reader, one)
            except InstepError as error:
                return str(error)
            if found:
                return found
        return "it is not there any more"

    async def _port(self) -> tuple[Mapping[str, Any], str]:
        """What `/status.json` tells, and why it tells nothing."""
        if not self._url:
            return {}, ""
        try:
            timeout = aiohttp.ClientTimeout(total=_WITHIN_S)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self._url}/status.json") as answer,
            ):
                told = msgspec.json.decode(await answer.read())
                consumers = told["consumers"]
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, KeyError, TypeError) as why:
            return {}, f"no process answers on {self._url}: {why}".rstrip(": ")
        if self._consumer:
            consumers = [one for one in consumers if one["consumer"] == self._consumer]
        return {**told, "consumers": consumers}, ""


async def _look(place: OpenStore, found: MonitorSnapshot) -> None:
    reader = place.reader
    for name in place.names:
        found.unproven += await _first(reader.entities(consumer=name, unproven=True))
        found.quarantined += await _first(reader.quarantine(consumer=name))
        if isinstance(reader, MessageReader):
            found.dead += await _first(reader.dead_messages(consumer=name))
    if isinstance(reader, MessageReader):
        troubled = await _first(reader.sequences(troubled=True))
        found.sequences += [one for one in troubled if place.has(one.consumer)]
    for derivation in table_derivations():
        if SUMMARY in derivation.queries:
            try:
                rows = await _first(reader.derived(derivation.name, SUMMARY))
            except DerivationOffError:
                continue
            found.summaries.setdefault(derivation.name, []).extend(rows)


async def _replay(reader: StoreReader, one: Quarantined | DeadMessage) -> str:
    if isinstance(one, DeadMessage):
        if why := one.why_not_replayed(although_told=False):
            return why
        action = OperatorAction.REPLAY
        asked = await MessageReader.of(reader).request_action(
            one.consumer, one.stream, action, one.id
        )
        return "the consumer, running now or later, delivers it" if asked else ""
    async for again in reader.quarantine(id=one.id):
        if again.digest == one.digest:
            streams = {(each.consumer, each.stream): each for each in await reader.streams()}
            return await replay_one(reader, again, streams.get((again.consumer, again.stream)))
    return ""


async def _first(rows: AsyncIterator[_T]) -> list[_T]:
    found: list[_T] = []
    async with aclosing(rows) as reading:  # type: ignore[type-var]
        async for one in reading:
            found.append(one)
            if len(found) == _MOST_ROWS:
                break
    return found
