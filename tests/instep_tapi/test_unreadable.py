"""What cannot be read costs no entity (A11, A17, A19), from the wire to the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from instep_sql import SqlStore
from tests.instep_tapi.small_provider_kit import (
    SmallProvider,
    aligned_again,
    node,
    running,
    until,
)

pytestmark = pytest.mark.asyncio
NAMES = [f"n{n}" for n in range(8)]
HEARTBEATS = (b'{"type": "heartbeat"}', b"heartbeat", b'"ping"', b"null", b"")


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(
        f"sqlite:///{tmp_path / 's.db'}", quarantine_max_records=20, journal="changes"
    )
    yield opened
    await opened.close()


async def stored(store: SqlStore) -> dict[str, str]:
    """The NODEs of the store, each with the reason for which it is unproven."""
    found = {one.key: one async for one in store.reader.entities() if one.entity_class == "NODE"}
    assert all(one.proven == (not one.unproven) for one in found.values())
    return {key: one.unproven for key, one in found.items()}


def log(names: list[str], begin: int = 0, name: str = "t", second: int = 0) -> list[bytes]:
    return [node(one, begin + n, second, name) for n, one in enumerate(names)]


def rebuilt(provider: SmallProvider, records: list[bytes]) -> None:
    """The provider restarts with another log, which knows no token of the one before."""
    provider.log = records
    provider.cut()


@pytest.mark.parametrize("stamp", ["unknown", None])
async def test_an_entity_whose_latest_record_cannot_be_read_is_not_swept(
    store: SqlStore, stamp: Any
) -> None:
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    async with running(provider, store) as consumer:
        again = log(NAMES[:7], name="new", second=60)
        again[3] = node("n3", 3, 60, "new", **{"log-append-time-stamp": stamp})
        rebuilt(provider, again)
        await aligned_again(consumer, 2)
        found = await stored(store)
        assert set(found) == set(NAMES[:7])
        assert [name for name, reason in found.items() if reason] == ["n3"]
        assert found["n3"].startswith("unreadable-record ")
        [status] = await store.reader.streams()
        assert status.unproven == 1
        # Readable again, it is proven by that.
        provider.say(node("n3", 20, 90, "new"))
        await until(lambda: consumer.health().streams[0].records > 14)
        assert (await stored(store))["n3"] == ""
        told = [c async for c in store.changes() if c.change in ("unproven", "proven")]
        assert [(one.change, one.key) for one in told] == [("unproven", "n3"), ("proven", "n3")]


async def test_where_no_key_can_be_read_what_was_not_met_stays_unproven(store: SqlStore) -> None:
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    async with running(provider, store) as consumer:
        again = log(NAMES[:6], name="new", second=60)
        again[3] = node("n3", 3, 60, "new", **{"entity-key": None})
        rebuilt(provider, again)
        await aligned_again(consumer, 2)
        found = await stored(store)
        assert set(found) == set(NAMES)
        assert [name for name, reason in found.items() if reason] == ["n3", "n6", "n7"]
        assert consumer.health().aligned
        assert consumer.health().streams[0].unproven == 3
        [status] = await store.reader.streams()
        [why] = status.unproven_because
        assert (why.reason, why.entity_class, why.partition) == ("unreadable-record", "NODE", "0")
        told = [c async for c in store.changes() if c.change == "unproven"]
        assert [(one.key, one.entity_class) for one in told] == [("", "NODE")]
        # The next attempt reads everything.
        rebuilt(provider, log(NAMES[:6], name="newer", second=120))
        await aligned_again(consumer, 3)
        assert await stored(store) == dict.fromkeys(NAMES[:6], "")
        told = [c async for c in store.changes() if c.change == "proven"]
        assert [(one.key, one.entity_class) for one in told] == [("", "NODE")]


async def test_a_heartbeat_is_no_record_and_costs_none(store: SqlStore) -> None:
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    async with running(provider, store) as consumer:
        provider.say(*HEARTBEATS * 12, node("n10", 8, 9))
        await until(lambda: consumer.health().streams[0].records == 9)
        assert "n10" in await stored(store)
        [status] = await store.reader.streams()
        assert status.quarantined == 0
        assert status.deviations == {"no-record": 60}
        assert status.samples == {"no-record": HEARTBEATS[0]}
        # What was between the records holds nothing back.
        rebuilt(provider, [*log(NAMES[:4], name="new", second=60), *HEARTBEATS])
        await aligned_again(consumer, 2)
        assert await stored(store) == dict.fromkeys(NAMES[:4], "")


async def test_a_full_quarantine_stops_no_healthy_record(store: SqlStore) -> None:
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    async with running(provider, store) as consumer:
        undated: dict[str, Any] = {"log-append-time-stamp": "unknown"}
        keyed = node("n0", 50, **undated)
        rubbish = [b'{"token": %d' % n for n in range(60)]
        provider.say(keyed, *rubbish, *rubbish, node("n10", 200, 9))
        await until(lambda: consumer.health().streams[0].records == 9)
        kept = [one async for one in store.reader.quarantine()]
        assert len(kept) == 20
        assert {one.key for one in kept} == {None, "n0"}
        assert {one.times for one in kept if one.key is None} == {2}
        found = await stored(store)
        assert found["n10"] == ""
        assert found["n0"].startswith("unreadable-record ")


async def test_what_can_be_read_leniently_is_read(store: SqlStore) -> None:
    now_s = int(time.time())
    stamps: list[Any] = [now_s * 1_000 + 7, str(now_s), f"{datetime.now(UTC):%FT%TZ}[UTC]"]
    odd = [
        node(f"s{n}", 30 + n, **{"log-append-time-stamp": stamp}) for n, stamp in enumerate(stamps)
    ]
    told = [
        *log(NAMES),
        b"\xef\xbb\xbf" + node("bom", 20),
        node("l1", 21) + b"\n" + node("l2", 22) + b"\r\n",
        node("j1", 23) + node("j2", 24) + b" " + node("j3", 25) + b"\n",
        *odd,
    ]
    provider = SmallProvider("NODE", log=told, storage="COMPACTED")
    async with running(provider, store):
        met = {"bom", "l1", "l2", "j1", "j2", "j3", "s0", "s1", "s2"}
        assert set(await stored(store)) == {*NAMES, *met}
        [status] = await store.reader.streams()
        assert status.quarantined == 0
        counted = ("byte-order-mark", "several-documents", "epoch-time", "zone-name")
        assert [status.deviations.get(kind) for kind in counted] == [1, 2, 2, 1]


async def test_a_record_in_utf_16_is_no_heartbeat(store: SqlStore) -> None:
    """It cannot be read, and may be about any entity (A17)."""
    provider = SmallProvider("NODE", log=log(NAMES), storage="COMPACTED")
    async with running(provider, store) as consumer:
        odd = node("n7", 20, 60).decode().encode("utf-16")
        rebuilt(provider, [*log(NAMES[:4], name="new", second=60), odd])
        await aligned_again(consumer, 2)
        found = await stored(store)
        assert {name for name, reason in found.items() if reason} == set(NAMES[4:])


@pytest.mark.parametrize(
    "bad",
    [
        b'{"uuid":"n2","name":NaN}',
        b'{"uuid":"n2","name":"\\ud83d"}',
        b'{"uuid":"n2","name":"M\xfcller"}',
    ],
)
async def test_a_bad_element_of_a_baseline_costs_that_element(store: SqlStore, bad: bytes) -> None:
    provider = SmallProvider("NODE")
    provider.shows("n0", "n1", bad=bad)
    async with running(provider, store):
        assert set(await stored(store)) == {"n0", "n1"}
        [status] = await store.reader.streams()
        [why] = status.unproven_because
        assert (why.reason, why.entity_class) == ("unreadable-element", "NODE")
        [kept] = [one async for one in store.reader.quarantine()]
        assert kept.raw == bad
        assert kept.digest == why.digest


async def test_an_element_that_cannot_be_read_any_more_keeps_its_entity(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    provider.shows(*NAMES)
    async with running(provider, store) as consumer:
        provider.shows("n0", "n1", bad=b'{"uuid":"n2","name":NaN}')
        consumer.realign("s", "asked")
        await aligned_again(consumer, 2)
        found = await stored(store)
        assert set(found) == set(NAMES)
        assert {name for name, reason in found.items() if not reason} == {"n0", "n1"}


@pytest.mark.parametrize(
    "bad",
    [
        b'{"uuid":17,"name":"x"}',
        b'{"name":"x"}',
        b'{"uuid":"","name":"x"}',
        b'{"uuid":"n2\\u0000"}',
        b'{"uuid":"%b"}' % (b"n" * 20_000),
        b"{'uuid':'n2'}",
        b"null",
        b'"n2"',
        b'["n2"]',
    ],
)
async def test_an_element_without_an_identifier_proves_no_absence(
    store: SqlStore, bad: bytes
) -> None:
    """Which entity it is, is not known: it may be any that the answer does not show (A17)."""
    provider = SmallProvider("NODE")
    provider.shows(*NAMES)
    async with running(provider, store) as consumer:
        provider.shows("n0", "n1", bad=bad)
        consumer.realign("s", "asked")
        await aligned_again(consumer, 2)
        found = await stored(store)
        assert set(found) == set(NAMES)
        assert {name for name, reason in found.items() if not reason} == {"n0", "n1"}
        [status] = await store.reader.streams()
        [why] = status.unproven_because
        assert (why.reason, why.entity_class) == ("unreadable-element", "NODE")


@pytest.mark.parametrize("bad", [b"null", b'{"uuid":17,"owned-node-edge-point":[{"uuid":"p"}]}'])
async def test_what_stands_below_an_element_without_an_identifier_is_kept(
    store: SqlStore, bad: bytes
) -> None:
    provider = SmallProvider("NODE", "NODE_EDGE_POINT")
    provider.shows("n0", bad=b'{"uuid":"n1","owned-node-edge-point":[{"uuid":"p"}]}')
    async with running(provider, store) as consumer:
        provider.shows("n0", bad=bad)
        consumer.realign("s", "asked")
        await aligned_again(consumer, 2)
        kept = {one.key: one.unproven != "" async for one in store.reader.entities()}
        assert kept == {"n0": False, "n1": True, "p": True}


async def test_nodes_that_are_no_list_prove_no_absence(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    provider.shows(*NAMES)
    async with running(provider, store) as consumer:
        provider.context = (
            b'{"tapi-common:context":{"tapi-topology:topology-context":{"topology":['
            b'{"uuid":"t","node":"not now"},{"uuid":"u","node":[{"uuid":"n0"}]}]}}}'
        )
        consumer.realign("s", "asked")
        await aligned_again(consumer, 2)
        assert set(await stored(store)) == set(NAMES)


async def test_a_reference_in_the_place_of_an_entity_states_nothing(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    provider.shows("n0", bad=b'{"topology-uuid":"t","node-uuid":"n9"}')
    async with running(provider, store):
        assert await stored(store) == {"n0": ""}
        [status] = await store.reader.streams()
        assert not list(status.unproven_because)


async def test_a_comma_too_many_costs_no_entity(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    provider.shows("n0", "n1", bad=b'{"uuid":"n2","names":["a,]",],}')
    async with running(provider, store):
        assert await stored(store) == dict.fromkeys(["n0", "n1", "n2"], "")
        [status] = await store.reader.streams()
        assert status.deviations["needless-comma"] == 2


async def test_a_byte_order_mark_before_a_baseline_costs_nothing(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    provider.shows(*NAMES)
    provider.context = b"\xef\xbb\xbf" + provider.context
    async with running(provider, store):
        assert await stored(store) == dict.fromkeys(NAMES, "")
        [status] = await store.reader.streams()
        assert status.deviations["byte-order-mark"] == 1


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b'{"tapi-common:context": {}}', "200 OK"),
        (b"{}", "200 OK"),
        (b"", "204 No Content"),
    ],
)
async def test_an_answer_without_content_is_no_statement(
    store: SqlStore, answer: bytes, status: str
) -> None:
    provider = SmallProvider("NODE")
    provider.shows(*NAMES)
    async with running(provider, store) as consumer:
        whole, provider.context, provider.status = provider.context, answer, status
        provider.cut()
        consumer.realign("s", "asked")
        await aligned_again(consumer, 2)
        found = await stored(store)
        assert set(found) == set(NAMES)
        assert {reason.split()[0] for reason in found.values()} == {"empty-answer"}
        # It is read again, and again; but nothing else was stated meanwhile, so it stays.
        await aligned_again(consumer, 4)
        assert set(await stored(store)) == set(NAMES)
        provider.context, provider.status = whole, "200 OK"
        while await stored(store) != dict.fromkeys(NAMES, ""):
            await asyncio.sleep(0.05)


async def test_what_an_operator_confirms_is_gone(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    provider.shows(*NAMES)
    async with running(provider, store) as consumer:
        provider.context = b"{}"
        consumer.realign("s", "asked")
        await aligned_again(consumer, 2)
        while await stored(store):
            [status] = await store.reader.streams()
            await store.reader.release_sweep("c", status.stream, status.position.attempt)
            await until(lambda: consumer.health().aligned)


async def test_a_stream_that_is_empty_from_the_start_is_just_aligned(store: SqlStore) -> None:
    provider = SmallProvider("NODE")
    async with running(provider, store) as consumer:
        assert await stored(store) == {}
        assert consumer.health().streams[0].unproven == 0
        assert provider.readings <= 2
