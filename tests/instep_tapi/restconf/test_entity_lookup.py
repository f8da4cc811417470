"""A request for one entity: its path in both editions, and what deviating answers say of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from yarl import URL

from instep.errors import AuthenticationError, SourceError
from instep.model.entities import StoredEntity
from instep.model.lookups import LookupVerdict
from instep_tapi.restconf.client import Response
from instep_tapi.restconf.entity_lookup import entity_url, look_up, read_entity, shown_classes
from tests.instep_tapi.restconf.test_baseline import ROOT, rest_of

CONTEXT = URL("http://h/restconf/data/tapi-common:context")


def entity(entity_class: str, uuid: str, *above: str, body: Any = None) -> StoredEntity:
    return StoredEntity(
        stream="s",
        key="k",
        entity_class=entity_class,
        token="t",
        appended_at_us=0,
        attempt=1,
        body=json.dumps(body or {"uuid": uuid}).encode(),
        envelope=json.dumps({"parent-address": list(above)}).encode() if above else b"{}",
        uuid=uuid,
    )


NODE = entity("NODE", "n", "topology-uuid:t")
PORT = entity("NODE_EDGE_POINT", "p", "topology-uuid:t", "node-uuid:n")
PORT_PATH = "/tapi-topology:topology-context/topology=t/node=n/owned-node-edge-point"
PATHS = [
    (entity("SERVICE_INTERFACE_POINT", "s"), "/service-interface-point=s"),
    (NODE, "/tapi-topology:topology-context/topology=t/node=n"),
    (PORT, f"{PORT_PATH}=p"),
    (
        entity(
            "CONNECTION_END_POINT",
            "a/b c",
            *("topology-uuid:t", "node-uuid:n", "node-edge-point-uuid:p,1"),
        ),
        f"{PORT_PATH}=p%2C1/tapi-connectivity:cep-list/connection-end-point=a%2Fb%20c",
    ),
    (
        entity(
            "ROUTE",
            "c/7",
            "connection-uuid:c",
            body={"local-id": "7"},
        ),
        "/tapi-connectivity:connectivity-context/connection=c/route=7",
    ),
    # The class has another name than the list in which it stands.
    (entity("MAINTENANCE_ENTITY_GROUP", "m"), "/tapi-oam:oam-context/meg=m"),
]


@pytest.mark.parametrize("tapi", ["2.1.3", "2.6"])
@pytest.mark.parametrize(("asked", "path"), PATHS)
def test_rfc8040_3_5_3_paths(tapi: str, asked: StoredEntity, path: str) -> None:
    assert str(entity_url(CONTEXT, tapi, asked)) == f"{CONTEXT}{path}"


def test_the_editions_differ() -> None:
    service = entity("OAM_SERVICE", "o", "connectivity-service-uuid:c")
    assert entity_url(CONTEXT, "2.1.3", service) is None
    assert str(entity_url(CONTEXT, "2.6", service)).endswith(
        "/connectivity-service=c/tapi-oam:connectivity-oam-service/oam-service=o"
    )
    profile = entity("PROFILE", "p")
    assert entity_url(CONTEXT, "2.1.3", profile) is None
    assert str(entity_url(CONTEXT, "2.6", profile)) == f"{CONTEXT}/profile=p"


@pytest.mark.parametrize(
    "asked",
    [
        entity("NODE", "n"),  # what it stands in was not stated
        entity("NODE", "n", "node-uuid:x"),
        entity("NODE", "n", "topology-uuid:"),
        entity("NODE", "n", "nonsense"),
        entity("TAPI_CONTEXT", "c"),
        entity("CONDITION_DETECTOR", "c"),
        entity("ROUTE", "c/7", "connection-uuid:c"),  # no local-id
        entity("X_OF_THE_VENDOR", "x"),
    ],
)
def test_what_has_no_path_is_not_asked_for(asked: StoredEntity) -> None:
    assert entity_url(CONTEXT, "2.1.3", asked) is None


def test_an_envelope_that_is_no_json_is_not_asked_for() -> None:
    broken = StoredEntity(
        stream="s",
        key="k",
        entity_class="LINK",
        token="",
        appended_at_us=0,
        attempt=1,
        body=b"nothing",
        envelope=b"{",
    )
    assert entity_url(CONTEXT, "2.1.3", broken) is None


def test_classes_of_moments_are_not_shown() -> None:
    assert shown_classes(["PM_CURRENT_DATA", "NODE", "CONDITION_DETECTOR"], "2.1.3") == {"NODE"}
    everything = shown_classes([], "2.6")
    assert {"NODE", "LINK", "CONNECTION"} <= everything
    assert not everything & {"CONDITION_DETECTOR", "AVAILABLE_STREAM", "HISTORY_DATA"}


CUT = frozenset({"NODE", "NODE_EDGE_POINT"})
WHOLE = {"uuid": "n", "x": 1, "owned-node-edge-point": [{"uuid": "p", "y": 2}]}
SHOWN = b'{"uuid":"n","x":1,"owned-node-edge-point":[{"uuid":"p"}]}'


@pytest.mark.parametrize(
    "answer",
    [
        {"tapi-topology:node": [WHOLE]},  # RFC 8040 4.3
        {"tapi-topology:node": WHOLE},
        {"node": [WHOLE]},
        WHOLE,
        [WHOLE],
        {"tapi-topology:node": [{"uuid": "other"}, WHOLE, {"uuid": "n2"}]},
    ],
)
def test_each_wrapper_of_the_field_shows_the_entity(answer: Any) -> None:
    body = json.dumps(answer).encode()
    found = read_entity(Response("http://h/x/node=n", 200, body), NODE, CUT)
    assert (found.verdict, found.body) == (LookupVerdict.SHOWN, SHOWN)
    assert "owned-node-edge-point" in found.contained


def test_a_uuid_in_other_letters_is_the_same() -> None:
    upper = "ABCDEF00-0000-4000-8000-000000000001"
    body = json.dumps({"node": [{"uuid": upper}]}).encode()
    asked = entity("NODE", upper.lower(), "topology-uuid:t")
    found = read_entity(Response("http://h/node=x", 200, body), asked, CUT)
    assert found.verdict is LookupVerdict.SHOWN


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html><body>Login</body></html>"),
        (200, b"not json"),
        (200, b'{"node": [{"uuid": "n"'),
        (200, b'{"node": [{"uuid": "other"}]}'),
        (200, b'{"node": [{"uuid": "n"}, {"uuid": "n", "x": 2}]}'),
        (200, b'{"link": [{"uuid": "n"}]}'),
        (200, b"{}"),
        (200, b"[]"),
        (200, b"null"),
        (200, b'{"node": ["n"]}'),
        (200, b"[" * 100_000),
        (204, b""),
        (400, b""),
        (403, b""),
        (404, b"<!DOCTYPE html><h1>Not Found</h1>"),  # of a proxy
        (429, b""),
        (500, b""),
        (503, b'{"errors": {}}'),
    ],
)
def test_what_does_not_state_it_says_nothing(status: int, body: bytes) -> None:
    found = read_entity(Response("http://h/node=n", status, body), NODE, CUT)
    assert found.verdict is LookupVerdict.UNKNOWN
    assert found.reason


@pytest.mark.parametrize("body", [b"", b'{"ietf-restconf:errors": {"error": []}}'])
def test_a_404_of_restconf_says_that_it_is_absent(body: bytes) -> None:
    found = read_entity(Response("http://h/node=n", 404, body), NODE, CUT)
    assert found.verdict is LookupVerdict.ABSENT


@pytest.mark.asyncio
async def test_a17_one_entity_is_one_request() -> None:
    path = "tapi-topology:topology-context/topology=t/node=n"
    async with rest_of({path: {"node": [WHOLE]}}) as (rest, address, asked):
        context = URL(address.context)
        found = await look_up(rest, context, "2.1.3", ["NODE", "NODE_EDGE_POINT"], NODE)
        assert found is not None
        assert (found.verdict, found.body) == (LookupVerdict.SHOWN, SHOWN)
        absent = await look_up(rest, context, "2.1.3", ["NODE_EDGE_POINT"], PORT)
        assert absent is not None
        assert absent.verdict is LookupVerdict.ABSENT
        assert await look_up(rest, context, "2.1.3", ["NODE"], entity("NODE", "n")) is None
        assert asked == [path, f"{path}/owned-node-edge-point=p"]
        assert context.path == ROOT


@pytest.mark.asyncio
async def test_a_login_that_is_refused_and_a_flood_are_errors() -> None:
    path = "tapi-topology:topology-context/topology=t/node="
    answers = {f"{path}n": 401, f"{path}m": b" " * (5 * 1024 * 1024)}
    async with rest_of(answers) as (rest, address, _):
        with pytest.raises(AuthenticationError):
            await look_up(rest, URL(address.context), "2.1.3", ["NODE"], NODE)
        large = entity("NODE", "m", "topology-uuid:t")
        with pytest.raises(SourceError):
            await look_up(rest, URL(address.context), "2.1.3", ["NODE"], large)
