"""Baselines: whole or an error; entities stated as a stream would state them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from instep.errors import BaselineError, UnreachableError
from instep.model.records import Record, RecordChunk
from instep_tapi.facts.containment import LOCAL_CLASSES
from instep_tapi.options import NoAuth
from instep_tapi.restconf.auth import Authenticator
from instep_tapi.restconf.baseline import (
    READABLE,
    read_baseline,
    readable_classes,
    unprovable_classes,
)
from instep_tapi.restconf.client import RestconfClient
from instep_tapi.restconf.discovery import ContextAddress
from instep_tapi.wire.context_tree import entities
from tests.instep_http.client_kit import new_client

ROOT = "/restconf/data/tapi-common:context"
TOPOLOGY = {
    "tapi-topology:topology-context": {
        "topology": [
            {
                "uuid": "t",
                "layer": ["ODU"],
                "node": [{"uuid": "n", "owned-node-edge-point": [{"uuid": "p", "x": {}}]}],
            }
        ]
    }
}


@asynccontextmanager
async def rest_of(
    answers: dict[str, Any],
) -> AsyncIterator[tuple[RestconfClient, ContextAddress, list[str]]]:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path.removeprefix(ROOT).lstrip("/"))
        answer = answers.get(asked[-1], 404)
        if isinstance(answer, int):
            return web.Response(status=answer)
        if isinstance(answer, bytes):
            return web.Response(body=answer)
        return web.json_response(answer)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    async with TestServer(app) as server, new_client() as client:
        auth = Authenticator(NoAuth(), client)
        context = str(URL(str(server.make_url("/"))).with_path(ROOT))
        rest = RestconfClient(client, auth, 10**6, 30.0)
        yield rest, ContextAddress("http://h", context, ""), asked


def records_of(page: list[Record] | RecordChunk) -> list[Record]:
    assert isinstance(page, list), page
    return page


async def read(
    rest: RestconfClient, address: ContextAddress, *classes: str, followed: tuple[str, ...] = ()
) -> list[Record]:
    pages = read_baseline(rest, address, "s", classes, 42, followed)
    return [record async for page in pages for record in records_of(page)]


@pytest.mark.asyncio
async def test_only_the_resources_of_the_classes_are_read() -> None:
    async with rest_of({"tapi-topology:topology-context": TOPOLOGY}) as (rest, address, asked):
        [node, port] = await read(rest, address, "NODE", "NODE_EDGE_POINT", "CONDITION_DETECTOR")
        assert asked == ["tapi-topology:topology-context"]
    assert (node.key, node.uuid, node.token, node.appended_at_us) == ("n", "n", "", 42)
    assert (node.entity_class, node.body) == (
        "NODE",
        b'{"uuid":"n","owned-node-edge-point":[{"uuid":"p"}]}',
    )
    assert json.loads(port.envelope) == {
        "parent-address": ["topology-uuid:t", "node-uuid:n"],
        "record-content": "NODE_EDGE_POINT",
    }


@pytest.mark.asyncio
async def test_a_resource_that_is_not_there_is_looked_for_in_the_whole_context() -> None:
    context = {"tapi-common:context": {"uuid": "c", **TOPOLOGY}}
    async with rest_of({"": context}) as (rest, address, _):
        assert [record.key for record in await read(rest, address, "NODE", "DEVICE")] == ["n"]
    async with rest_of({"tapi-topology:topology-context": TOPOLOGY}) as (rest, address, _):
        with pytest.raises(BaselineError, match="answered with 404"):
            await read(rest, address, "NODE", "DEVICE")


@pytest.mark.asyncio
@pytest.mark.parametrize("classes", [(), ("ANY_CLASS",), ("PROFILE", "NODE")])
async def test_what_only_the_context_can_show(classes: tuple[str, ...]) -> None:
    context = {"context": {"uuid": "c", "profile": [{"uuid": "f", "x": 1}], **TOPOLOGY}}
    async with rest_of({"": context}) as (rest, address, asked):
        records = await read(rest, address, *classes)
        assert asked == [""]
    found = {record.key: record.entity_class for record in records}
    everything = {"c": "TAPI_CONTEXT", "f": "PROFILE", "t": "TOPOLOGY", "n": "NODE"}
    everything["p"] = "NODE_EDGE_POINT"
    assert found == ({"f": "PROFILE", "n": "NODE"} if "PROFILE" in classes else everything)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "message", "retriable"),
    [
        (403, "answered with 403", False),
        (500, "answered with 500", True),
        (b'{"tapi-topology:topology-context":{"topology":[{"uuid":"t"}', "cut short", True),
        (b"<html>", "no JSON", True),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested more than", False),
    ],
)
async def test_a_part_is_never_taken_for_the_whole(
    answer: Any, message: str, retriable: bool
) -> None:
    answers = {
        "tapi-topology:topology-context": TOPOLOGY,
        "tapi-connectivity:connectivity-context": answer,
    }
    async with rest_of(answers) as (rest, address, _):
        pages = read_baseline(rest, address, "s", ["CONNECTION"], 0)
        with pytest.raises(BaselineError, match=message) as raised:
            await anext(pages)
        assert raised.value.retriable is retriable


@pytest.mark.asyncio
async def test_a_lost_connection_is_no_end_of_the_baseline() -> None:
    async with rest_of({}) as (rest, _, _asked):
        lost = ContextAddress("http://h", "http://127.0.0.1:1/data/context", "")
        with pytest.raises(UnreachableError):
            await read(rest, lost, "NODE")


@pytest.mark.asyncio
async def test_pages_are_bounded() -> None:
    points = [{"uuid": f"s{n}"} for n in range(2_500)]
    answers = {"service-interface-point": {"tapi-common:service-interface-point": points}}
    async with rest_of(answers) as (rest, address, _):
        classes = ["SERVICE_INTERFACE_POINT"]
        pages = read_baseline(rest, address, "s", classes, 0)
        sizes = [len(records_of(page)) async for page in pages]
    assert sizes == [1_000, 1_000, 500]


PORTS = "owned-node-edge-point"


@pytest.mark.asyncio
async def test_a13_3_8_1_2_statements_of_one_uuid_that_are_alike_are_one() -> None:
    nodes = [{"uuid": f"n{n}", PORTS: [{"uuid": "same", "x": 1}]} for n in (1, 2)]
    document = {"topology-context": {"topology": [{"uuid": "t", "node": nodes}]}}
    async with rest_of({"tapi-topology:topology-context": document}) as (rest, address, _):
        [port] = await read(rest, address, "NODE_EDGE_POINT")
    assert (port.key, port.uuid) == ("same", "same")
    assert json.loads(port.envelope) == {
        "parent-address": ["topology-uuid:t", "node-uuid:n1"],
        "record-content": "NODE_EDGE_POINT",
        "further-parent-addresses": [["topology-uuid:t", "node-uuid:n2"]],
    }


@pytest.mark.asyncio
async def test_a13_statements_of_one_uuid_that_differ_are_one_for_each_place() -> None:
    nodes = [{"uuid": f"n{n}", PORTS: [{"uuid": "same", "x": n}]} for n in (1, 2)]
    document = {"topology-context": {"topology": [{"uuid": "t", "node": nodes}]}}
    async with rest_of({"tapi-topology:topology-context": document}) as (rest, address, _):
        records = await read(rest, address, "NODE_EDGE_POINT")
    assert [(record.key, record.uuid) for record in records] == [
        (f"topology-uuid:t+node-uuid:n{n}+node-edge-point-uuid:same", "same") for n in (1, 2)
    ]


@pytest.mark.asyncio
async def test_a13_one_uuid_in_two_classes_is_two_entities() -> None:
    topology = {"uuid": "same", "x": 1, "node": [{"uuid": "same", "x": 2}]}
    document = {"topology-context": {"topology": [topology]}}
    async with rest_of({"tapi-topology:topology-context": document}) as (rest, address, _):
        records = await read(rest, address, "TOPOLOGY", "NODE")
    assert [(record.entity_class, record.uuid, record.key) for record in records] == [
        ("TOPOLOGY", "same", "topology-uuid:same"),
        ("NODE", "same", "topology-uuid:same+node-uuid:same"),
    ]


@pytest.mark.asyncio
async def test_a13_local_classes_that_share_an_id_are_two_entities() -> None:
    group = {"uuid": "g", "mep": [{"local-id": "1"}], "mip": [{"local-id": "1"}]}
    async with rest_of({"tapi-oam:oam-context": {"oam-context": {"meg": [group]}}}) as at:
        records = await read(*at[:2], "MEG_END_POINT", "MEG_INTERMEDIATE_POINT")
    assert len({record.key for record in records}) == len(records) == 2


@pytest.mark.asyncio
async def test_a13_3_8_1_2_a_reference_is_no_statement() -> None:
    link = {"uuid": "l", "node": [{"uuid": "n"}], "node-edge-point": [{"uuid": "p", "x": 7}]}
    node = {"uuid": "n", "x": 1, PORTS: [{"uuid": "p", "x": 2}]}
    topology = {"uuid": "t", "link": [link], "node": [node]}
    services = {"uuid": "s", "topology": [{"uuid": "t"}]}
    document = {"topology-context": {"nw-topology-service": services, "topology": [topology]}}
    async with rest_of({"tapi-topology:topology-context": document}) as (rest, address, _):
        records = await read(
            rest, address, "NETWORK_TOPOLOGY_SERVICE", "TOPOLOGY", "NODE", "LINK", "NODE_EDGE_POINT"
        )
    assert {record.key: json.loads(record.body) for record in records} == {
        "s": services,
        "t": {"uuid": "t", "link": [{"uuid": "l"}], "node": [{"uuid": "n"}]},
        "l": link,
        "n": {"uuid": "n", "x": 1, PORTS: [{"uuid": "p"}]},
        "p": {"uuid": "p", "x": 2},
    }


@pytest.mark.asyncio
async def test_a13_an_identifier_where_the_entity_stands_shows_that_it_exists() -> None:
    """A provider whose GET is not deep must not look like one whose entities are gone."""
    node = {"uuid": "n", PORTS: [{"uuid": "p"}]}
    document = {"topology-context": {"topology": [{"uuid": "t", "node": [node]}]}}
    async with rest_of({"tapi-topology:topology-context": document}) as (rest, address, _):
        [port] = await read(rest, address, "NODE_EDGE_POINT")
    assert (port.uuid, port.body) == ("p", b'{"uuid":"p"}')


@pytest.mark.asyncio
async def test_a13_3_8_1_2_nothing_is_cut_that_no_followed_stream_carries() -> None:
    holder = {"uuid": "h", "occupying-fru": {"device-uuid": "d", "equipment-uuid": "e2"}}
    equipment = {"uuid": "e", "contained-holder": [holder], "actual-non-field": {"uuid": "x"}}
    device = {"uuid": "d", "equipment": [equipment], "access-port": [{"uuid": "a", "x": 1}]}
    document = {"tapi-equipment:physical-context": {"device": [device]}}
    async with rest_of({"tapi-equipment:physical-context": document}) as (rest, address, _):
        [found] = await read(rest, address, "EQUIPMENT")
        assert json.loads(found.body) == equipment
        assert json.loads(found.envelope)["parent-address"] == ["device-uuid:d"]
        [found] = await read(rest, address, "DEVICE")
        assert json.loads(found.body) == device
        [found] = await read(rest, address, "DEVICE", followed=("EQUIPMENT", "HOLDER"))
        assert json.loads(found.body) == device | {"equipment": [{"uuid": "e"}]}
        [found] = await read(rest, address, "DEVICE", followed=("HOLDER",))
        cut = equipment | {"contained-holder": [{"uuid": "h"}]}
        assert json.loads(found.body) == device | {"equipment": [cut]}


@pytest.mark.asyncio
async def test_a13_local_classes_that_a_stream_declares_get_rows() -> None:
    routes = [{"local-id": "1", "x": 1}, {"local-id": "2", "x": 2}]
    connections = [{"uuid": f"c{n}", "route": routes} for n in (1, 2)]
    service = {"uuid": "s", "end-point": [{"local-id": "1", "x": 3}]}
    document = {
        "connectivity-context": {"connection": connections, "connectivity-service": [service]}
    }
    async with rest_of({"tapi-connectivity:connectivity-context": document}) as (rest, address, _):
        found = await read(rest, address, "ROUTE", "CONNECTIVITY_SERVICE_END_POINT")
        assert {one.key: (one.entity_class, one.body) for one in found} == {
            **{f"c{n}/1": ("ROUTE", b'{"local-id":"1","x":1}') for n in (1, 2)},
            **{f"c{n}/2": ("ROUTE", b'{"local-id":"2","x":2}') for n in (1, 2)},
            "s/1": ("CONNECTIVITY_SERVICE_END_POINT", b'{"local-id":"1","x":3}'),
        }
        whole, cut = [
            json.loads((await read(rest, address, "CONNECTION", followed=followed))[0].body)
            for followed in ((), ("ROUTE",))
        ]
        assert whole == connections[0]
        assert cut == {"uuid": "c1", "route": [{"local-id": "1"}, {"local-id": "2"}]}


def test_readable_is_what_a_get_can_prove_absent() -> None:
    stated = ["NODE", "CONDITION_DETECTOR", "PROFILE", "ROUTE"]
    assert readable_classes(stated) == {"NODE", "ROUTE"}
    assert readable_classes([]) == readable_classes(["ANY_CLASS"])
    # From TAPI 2.4 on a profile stands in the context.
    assert readable_classes(stated, "2.6") == {"NODE", "ROUTE", "PROFILE"}
    assert unprovable_classes(stated) - unprovable_classes(stated, "2.6") == {"PROFILE"}
    for tapi, shown in READABLE.items():
        # A stream of any class need not state a local one by itself.
        assert shown - readable_classes([], tapi) == shown & LOCAL_CLASSES
        assert "CONDITION_DETECTOR" not in shown


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("tapi", "resources"),
    [
        ("2.1.3", ["tapi-oam:oam-context"]),
        # tapi-oam of 2.6 has services below a connectivity-service, too.
        ("2.6", ["tapi-connectivity:connectivity-context", "tapi-oam:oam-context"]),
    ],
)
async def test_each_edition_has_its_resources(tapi: str, resources: list[str]) -> None:
    service, below = {"uuid": "o", "oam-service-point": []}, {"uuid": "c"}
    inner = {"connectivity-oam-service": {"oam-service": [{"uuid": "p", "x": 1}]}}
    answers = {
        "tapi-oam:oam-context": {"tapi-oam:oam-context": {"oam-service": [service]}},
        "tapi-connectivity:connectivity-context": {
            "tapi-connectivity:connectivity-context": {"connectivity-service": [below | inner]}
        },
    }
    async with rest_of(answers) as (rest, address, asked):
        pages = read_baseline(rest, address, "s", ["OAM_SERVICE"], 0, (), tapi)
        found = {record.uuid async for page in pages for record in records_of(page)}
    assert asked == resources
    assert found == ({"o", "p"} if tapi == "2.6" else {"o"})


def test_a_later_class_is_stated_where_it_is_found_and_stays_where_it_stands() -> None:
    document = {"uuid": "a", "mixed": {"kept": 1, "later": {"uuid": "d", "x": 1}}}
    found = list(entities({"tapi-topology:node": document}))
    assert [(entity.entity_class, entity.uuid) for entity in found] == [
        ("NODE", "a"),
        ("LATER", "d"),
    ]
    assert found[0].content == document
    assert found[1].parent_address == ("node-uuid:a",)


@pytest.mark.parametrize(
    "name",
    [
        "transportpce_tapi24_context.json",
        "odtn_out_tapi_context.json",
        "onf_ri_odu_context.json",
        "onf_ri_ols_context.json",
        "onf_ri_tpnd_context.json",
    ],
)
def test_every_object_with_a_uuid_is_stated(shared_data: Path, name: str) -> None:
    text = (shared_data / "tapi" / name).read_bytes()
    found = [one for one in entities(json.loads(text)) if one.entity_class not in LOCAL_CLASSES]
    assert len(found) == sum(1 for _ in _with_uuid(json.loads(text)))
    nested = [inner for e in found for value in e.content.values() for inner in _with_uuid(value)]
    assert all(inner.keys() == {"uuid"} for inner in nested)


def _with_uuid(value: Any) -> Any:
    if isinstance(value, dict):
        if "uuid" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _with_uuid(inner)
