"""Discovery: every alias and prefix of the field gives the same streams; roots are found."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from instep.errors import DiscoveryError, SourceError, UnreachableError
from instep.model.streams import StreamState
from instep_http import client_context
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.facts.stream_profile import StreamProfile
from instep_tapi.options import NoAuth, read_options
from instep_tapi.restconf.auth import Authenticator
from instep_tapi.restconf.client import RestconfClient, error_text, new_client, restconf_root
from instep_tapi.restconf.discovery import find_context
from instep_tapi.wire.stream_context import (
    AvailableStream,
    StreamContext,
    StreamType,
    parse_context,
)

TYPE = {
    "uuid": "type-1",
    "stream-type-name": "alarms",
    "record-retention": "FOREVER",
    "record-content": ["CONDITION_DETECTOR"],
    "log-storage-strategy": "LOG_STORAGE_STRATEGY_COMPACTED",
    "log-record-strategy": "LOG_RECORD_STRATEGY_WHOLE_ENTITY_ON_CHANGE",
    "compacted-log-details": {"tombstone-retention": "240", "compaction-delay": "10"},
    "connection-protocol-details": {"allowed-connection-protocols": ["websockets"]},
}
STREAM = {
    "uuid": "stream-1",
    "stream-id": "alarms",
    "connection-address": "wss://h/x",
    "connection-protocol": "websockets",
    "stream-state": "STREAM_STATE_ACTIVE",
    "supported-stream-type": {"supported-stream-type-uuid": "type-1"},
}
STREAM_TYPE = StreamType(
    uuid="type-1",
    name="alarms",
    classes=("CONDITION_DETECTOR",),
    storage_strategy="COMPACTED",
    record_strategy="WHOLE_ENTITY_ON_CHANGE",
    record_retention_s=math.inf,
    compacted_details=True,
    tombstone_retention_s=240 * 60,
    compaction_delay_s=600,
    protocols=("websockets",),
)
_EXPECTED_STREAM = AvailableStream(
    uuid="stream-1",
    stream_id="alarms",
    state=StreamState.ACTIVE,
    addresses=("wss://h/x",),
    protocol="websockets",
    type=STREAM_TYPE,
    profile=StreamProfile("2.1.3", "record-content is stated"),
)
EXPECTED = StreamContext((_EXPECTED_STREAM,), (STREAM_TYPE,))


def container(stream: dict[str, Any] = STREAM, type_: dict[str, Any] = TYPE) -> dict[str, Any]:
    return {"available-stream": [stream], "supported-stream-type": [type_]}


def with_changes(original: dict[str, Any], **changes: Any) -> dict[str, Any]:
    changed = {**original, **changes}
    return {name: value for name, value in changed.items() if value is not None}


@pytest.mark.parametrize(
    ("stated", "size"), [("64 MB", "64 MB"), (1_048_576, "1048576"), (None, ""), (True, "")]
)
def test_3_7_1_the_segment_size_is_read_as_stated(stated: object, size: str) -> None:
    context = parse_context(container(type_={**TYPE, "segment-size": stated}))
    assert context is not None
    assert context.types[0].segment_size == size


@pytest.mark.parametrize(
    ("retention", "delay", "deviations"),
    [
        ("5", "10", ("retention-below-delay",)),
        ("10", "10", ()),
        ("FOREVER", "10", ()),
        ("5", None, ()),
        (None, "10", ()),
    ],
)
def test_4_3_4_a_tombstone_retention_below_the_compaction_delay_is_a_deviation(
    retention: str | None, delay: str | None, deviations: tuple[str, ...]
) -> None:
    details = {"tombstone-retention": retention, "compaction-delay": delay}
    context = parse_context(container(type_={**TYPE, "compacted-log-details": details}))
    assert context is not None
    assert context.types[0].deviations == deviations
    assert set(deviations) <= set(DEVIATIONS)


@pytest.mark.parametrize(
    "document",
    [
        container(),
        {"tapi-streaming:stream-context": container()},
        {"stream-context": container()},
        {"tapi-common:context": {"uuid": "c", "tapi-streaming:stream-context": container()}},
        {"context": {"stream-context": container()}},
        {"available-stream": STREAM, "supported-stream-type": TYPE},
        {
            "available-stream": [{**STREAM, "supported-stream-type": TYPE}],
            "supported-stream-type": [TYPE],
        },
        container(with_changes(STREAM, **{"supported-stream-type": "type-1"})),
        container(
            with_changes(
                STREAM,
                **{
                    "supported-stream-type": {"tapi-streaming:supported-stream-type-uuid": "type-1"}
                },
            )
        ),
        container({f"tapi-streaming:{name}": value for name, value in STREAM.items()}),
        container(
            type_=with_changes(
                TYPE, **{"record-content": None, "stream-type-content": ["CONDITION_DETECTOR"]}
            )
        ),
        container(
            with_changes(STREAM, **{"stream-state": " tapi-streaming:STREAM_STATE_ACTIVE"}),
            with_changes(
                TYPE,
                **{
                    "record-content": "STREAMING_OBJECT_TYPE_CONDITION_DETECTOR",
                    "log-storage-strategy": "COMPACTED",
                    "log-record-strategy": "tapi-streaming:WHOLE_ENTITY_ON_CHANGE",
                    "compacted-log-details": None,
                    "tapi-streaming:compacted-log-details": {
                        "tombstone-retention": "240 minutes",
                        "compaction-delay": 10,
                    },
                },
            ),
        ),
    ],
)
def test_every_spelling_gives_the_same_streams(document: Any) -> None:
    found = parse_context(document)
    assert found is not None
    (stream,) = found.streams
    assert stream.profile.tapi == "2.1.3"
    # What shows the edition is another thing in another spelling.
    same = msgspec.structs.replace(stream, profile=_EXPECTED_STREAM.profile)
    assert StreamContext((same,), found.types) == EXPECTED


@pytest.mark.parametrize(
    ("retention", "forgets"),
    [("FOREVER", False), ("forever ", False), (None, False), ("", False), ("1440", True),
     ("10 GB", True)],
)  # fmt: skip
def test_a_log_that_states_for_how_long_it_keeps_records_forgets(
    retention: str | None, forgets: bool
) -> None:
    context = parse_context({"supported-stream-type": [{**TYPE, "record-retention": retention}]})
    assert context is not None
    assert context.types[0].forgets is forgets


def test_a_type_that_is_stated_within_its_stream() -> None:
    document = {"available-stream": [{**STREAM, "supported-stream-type": TYPE}]}
    found = parse_context(document)
    assert found is not None
    assert found.streams == EXPECTED.streams


def test_a_document_without_stream_context() -> None:
    assert parse_context({"tapi-common:context": {"uuid": "c"}}) is None
    assert parse_context({"tapi-streaming:stream-context": {}}) == StreamContext()


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*STREAM, *TYPE, "stream-context"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(json_values, json_values)
def test_nothing_that_a_provider_sends_raises(streams: Any, types: Any) -> None:
    parse_context(streams)
    parse_context({"available-stream": streams, "supported-stream-type": types})


XRD = '<XRD xmlns="http://docs.oasis-open.org/ns/xri/xrd-1.0"><Link rel="{}" href="{}"/></XRD>'


@pytest.mark.parametrize(
    ("document", "root"),
    [
        (XRD.format("restconf", "/top/restconf/"), "/top/restconf"),
        (XRD.format("restconf", "/"), ""),
        (XRD.format("restconf", "https://h:1/r"), "/r"),
        (XRD.format("restconf", "https://elsewhere/r"), None),
        (XRD.format("lrdd", "/r"), None),
        ('{"links": [{"rel": "restconf", "href": "/r"}]}', "/r"),
        ('{"links": 1}', None),
        ("<!DOCTYPE x><XRD/>", None),
        ("<html>", None),
        ("", None),
    ],
)
def test_rfc_8040_3_1_the_root_of_host_meta(document: str, root: str | None) -> None:
    assert restconf_root(document.encode(), URL("https://h:1")) == root


def test_rfc_8040_errors_are_reported() -> None:
    body = b'{"ietf-restconf:errors":{"error":[{"error-tag":"access-denied"}]}}'
    assert error_text(body) == "access-denied"
    assert error_text(b"<html>") == error_text(b"[]") == ""


CONTAINER = "/data/tapi-common:context/tapi-streaming:stream-context"


@asynccontextmanager
async def server_of(answers: Mapping[str, Any]) -> AsyncIterator[tuple[RestconfClient, URL]]:
    """A server that has these paths; a tuple is a status and a location or text."""

    async def handle(request: web.Request) -> web.Response:
        answer = answers.get(request.rel_url.raw_path, (404, ""))
        if isinstance(answer, tuple):
            status, text = answer
            return web.Response(status=status, text=text, headers={"Location": text})
        if isinstance(answer, str):
            return web.Response(text=answer)
        return web.json_response(answer, headers={"Date": "Fri, 01 Jan 2021 00:00:00 GMT"})

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    async with TestServer(app) as server:
        endpoint = URL(str(server.make_url("/")))
        options = read_options({"endpoints": [str(endpoint)]}, "source")
        async with new_client(options, client_context(options.tls, "tls")) as client:
            auth = Authenticator(NoAuth(), client)
            auth.use(endpoint)
            yield RestconfClient(client, auth, 10_000, 30.0, lambda: 1_609_459_200.0), endpoint


@pytest.mark.asyncio
@pytest.mark.parametrize("root", ["/restconf", "/tapi", "", "/rests", "/own"])
async def test_st_0_2_finds_the_root(root: str) -> None:
    async with server_of({root + CONTAINER: container()}) as (rest, endpoint):
        address, found = await find_context(rest, endpoint, ["/own/"])
        assert found == EXPECTED
        assert URL(address.streams).path == root + CONTAINER
        assert URL(address.context).path == f"{root}/data/tapi-common:context"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/restconf" + CONTAINER + "/", container()),
        ("/tapi/data/context/stream-context", {"stream-context": container()}),
        ("/data/tapi-common:context", {"context": {"stream-context": container()}}),
        ("/rests/data/context", {"context": {"stream-context": container()}}),
    ],
)
async def test_st_0_2_finds_the_streams_where_they_are(path: str, document: Any) -> None:
    async with server_of({path: document}) as (rest, endpoint):
        address, found = await find_context(rest, endpoint)
        assert found == EXPECTED
        assert URL(address.streams).path == path


@pytest.mark.asyncio
async def test_host_meta_leads_to_the_root() -> None:
    answers = {
        "/.well-known/host-meta": XRD.format("restconf", "/deep/down"),
        "/deep/down" + CONTAINER: container(),
    }
    async with server_of(answers) as (rest, endpoint):
        address, _ = await find_context(rest, endpoint)
        assert URL(address.context).path == "/deep/down/data/tapi-common:context"


@pytest.mark.asyncio
async def test_a_context_without_streams_is_no_stream_context() -> None:
    answers = {"/restconf/data/tapi-common:context": {"tapi-common:context": {"uuid": "c"}}}
    async with server_of(answers) as (rest, endpoint):
        with pytest.raises(DiscoveryError, match="no stream-context found") as raised:
            await find_context(rest, endpoint)
        assert "no stream-context in it" in raised.value.data["tried"].values()


@pytest.mark.asyncio
async def test_an_answer_that_is_no_json() -> None:
    async with server_of({"/restconf" + CONTAINER: "<html>"}) as (rest, endpoint):
        with pytest.raises(
            DiscoveryError, match=r"no stream-context found under 24 addresses \(no JSON: .+, 404\)"
        ):
            await find_context(rest, endpoint)


@pytest.mark.asyncio
async def test_an_answer_over_the_limit() -> None:
    async with server_of({"/restconf" + CONTAINER: "x" * 10_001}) as (rest, endpoint):
        with pytest.raises(SourceError, match="more than 10000 bytes — max_body_bytes"):
            await find_context(rest, endpoint)


@pytest.mark.asyncio
async def test_a_redirect_within_the_server_is_followed() -> None:
    answers = {"/restconf" + CONTAINER: (301, "/new"), "/new": container()}
    async with server_of(answers) as (rest, endpoint):
        assert (await find_context(rest, endpoint))[1] == EXPECTED


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "location", ["http://127.0.0.2:9/x", "https://127.0.0.1/x", "//other/x", "mailto:x"]
)
async def test_a_redirect_to_another_origin_is_refused(location: str) -> None:
    async with server_of({"/restconf" + CONTAINER: (302, location)}) as (rest, url):
        with pytest.raises(UnreachableError, match="our login is not taken there") as raised:
            await find_context(rest, url)
    assert not raised.value.retriable


@pytest.mark.asyncio
async def test_redirects_in_a_circle_end() -> None:
    async with server_of({"/restconf" + CONTAINER: (302, "/restconf" + CONTAINER)}) as (rest, url):
        with pytest.raises(UnreachableError, match="too many redirects"):
            await find_context(rest, url)


@pytest.mark.asyncio
async def test_the_providers_clock_is_noted() -> None:
    async with server_of({"/restconf" + CONTAINER: container()}) as (rest, endpoint):
        await find_context(rest, endpoint)
        assert rest.clock_offset_us == 0
        rest._now = lambda: 1_609_459_210.5
        await find_context(rest, endpoint)
        assert rest.clock_offset_us == -10_000_000
