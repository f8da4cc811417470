"""An entity is one, whatever class, key or spelling it has on the wire (A13, TR-548 3.10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from instep import Consumer
from instep.alignment.audit import Finding
from instep_sql import SqlStore
from instep_sql.reader import SqlReader
from instep_tapi.derivations import references
from instep_tapi.derivations.measurements import measurements
from tests.end_to_end.site_kit import QUICK
from tests.instep_tapi.small_provider_kit import SmallProvider, context_of, running, serving, stated

pytestmark = pytest.mark.asyncio

DEADLINE_S = 100.0

TOPOLOGY, DEVICES = "tapi-topology:topology-context", "tapi-equipment:physical-context"
OAM = "tapi-oam:oam-context"
UPPER, LOWER = "AAAAAAAA-0000-4000-8000-00000000000A", "aaaaaaaa-0000-4000-8000-00000000000a"


@asynccontextmanager
async def following(
    served: SmallProvider, folder: Path, **options: Any
) -> AsyncIterator[tuple[Consumer, SqlReader]]:
    store = SqlStore(f"sqlite:///{folder}/store.db", **options)
    async with running(served, store, QUICK) as consumer:
        yield consumer, store.reader


async def becomes(reader: SqlReader, wanted: list[tuple[str, str]]) -> None:
    """Wait until the store holds entities of just these classes and uuids."""
    held: list[tuple[str, str]] = []
    for _ in range(int(DEADLINE_S / 0.1)):
        held = sorted([(one.entity_class, one.uuid) async for one in reader.entities()])
        if held == wanted:
            return
        await asyncio.sleep(0.1)
    assert held == wanted


async def deviations(reader: SqlReader) -> dict[str, int]:
    [status] = await reader.streams()
    return status.deviations


BOTH = [("DEVICE", "x"), ("NODE", "x")]
NODE_AND_DEVICE = {
    TOPOLOGY: {"topology": [{"uuid": "t", "node": [{"uuid": "x", "name": "a node"}]}]},
    DEVICES: {"device": [{"uuid": "x", "name": "a device"}]},
}


def shows_both(served: SmallProvider, *, each: bool) -> None:
    """Let one GET of the context show both, or a GET of each resource its own."""
    if each:
        for name, content in NODE_AND_DEVICE.items():
            served.resources[name] = json.dumps({name: content}).encode()
    else:
        served.context = context_of(NODE_AND_DEVICE)


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("order", [("DEVICE", "NODE"), ("NODE", "DEVICE")])
async def test_a13_two_classes_under_one_uuid_in_a_truncated_log(
    tmp_path: Path, order: tuple[str, str], *, each: bool
) -> None:
    served = SmallProvider("NODE", "DEVICE")
    shows_both(served, each=each)
    bodies = {"NODE": "a node", "DEVICE": "a device"}
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, BOTH)
        for number, name in enumerate(order, start=1):
            bodies[name] = f"still a {name.lower()}"
            served.say(stated(number, "x", name, {"uuid": "x", "name": bodies[name]}, parent=[]))
            async with asyncio.timeout(DEADLINE_S):
                while await named(reader) != bodies:
                    await asyncio.sleep(0.05)
            # The key is a uuid that an entity of the other class has, too (3.10).
            assert (await deviations(reader))["key-shared"] == number
        await becomes(reader, BOTH)


@pytest.mark.parametrize("again", [False, True])
async def test_a13_an_end_that_states_its_class_ends_no_other(
    tmp_path: Path, *, again: bool
) -> None:
    """A header without a body has only the key, which is the uuid of both; `again`: the consumer
    was started anew.
    """
    served = SmallProvider("NODE", "DEVICE")
    shows_both(served, each=False)
    served.log = []
    device = stated(1, "x", "DEVICE", {"uuid": "x", "name": "changed"}, parent=[])
    end = stated(2, "x", "NODE", kind="DELETE")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, BOTH)
        served.say(device)
        async with asyncio.timeout(DEADLINE_S):
            while (await named(reader))["DEVICE"] != "changed":
                await asyncio.sleep(0.05)
        if not again:
            served.say(end)
            await becomes(reader, [("DEVICE", "x")])
    if again:
        async with following(served, tmp_path) as (_, reader):
            served.say(end)
            await becomes(reader, [("DEVICE", "x")])


async def test_a13_an_end_of_a_class_that_is_not_stored_ends_nothing(tmp_path: Path) -> None:
    served = SmallProvider("NODE", "DEVICE")
    served.context = context_of({"tapi-equipment:physical-context": {"device": [{"uuid": "x"}]}})
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, [("DEVICE", "x")])
        served.say(
            stated(1, "x", "NODE", kind="DELETE"),
            stated(2, "y", "DEVICE", {"uuid": "y"}, parent=[]),
        )
        await becomes(reader, [("DEVICE", "x"), ("DEVICE", "y")])


async def named(reader: SqlReader) -> dict[str, str]:
    """Class → name of its entity."""
    return {one.entity_class: json.loads(one.body)["name"] async for one in reader.entities()}


@pytest.mark.parametrize("journal", ["off", "changes"])
async def test_a13_two_classes_under_one_key_in_a_compacted_log(
    tmp_path: Path, journal: str
) -> None:
    served = SmallProvider("NODE", "DEVICE", storage="COMPACTED")
    served.log += [
        stated(1, "x", "NODE", {"uuid": "x"}, parent=["topology-uuid:t"]),
        stated(2, "x", "DEVICE", {"uuid": "x"}),
    ]
    async with following(served, tmp_path, journal=journal) as (_, reader):
        await becomes(reader, BOTH)
        assert (await deviations(reader))["key-shared"] == 1
        served.log += [
            stated(3, "x", "DEVICE", kind="DELETE"),
            stated(4, "x", kind="TOMBSTONE"),
        ]
        await becomes(reader, [("NODE", "x")])


async def test_rfc_4122_3_upper_case_in_the_get_and_lower_case_in_the_stream(
    tmp_path: Path,
) -> None:
    served = SmallProvider("NODE")
    served.shows(UPPER)
    address = ["topology-uuid:t"]
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, [("NODE", UPPER)])
        served.say(stated(1, LOWER, "NODE", {"uuid": LOWER}, parent=address))
        await becomes(reader, [("NODE", LOWER)])
        assert (await deviations(reader))["uuid-case"] == 1


MIXED = "AAAAaaaa-0000-4000-8000-00000000000a"


@pytest.mark.parametrize(("shown", "said"), list(permutations((UPPER, LOWER, MIXED), 2)))
async def test_rfc_4122_3_audits_places_and_references_ask_for_no_case(
    tmp_path: Path, shown: str, said: str
) -> None:
    """The GET, the stream and those who refer to it spell the uuid of a node differently."""
    served = SmallProvider("NODE", "LINK")
    served.shows(shown)
    refers = {"uuid": "l", "node-edge-point": [{"node-uuid": shown}, {"node-uuid": said}]}
    async with following(served, tmp_path, references=True) as (consumer, reader):
        served.say(
            stated(1, said, "NODE", {"uuid": said}, parent=["topology-uuid:t"]),
            stated(2, "l", "LINK", refers, parent=["topology-uuid:t", f"node-uuid:{shown}"]),
        )
        await becomes(reader, [("LINK", "l"), ("NODE", said)])
        found: list[Finding] = []
        await consumer.audit(found=found.append)
        # No GET shows the link.
        assert [one for one in found if one.key != "l"] == []
        for uuid in (shown, said):
            assert [one.key async for one in references.referrers(reader, uuid)] == ["l"]
            assert [one.key async for one in references.children(reader, uuid)] == ["l"]
        assert [one async for one in references.dangling(reader)] == []


@pytest.mark.parametrize(
    "address",
    [
        ["node-uuid:N", "topology-uuid:T"],
        ["topology-uuid:T", "node-uuid: N"],
        ["topology=T", "node=N"],
        ["/tapi-common:context/tapi-topology:topology-context/topology=T/node=N"],
        [{"topology-uuid": "T"}, {"node-uuid": "N"}],
        ["topology-uuid:T,node-uuid:N"],
        "topology-uuid:T,node-uuid:N",
    ],
)
async def test_3_10_1_a_parent_address_in_another_spelling_has_its_place(
    tmp_path: Path, address: Any
) -> None:
    served = SmallProvider("NODE_EDGE_POINT", storage="COMPACTED")
    point = stated(1, "p", "NODE_EDGE_POINT", {"uuid": "p"}, parent=address)
    served.say(point)
    async with following(served, tmp_path, references=True) as (_, reader):
        path = [(one.name, one.uuid) for one in await references.path(reader, "p")]
        assert path == [("topology-uuid", "T"), ("node-uuid", "N")]
        assert [one.key async for one in references.children(reader, "N")] == ["p"]
        counted = (await deviations(reader)).keys()
        assert counted & {"parent-address-order", "parent-address-spelling"}


async def test_3_9_2_6_periods_of_measurement_are_read_from_the_oldest_record(
    tmp_path: Path,
) -> None:
    """A baseline shows which series there are, and not all of their periods."""
    served = SmallProvider("PM_HISTORY_DATA")
    served.context = context_of({OAM: {"oam-job": []}})
    for number in (1, 2, 3):
        period = {
            "local-id": f"h{number}",
            "granularity-period": {"value": "15", "unit": "MINUTES"},
            "period-end-time": f"2026-11-26T09:{15 * number:02d}:00Z",
            "errored-seconds": 1,
        }
        address = ["oam-job-uuid:5a1c", "pm-current-data-local-id:east"]
        served.say(stated(number, f"h{number}", "PM_HISTORY_DATA", period, parent=address))
    async with following(served, tmp_path, measurements=True) as (_, reader):
        periods = [one async for one in measurements(reader, series="5a1c/east")]
        assert len(periods) == 3
    assert served.opened_at == ["oldest"]


async def test_5_10_1_a_provider_that_answers_501_to_latest_is_read_from_the_oldest(
    tmp_path: Path,
) -> None:
    served = SmallProvider("NODE")
    served.refuses_latest = "501 Not Implemented"
    served.shows("n")
    async with following(served, tmp_path) as (_, reader):
        await becomes(reader, [("NODE", "n")])
    assert served.opened_at == ["latest", "oldest"]


async def test_a_connection_tells_where_the_stream_was_opened(tmp_path: Path) -> None:
    served = SmallProvider("NODE")
    served.shows("n")
    told: list[tuple[str, str]] = []
    async with serving(served) as source:
        consumer = Consumer("test", source, SqlStore(f"sqlite:///{tmp_path}/store.db"), QUICK)

        async def listen() -> None:
            told.extend([(event.kind, event.text) async for event in consumer.events()])

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        async with consumer:
            await consumer.aligned(DEADLINE_S)
        await listening
    assert ("connected", "from the latest record") in told
