"""Numbers and entities together: a provider with a link that fails, a consumer, a real store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from instep import Consumer
from instep.model import Start
from instep.runtime.streams.sequenced_feed import SequencedFeedSettings
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep.runtime.consumer_kit import LATER, QUICK, store
from tests.instep.runtime.streams.numbered_entities_kit import (
    Answer,
    Fault,
    NumberedSource,
    Provider,
)

pytestmark = pytest.mark.asyncio

__all__ = ["store"]

FEED = SequencedFeedSettings(reorder_window_s=0.05)


class Site:
    """A provider, its consumer, and what a test observed of both."""

    def __init__(self, store: SqlStore, *scripts: dict[int, Fault]) -> None:
        self.provider = Provider()
        self.provider.change("a", "b", "c", "d")
        self.provider.script = list(scripts)
        self.source = NumberedSource(self.provider, FEED, clock=LATER.now)
        self.store = store
        self.kinds: list[str] = []
        self.answers: list[tuple[int, Answer]] = []
        self.provider.answered = lambda _session, sent, answer: self.answers.append(
            (sent.number, answer)
        )
        self.consumer = Consumer("test", self.source, store, QUICK, environment=LATER)

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        await asyncio.sleep(0)
        await self.consumer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.__aexit__(None, None, None)
        await self._listening

    async def _listen(self) -> None:
        async for event in self.consumer.events():
            self.kinds.append(event.kind)

    @property
    def attempt(self) -> int:
        return self.consumer.health().streams[0].attempt

    @property
    def deviations(self) -> dict[str, int]:
        return self.consumer.health().streams[0].deviations

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not done():
                await asyncio.sleep(0.002)

    async def agrees(self) -> None:
        """Wait until the stream is aligned, with the same entities on both sides."""
        truth = {key: value for key, (value, _) in self.provider.entities.items()}
        async with asyncio.timeout(5):
            while not self.consumer.health().aligned or await self.stored() != truth:
                await asyncio.sleep(0.005)

    async def stored(self) -> dict[str, str]:
        reader = sink.reader(self.store.options.url)
        try:
            entities = [entity async for entity in reader.entities()]
        finally:
            await reader.close()
        return {one.key: json.loads(one.body)["value"] for one in entities}


async def test_a_session_follows_its_baseline(store: SqlStore) -> None:
    async with Site(store) as site:
        await site.agrees()
        site.provider.change("a", "e", value="new")
        site.provider.delete("b")
        await site.agrees()
        await site.until(lambda: len(site.answers) == 2)
        assert site.answers == [(1, Answer.CONFIRMED), (2, Answer.CONFIRMED)]
        assert site.attempt == 1
    assert site.source.starts == [Start.LATEST]
    assert site.provider.sessions == []


async def test_a_late_join_realigns(store: SqlStore) -> None:
    async with Site(store, {1: Fault.DROP}) as site:
        await site.agrees()
        site.provider.change("a", value="lost")
        site.provider.change("b")
        await site.until(lambda: site.attempt == 2)
        await site.agrees()
        assert "disconnected" not in site.kinds
        assert "loss" not in site.kinds
        assert not site.deviations


async def test_a_lost_message_realigns_and_its_entity_is_swept(store: SqlStore) -> None:
    async with Site(store, {2: Fault.DROP}) as site:
        await site.agrees()
        site.provider.change("a")
        site.provider.delete("c")
        site.provider.change("b")
        await site.until(lambda: site.attempt == 2)
        await site.agrees()
        assert "disconnected" not in site.kinds


@pytest.mark.parametrize("fault", [Fault.COPY, Fault.ANSWER_LOST, Fault.SWAP])
async def test_what_a_link_may_do_costs_no_realignment(store: SqlStore, fault: Fault) -> None:
    async with Site(store, {2: fault}) as site:
        await site.agrees()
        for key in "abcd":
            site.provider.change(key)
        await site.agrees()
        await site.until(lambda: {n for n, _ in site.answers} == {1, 2, 3, 4})
        assert {answer for _, answer in site.answers} == {Answer.CONFIRMED}
        assert site.attempt == 1
        assert not site.deviations


@pytest.mark.parametrize(
    ("fault", "deviation"),
    [
        (Fault.STEP_BACK, "number-backwards"),
        (Fault.RESET, "number-backwards"),
        (Fault.LATE_COPY, "number-backwards"),
        (Fault.OTHER_CONTENT, "content-changed"),
    ],
)
async def test_a_provider_that_counts_anew_is_realigned(
    store: SqlStore, fault: Fault, deviation: str
) -> None:
    async with Site(store, {5: fault}) as site:
        await site.agrees()
        for key in "abcdabcdab":
            site.provider.change(key)
        await site.until(lambda: site.attempt == 2)
        await site.agrees()
        assert site.deviations == {deviation: 1}
        assert "disconnected" not in site.kinds


async def test_a_session_that_ends_is_followed_by_another(store: SqlStore) -> None:
    async with Site(store, {2: Fault.LOST_CONNECTION}) as site:
        await site.agrees()
        site.provider.change("a")
        site.provider.delete("b")
        await site.until(lambda: site.attempt == 2)
        await site.agrees()
        assert "disconnected" in site.kinds


async def test_a_snapshot_that_fails_is_read_again(store: SqlStore) -> None:
    site = Site(store)
    site.provider.snapshot_fails = 2
    async with site:
        await site.agrees()
        assert site.provider.snapshots == 3


async def test_messages_that_come_while_the_snapshot_is_read(store: SqlStore) -> None:
    site = Site(store)
    site.provider.snapshot_takes_s = 0.1
    async with site:
        await site.until(lambda: site.provider.snapshots == 1)
        await asyncio.sleep(0.02)
        site.provider.change("a", value="below")
        await asyncio.sleep(0.06)
        site.provider.change("b", value="above")
        site.provider.delete("c")
        assert not site.answers
        await site.agrees()
        await site.until(lambda: len(site.answers) == 3)
        assert site.attempt == 1
        assert site.consumer.health().streams[0].records == 2 + 4


async def test_a_new_process_keeps_what_is_stored_until_its_baseline_is_read(
    store: SqlStore, tmp_path: Path
) -> None:
    async with Site(store) as first:
        await first.agrees()
    provider = first.provider
    provider.delete("d")
    provider.snapshot_takes_s = 0.1
    again = Site(SqlStore(f"sqlite:///{tmp_path}/store.db"))
    again.source.provider = again.provider = provider
    async with again:
        await again.until(lambda: provider.snapshots == 2)
        assert set(await again.stored()) == {"a", "b", "c", "d"}
        await again.agrees()
        assert again.attempt == 2
    assert again.source.starts == [Start.LATEST]


async def test_a_provider_that_restarts_is_read_anew(store: SqlStore) -> None:
    async with Site(store) as site:
        await site.agrees()
        site.provider.change("a", "b")
        site.provider.restart()
        site.provider.change("a")
        await site.agrees()
