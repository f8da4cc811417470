"""Logins: static tokens, OAuth2, a JSON login, expiry and refusal; and TLS."""

import asyncio
import ssl
from typing import Any

import aiohttp
import pytest
import trustme

from instep_tapi_provider import AuthSettings, Faults, Provider, ProviderSettings
from tests.instep_tapi_provider.client_kit import connected, network

CONTEXT = "/restconf/data/tapi-common:context"


def guarded(**auth: Any) -> ProviderSettings:
    return ProviderSettings(auth=AuthSettings(**auth))


async def read(provider: Provider, token: str | None) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(provider.url) as session,
        session.get(CONTEXT, headers=headers) as response,
    ):
        if response.status == 401:
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
        return response.status


async def post(provider: Provider, path: str, **body: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(provider.url) as session,
        session.post(path, **body) as response,
    ):
        return response.status, await response.json(content_type=None)


@pytest.mark.asyncio
async def test_without_logins_everybody_may_read() -> None:
    async with Provider(network()) as provider:
        assert await read(provider, None) == 200


@pytest.mark.asyncio
async def test_a_static_token_is_wanted_on_restconf_and_on_the_handshake() -> None:
    async with Provider(network(), guarded(tokens=frozenset({"abc"}))) as provider:
        assert [await read(provider, t) for t in (None, "wrong", "abc")] == [401, 401, 200]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with connected(provider, "network"):
                pass
        assert refused.value.status == 401
        headers = {"Authorization": "Bearer abc"}
        async with connected(provider, "network", headers=headers) as client:
            await client.frame()


@pytest.mark.asyncio
async def test_oauth2_client_credentials_in_the_body_or_by_basic() -> None:
    async with Provider(network(), guarded(client_id="c", client_secret="s")) as provider:
        form = {"grant_type": "client_credentials", "client_id": "c", "client_secret": "s"}
        status, body = await post(provider, "/oauth2/token", data=form)
        assert (status, body["token_type"], body["expires_in"]) == (200, "Bearer", 3600)
        assert await read(provider, body["access_token"]) == 200
        basic = {"Authorization": aiohttp.encode_basic_auth("c", "s")}
        bare = {"grant_type": "client_credentials"}
        assert (await post(provider, "/oauth2/token", data=bare, headers=basic))[0] == 200
        wrong = form | {"client_secret": "x"}
        assert await post(provider, "/oauth2/token", data=wrong) == (
            401,
            {"error": "invalid_client"},
        )
        assert (await post(provider, "/oauth2/token", data={"grant_type": "x"}))[0] == 400


@pytest.mark.asyncio
async def test_oauth2_password_and_the_json_login() -> None:
    settings = guarded(
        username="u",
        password="p",
        login_path="/auth",
        login_username_field="user",
        login_password_field="pwd",
        login_token_field="access",
    )
    async with Provider(network(), settings) as provider:
        form = {"grant_type": "password", "username": "u", "password": "p"}
        status, body = await post(provider, "/oauth2/token", data=form)
        assert await read(provider, body["access_token"]) == 200
        for kind in ("json", "data"):
            status, body = await post(provider, "/auth", **{kind: {"user": "u", "pwd": "p"}})
            assert status == 201
            assert await read(provider, body["access"]) == 200
        assert (await post(provider, "/auth", json={"user": "u", "pwd": "x"}))[0] == 401
        assert (await post(provider, "/auth", json={"user": "u"}))[0] == 400
        assert (await post(provider, "/auth", json=[1]))[0] == 400


@pytest.mark.asyncio
async def test_tokens_expire_and_can_be_revoked() -> None:
    settings = guarded(client_id="c", client_secret="s", token_life_s=0.2)
    form = {"grant_type": "client_credentials", "client_id": "c", "client_secret": "s"}
    async with Provider(network(), settings) as provider:
        token = (await post(provider, "/oauth2/token", data=form))[1]["access_token"]
        assert await read(provider, token) == 200
        await asyncio.sleep(0.25)
        assert await read(provider, token) == 401
        token = (await post(provider, "/oauth2/token", data=form))[1]["access_token"]
        provider.revoke_tokens()
        assert await read(provider, token) == 401


@pytest.mark.asyncio
async def test_unauthorized_once_is_once() -> None:
    settings = guarded(tokens=frozenset({"abc"}))
    async with Provider(network(), settings, faults=Faults(unauthorized_once=True)) as provider:
        assert [await read(provider, "abc") for _ in range(2)] == [401, 200]


def test_secrets_are_in_no_repr() -> None:
    text = repr(guarded(tokens=frozenset(), client_secret="hide", password="hide"))
    assert "hide" not in text
    assert "hide" not in repr(guarded(tokens=frozenset({"hide"})))


@pytest.mark.asyncio
async def test_tls_with_a_certificate_of_the_callers_own() -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with Provider(network(), ProviderSettings(tls=tls)) as provider:
        assert provider.url.startswith("https://")
        async with connected(provider, "network", ssl=trusting) as client:
            assert len(await client.records(11)) == 11
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            async with connected(provider, "network"):
                pass
        async with (
            aiohttp.ClientSession(provider.url) as session,
            session.get(f"{CONTEXT}/tapi-streaming:stream-context", ssl=trusting) as response,
        ):
            body = await response.json(content_type=None)
        (first, _) = body["tapi-streaming:stream-context"]["available-stream"]
        assert first["connection-address"].startswith("wss://")
