"""Connections: how many are admitted, and what happens where there is no descriptor left."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from instep_http.connection_limits import ConnectionLimits
from tests.instep_http.server_kit import closed, connected, request, serving

SCARCE = """
import asyncio, logging, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = [open("/dev/null") for _ in range(30)]
from yarl import URL
from instep_http.server import BoundedServer, Response
logging.basicConfig(level=logging.DEBUG)

async def handler(request):
    return Response(200, b"answered")

async def main():
    server = BoundedServer(URL("http://127.0.0.1:0/in"), handler)
    await server.start()
    print(server.address, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(dict(server.refused), flush=True)
    await server.stop()

asyncio.run(main())
"""


@pytest.mark.asyncio
async def test_without_descriptors_one_line_is_logged_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", SCARCE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdout, process.stdin:
        url = URL((await asyncio.to_thread(process.stdout.readline)).decode().strip())
        writers = []
        for _ in range(100):
            _, writer = await asyncio.open_connection(url.host, url.port)
            writers.append(writer)
        async with asyncio.timeout(20):
            while b"no connection can be accepted" not in log.read_bytes():
                await asyncio.sleep(0.05)
        for writer in writers:
            writer.close()
        async with aiohttp.ClientSession() as session, session.post(url, data=b"x") as response:
            assert await response.read() == b"answered"
        process.stdin.close()
        refused = await asyncio.to_thread(process.stdout.read)
        assert b"no-descriptors" in refused
        assert process.wait(20) == 0
    text = log.read_text()
    assert len(re.findall("no connection can be accepted", text)) == 1
    assert "64 open files are allowed" in text
    assert "Traceback" not in text


@pytest.mark.asyncio
async def test_a_tls_handshake_that_never_ends_is_ended() -> None:
    authority = trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    async with serving(listen="https://localhost:0/in", tls=tls, head_timeout_s=0.2) as server:
        async with connected(server) as (reader, writer):
            assert await closed(reader) == b""
        async with connected(server) as (reader, writer):
            writer.write(request())
            assert request() not in await closed(reader)
        async with asyncio.timeout(10):
            while server.connections:
                await asyncio.sleep(0.01)
        assert server.refused["tls-handshake"] == 2
        ours = ssl.create_default_context()
        authority.configure_trust(ours)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=ours)) as session,
            session.post(server.address, data=b"x") as response,
        ):
            assert await response.read() == b"x"


@pytest.mark.asyncio
async def test_handshakes_count_and_do_not_hold_up_the_end() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("localhost").configure_cert(tls)
    async with serving(listen="https://localhost:0/in", tls=tls, max_connections=1) as server:
        async with connected(server) as (first, _):
            async with asyncio.timeout(10):
                while not server.connections:
                    await asyncio.sleep(0.01)
            async with connected(server) as (second, _):
                # The older handshake leaves its place to the newer.
                assert await closed(first) == b""
                assert server.refused["displaced"] == 1
                await server.stop()
                assert await closed(second) == b""
        assert server.connections == 0


def test_one_address_takes_a_tenth_and_loopback_as_much_as_there_is() -> None:
    limits = ConnectionLimits(100)
    assert [limits.admit("192.0.2.1") for _ in range(10)] == [""] * 10
    assert limits.admit("192.0.2.1") == "too-many-of-address"
    assert limits.admit("::ffff:192.0.2.1") == "too-many-of-address"
    assert limits.admit("192.0.2.2") == ""
    limits.release("192.0.2.1")
    assert limits.admit("::ffff:192.0.2.1") == ""
    for _ in range(89):
        assert limits.admit("127.0.0.1") == ""
    assert limits.admit("::1") == "too-many"
    assert limits.admit("192.0.2.3") == "too-many"


def test_an_ipv6_network_is_one_address() -> None:
    limits = ConnectionLimits(100, 2)
    assert limits.admit("2001:db8::1") == ""
    assert limits.admit("2001:db8::2") == ""
    assert limits.admit("2001:db8::3") == "too-many-of-address"
    assert limits.admit("2001:db8:0:1::3") == ""


@given(st.lists(st.tuples(st.sampled_from(["192.0.2.1", "2001:db8::1", "::1"]), st.booleans())))
def test_what_is_released_is_free_again(steps: list[tuple[str, bool]]) -> None:
    limits = ConnectionLimits(5, 3)
    held: list[str] = []
    for address, comes in steps:
        if comes and not limits.admit(address):
            held.append(address)
        elif not comes and address in held:
            held.remove(address)
            limits.release(address)
        assert limits.open == len(held) <= 5
        assert max(held.count("192.0.2.1"), held.count("2001:db8::1")) <= 3
    for address in held:
        limits.release(address)
    assert (limits.open, limits._by_network) == (0, {})
