"""Which addresses a client connects to, however they are written or found."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from instep.config.secret import Secret
from instep.errors import SourceError, UnreachableError
from instep_http.address_policy import ANY_ADDRESS, PUBLIC_ONLY
from instep_http.client import ClientSettings, GuardedClient
from instep_http.errors import AddressRefusedError
from instep_http.redirects import KeepMethod
from tests.instep_http.client_kit import answering

LOCAL = [
    "127.0.0.1",
    "127.255.0.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "224.0.0.1",
    "233.252.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "ff0e::1",
    "fec0::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", LOCAL)
def test_what_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefusedError):
        PUBLIC_ONLY.check(ip_address(address))
    ANY_ADDRESS.check(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_what_is_public_is_not(address: str) -> None:
    PUBLIC_ONLY.check(ip_address(address))


def public_client(**settings: Any) -> GuardedClient:
    return GuardedClient(
        ClientSettings(**settings),
        ssl.create_default_context(),
        addresses=PUBLIC_ONLY,
        redirects=KeepMethod(other_origin=True),
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_no_request_gets_to_this_machine(host: str) -> None:
    async with answering(lambda _, __: web.Response()) as there, public_client() as client:
        with pytest.raises(UnreachableError, match="not a public one") as raised:
            await client.send("POST", f"http://{host}:{URL(there.url).port}/in?q=1", data=b"x")
        assert not raised.value.retriable
    assert there.came == []


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "0", "2130706433"])
async def test_addresses_in_other_notations_do_not_get_there_either(host: str) -> None:
    async with answering(lambda _, __: web.Response()) as there, public_client() as client:
        with pytest.raises(SourceError):
            await client.send("POST", f"http://{host}:{URL(there.url).port}/in", data=b"x")
    assert there.came == []


@pytest.mark.asyncio
async def test_a_name_that_resolves_anew_each_time_is_checked_at_each_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: public for who asks first, this machine for who connects."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def rebind(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host != "rebinds.example":
            return resolve(host, port, *args, **kwargs)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    async with answering(lambda _, __: web.Response()) as there, public_client() as client:
        with pytest.raises(UnreachableError, match="not a public one"):
            await client.send("GET", URL(there.url).with_host("rebinds.example"))
        assert asked
        tls = ssl.create_default_context()
        async with GuardedClient(ClientSettings(), tls) as trusting:
            found = await trusting.send("GET", URL(there.url).with_host("rebinds.example"))
            assert found.status == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["127.0.0.1", "0x7f.1", "[::1]"])
async def test_through_a_proxy_addresses_in_urls_are_checked_and_the_proxy_is_not(
    host: str,
) -> None:
    async with (
        answering(lambda _, __: web.Response()) as proxy,
        public_client(proxy=Secret(proxy.url)) as client,
    ):
        with pytest.raises(UnreachableError, match="not a public one"):
            await client.send("GET", f"http://{host}/")
        assert proxy.came == []
        assert (await client.send("GET", "http://any.invalid/")).status == 200
