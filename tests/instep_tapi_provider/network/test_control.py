"""The control endpoint: the truth for another process, and trouble on request."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from yarl import URL

from instep_tapi_provider import Provider, ProviderSettings, StreamSettings
from tests.instep_tapi_provider.client_kit import connected, held, network, token, truth, until

SETTINGS = ProviderSettings(streams=(StreamSettings("all"),), control=True)


async def post(provider: Provider, command: str, **body: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(provider.url) as session,
        session.post(f"/_instep/{command}", json=body) as response,
    ):
        return response.status, await response.json()


async def get(provider: Provider, what: str) -> str:
    async with (
        aiohttp.ClientSession(provider.url) as session,
        session.get(f"/_instep/{what}") as response,
    ):
        assert response.status == 200
        return await response.text()


@pytest.mark.asyncio
async def test_it_is_off_unless_asked_for() -> None:
    async with (
        Provider(network()) as provider,
        aiohttp.ClientSession(provider.url) as session,
        session.get("/_instep/entities") as response,
    ):
        assert response.status == 404


@pytest.mark.asyncio
async def test_entities_are_the_truth_with_the_token_that_states_it() -> None:
    async with Provider(network(), SETTINGS) as provider:
        provider.delete("n0")
        provider.raise_alarm("n1", "FANFAIL")
        lines = [json.loads(line) for line in (await get(provider, "entities")).splitlines()]
        assert {line["key"]: line["body"] for line in lines} == truth(provider)
        assert {line["key"]: line["class"] for line in lines} == {
            key: cls for key, (cls, _) in provider.entities("all").items()
        }
        async with connected(provider) as client:
            records = {token(r): r for r in await client.records(11 + 6 + 1)}
        for line in lines:
            stated = records[line["token"]]
            assert held([stated]) == {line["key"]: line["body"]}
            assert stated["log-record-header"]["log-append-time-stamp"] == line["appended_at"]
            assert line["stream"] == "all"


@pytest.mark.asyncio
async def test_the_network_is_changed_by_commands() -> None:
    async with Provider(network(), SETTINGS) as provider:
        status, body = await post(
            provider, "create", parent="top", path="node", value={"uuid": "x"}
        )
        assert (status, body) == (200, {"keys": ["x"]})
        await post(provider, "update", key="x", changes={"operational-state": "DISABLED"})
        assert truth(provider)["x"] == {"uuid": "x", "operational-state": "DISABLED"}
        _, body = await post(provider, "raise", key="x", condition="HITEMP", severity="MINOR")
        assert body["key"] in truth(provider)
        await post(provider, "clear", key=body["key"])
        assert (await post(provider, "delete", key="x"))[1] == {"keys": ["x"]}
        assert not {"x", body["key"]} & truth(provider).keys()


@pytest.mark.asyncio
async def test_faults_streams_and_storms_are_steered_by_commands() -> None:
    async with Provider(network(), SETTINGS) as provider:
        _, faults = await post(provider, "faults", rewind_records=7)
        assert faults["rewind_records"] == 7
        assert json.loads(await get(provider, "faults")) == faults
        async with connected(provider) as client:
            await client.records(11)
            await post(provider, "pause", stream="all")
            await post(provider, "update", key="n0", changes={"operational-state": "DISABLED"})
            await client.silence()
            await post(provider, "activate", stream="all")
            await client.records(1)
            assert (await post(provider, "drop", stream="all"))[1] == {"dropped": 1}
            assert await client.rest() == []
        await post(provider, "lose", stream="all")
        provider.update("n1", {"operational-state": "DISABLED"})
        assert (await post(provider, "recover", stream="all"))[1] == {"repaired": 1}
        log = provider.stream("all").log
        await post(provider, "forget")
        assert provider.stream("all").log is not log
        await post(provider, "storm", changes_per_s=1000, keys=3)
        newest = provider.stream("all").log.next_ordinal
        await until(lambda: provider.stream("all").log.next_ordinal > newest + 20)
        await post(provider, "storm", changes_per_s=0)
        assert json.loads(await get(provider, "counters"))["all"]["connections"] == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "body", "message"),
    [
        ("faults", {"nope": 1}, "no fault named 'nope'"),
        ("pause", {}, "needs 'stream'"),
        ("pause", {"stream": "x"}, "no stream is named 'x'"),
        ("update", {"key": "x", "changes": {}}, "no entity has the key 'x'"),
        ("storm", {"changes_per_s": -1}, "rate above 0"),
        ("inform", {"stream": "all", "key": "a", "facts": {}}, "has no information records"),
        ("inform", {"stream": "all", "key": "a", "facts": "text"}, "dictionary update"),
    ],
)
async def test_a_wrong_command_is_400_with_the_reason(
    command: str, body: dict[str, Any], message: str
) -> None:
    async with Provider(network(), SETTINGS) as provider:
        status, answer = await post(provider, command, **body)
        assert status == 400
        assert message in answer["error"]


@pytest.mark.asyncio
@pytest.mark.parametrize("data", [b"[1]", b"{"])
async def test_a_body_that_is_no_object_is_400(data: bytes) -> None:
    async with (
        Provider(network(), SETTINGS) as provider,
        aiohttp.ClientSession(provider.url) as session,
        session.post("/_instep/drop", data=data) as response,
    ):
        assert response.status == 400


@pytest.mark.asyncio
async def test_who_hangs_up_while_the_truth_is_sent_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    big = network(nodes=3_000)
    async with Provider(big, SETTINGS) as provider:
        place = URL(provider.url)
        assert place.host
        assert place.port
        _, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(b"GET /_instep/entities HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        writer.transport.abort()
        await asyncio.sleep(0.5)
        # The server goes on.
        assert json.loads(await get(provider, "counters"))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
