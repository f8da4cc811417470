"""The source and bad input: each with its message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from instep.errors import (
    AuthenticationError,
    BaselineError,
    DiscoveryError,
    FrameTooBigError,
    NoStreamError,
    StreamGoneError,
    TlsError,
    TokenRefusedError,
    UnreachableError,
)
from instep.model.records import RecordChunk
from instep.model.streams import Start, StreamState
from instep_tapi.facts.names import StreamState as ProviderState
from instep_tapi.plugin import source as plugin
from instep_tapi_provider import AuthSettings, Faults, Provider, ProviderSettings, StreamSettings
from tests.instep_tapi.source_kit import (
    DEADLINE_S,
    TRUNCATED,
    certified,
    ending,
    following,
    network,
    one_stream,
    only,
    receive,
    serving,
)


@pytest.mark.asyncio
async def test_unknown_host() -> None:
    source = plugin.build({"endpoints": ["https://no-such-host.invalid:8443"]}, "source")
    with pytest.raises(UnreachableError, match=r"no-such-host\.invalid.*: unknown host"):
        await source.discover()
    await source.close()


@pytest.mark.asyncio
async def test_the_next_endpoint_is_asked_where_one_does_not_answer() -> None:
    async with Provider(network(), one_stream()) as provider:
        endpoints = ["http://127.0.0.1:1", provider.url]
        source = plugin.build({"endpoints": endpoints}, "source")
        assert (await only(source)).origin.startswith(provider.url)
        await source.close()
    source = plugin.build({"endpoints": ["http://127.0.0.1:1", "http://127.0.0.1:2"]}, "source")
    with pytest.raises(UnreachableError, match="none of the endpoints can be reached"):
        await source.discover()
    await source.close()


@pytest.mark.asyncio
async def test_tls_is_verified_unless_turned_off_by_name(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    settings = ProviderSettings(streams=(StreamSettings("network"),), tls=certified(ca))
    async with Provider(network(), settings) as provider:
        async with following(provider) as source:
            with pytest.raises(
                TlsError, match=r"certificate verify failed|unable to get"
            ) as raised:
                await source.discover()
            assert "tls.ca" in raised.value.hint
        for trusted in ({"ca": str(ca)}, {"verify": "off"}, {"verify": False}):
            async with following(provider, tls=trusted) as source:
                info = await only(source)
                assert info.details["address"].startswith("wss://")
                async with source.feed(info, Start.OLDEST) as feed:
                    assert await receive(feed, 1)


@pytest.mark.asyncio
async def test_a_refused_token_is_reported_without_it() -> None:
    settings = ProviderSettings(
        streams=(StreamSettings("network"),), auth=AuthSettings(tokens=frozenset({"right"}))
    )
    bearer = {"kind": "bearer", "token": "very-secret"}
    async with serving(settings, auth=bearer) as (_, source):
        with pytest.raises(AuthenticationError, match="the provider answers 401") as raised:
            await source.discover()
        assert "very-secret" not in f"{raised.value!r} {raised.value} {raised.value.data} {source}"
    async with serving(settings) as (_, source):
        with pytest.raises(
            AuthenticationError,
            match="give a login: --token or --auth-config, in a configuration `auth`",
        ):
            await source.discover()


@pytest.mark.asyncio
async def test_404_on_discovery() -> None:
    faults = Faults(restconf_status=404, restconf_spares_discovery=False)
    async with serving(faults=faults) as (_, source):
        with pytest.raises(DiscoveryError, match="no stream-context found") as raised:
            await source.discover()
        assert set(raised.value.data["tried"].values()) == {"404"}


@pytest.mark.asyncio
@pytest.mark.parametrize(("status", "retriable"), [(403, False), (503, True)])
async def test_discovery_refused(status: int, retriable: bool) -> None:
    faults = Faults(restconf_status=status, restconf_spares_discovery=False)
    async with serving(faults=faults) as (_, source):
        with pytest.raises(DiscoveryError, match=f"answered with {status}") as raised:
            await source.discover()
        assert raised.value.retriable is retriable


@pytest.mark.asyncio
async def test_more_streams_than_are_to_be_followed() -> None:
    settings = ProviderSettings(streams=tuple(StreamSettings(f"s{n}") for n in range(3)))
    wanted = {"ids": ["s0", "s1", "s2"]}
    async with serving(settings, streams=wanted, max_streams=2) as (_, source):
        with pytest.raises(DiscoveryError, match="3 streams are offered that fit, more than 2"):
            await source.discover()
    async with serving(settings, streams=wanted, max_streams=3) as (_, source):
        assert len(await source.discover()) == 3


@pytest.mark.asyncio
async def test_no_active_stream() -> None:
    async with serving() as (provider, source):
        provider.pause("network", ProviderState.TERMINATED)
        with pytest.raises(NoStreamError, match="network: its state is TERMINATED") as raised:
            await source.discover()
        assert raised.value.data["reasons"] == {"network": "its state is TERMINATED"}


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_only_truncated_and_restconf_refused(status: int) -> None:
    faults = Faults(restconf_status=status)
    async with serving(one_stream(storage=TRUNCATED), faults) as (_, source):
        info = await only(source)
        with pytest.raises(BaselineError, match=f"state is answered with {status}") as raised:
            await anext(source.baseline(info, 0))
        assert "cannot give state alone" in raised.value.hint


@pytest.mark.asyncio
async def test_a_resume_token_that_is_refused() -> None:
    async with serving(faults=Faults(refuse_tokens=410)) as (_, source):
        info = await only(source)
        with pytest.raises(TokenRefusedError, match="refuses to resume from our token: 410"):
            async with source.feed(info, "some:token="):
                pass
        async with source.feed(info, Start.OLDEST) as feed:
            assert await receive(feed, 1)


@pytest.mark.asyncio
async def test_a_stream_that_is_gone() -> None:
    async with serving(faults=Faults(handshake_status=404)) as (_, source):
        info = await only(source)
        with pytest.raises(StreamGoneError, match="no such stream any more"):
            async with source.feed(info, Start.OLDEST):
                pass


@pytest.mark.asyncio
async def test_a_frame_that_is_no_json_is_kept_and_the_stream_goes_on() -> None:
    async with serving(faults=Faults(malformed_every=5)) as (provider, source):
        info = await only(source)
        count = len(provider.entities("network"))
        got: list[RecordChunk] = []
        async with source.feed(info, Start.OLDEST) as feed, asyncio.timeout(DEADLINE_S):
            while sum(len(d.records) + len(d.unreadable) for d in got) < count:
                got.append(await feed.receive())
        bad = [unreadable for chunk in got for unreadable in chunk.unreadable]
        assert len(bad) == count // 5
        assert bad[0].reason.startswith("not JSON")
        assert bad[0].raw.startswith(b'{"log-record-header"')


@pytest.mark.asyncio
async def test_a_frame_of_10_mb() -> None:
    faults = Faults(oversized_every=10, oversized_bytes=10 * 1024 * 1024)
    async with serving(faults=faults) as (_, source):
        info = await only(source)
        async with source.feed(info, Start.OLDEST) as feed:
            error = await ending(feed)
        assert isinstance(error, FrameTooBigError)
        assert error.data["limit_bytes"] == 4 * 1024 * 1024
        assert "max_frame_bytes" in str(error)


@pytest.mark.asyncio
async def test_a_login_that_expires_is_renewed_once() -> None:
    settings = ProviderSettings(
        streams=(StreamSettings("network"),),
        auth=AuthSettings(username="u", password="p"),
    )
    login = {
        "kind": "login",
        "path": "/tron/api/v1/tokens",
        "body": {"username": "u", "password": "p"},
        "token_field": "token",
    }
    async with serving(settings, auth=login) as (provider, source):
        info = await only(source)
        provider.revoke_tokens()
        async with source.feed(info, Start.OLDEST) as feed:
            assert await receive(feed, 1)
        provider.revoke_tokens()
        assert await source.state(info) is StreamState.ACTIVE
