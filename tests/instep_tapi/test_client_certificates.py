"""A server that wants a client certificate: the error says so, on every way to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from instep.errors import SourceError, TlsError
from instep.model.streams import Start, StreamInfo
from instep_tapi.options import read_options
from instep_tapi.source import TapiSource

pytestmark = pytest.mark.asyncio

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
SERVERS, CLIENTS, STRANGERS = trustme.CA(), trustme.CA(), trustme.CA()
_DRAIN_S = 0.2


def wanting(version: str) -> ssl.SSLContext:
    """TLS of a server that asks for a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    SERVERS.issue_cert("127.0.0.1").configure_cert(context)
    context.minimum_version = context.maximum_version = VERSIONS[version]
    context.verify_mode = ssl.CERT_REQUIRED
    CLIENTS.configure_trust(context)
    return context


@contextmanager
def telling(tls: ssl.SSLContext) -> Iterator[int]:
    """The port of a server that sends its alert, and closes after the client has."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.settimeout(_DRAIN_S)
                    # The socket outlives its TLS: a reset would take the alert away again.
                    try:
                        tls.wrap_socket(connection.dup(), server_side=True).close()
                    except ssl.SSLError:
                        while connection.recv(1 << 16):
                            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@asynccontextmanager
async def silent(tls: ssl.SSLContext) -> AsyncIterator[int]:
    """The port of a server that just closes, as those of asyncio do."""

    def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)  # it logs each handshake that fails
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def options(folder: Path, port: int, issuer: trustme.CA | None, **more: Any) -> dict[str, Any]:
    SERVERS.cert_pem.write_to_path(str(folder / "ca.pem"))
    tls = {"ca": str(folder / "ca.pem")}
    if issuer is not None:
        ours = issuer.issue_cert("client")
        ours.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
        tls["cert"] = str(folder / "client.pem")
    return {"endpoints": [f"https://127.0.0.1:{port}"], "tls": tls, **more}


async def refused(way: str, folder: Path, port: int, issuer: trustme.CA | None) -> SourceError:
    """The error of the first exchange with the server, on one of the ways to it."""
    more: dict[str, Any] = {}
    if way == "login":
        more["auth"] = {"kind": "login", "path": "/in", "body": {"password": "s3cret"}}
    source = TapiSource(read_options(options(folder, port, issuer, **more), "source"))
    scheme = {"websocket": "wss", "events": "https"}.get(way, "")
    url = f"https://127.0.0.1:{port}"
    at = {"uuid": "u", "address": f"{scheme}://127.0.0.1:{port}/s", "endpoint": url}
    at |= {"context": url, "streams": url, "protocol": "SSE" if way == "events" else "WEBSOCKET"}
    info = StreamInfo(id="s", origin="o", kind="tapi", details=at)

    async def reach() -> None:
        if not scheme:
            await source.discover()
        async with source.feed(info, Start.OLDEST):
            pass

    with pytest.raises(SourceError) as raised:
        await reach()
    await source.close()
    assert "s3cret" not in f"{raised.value} {raised.value.data}"
    return raised.value


WAYS = ["restconf", "login", "websocket", "events"]
ISSUERS = {"none": None, "foreign": STRANGERS}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("issuer", ISSUERS)
@pytest.mark.parametrize("way", WAYS)
async def test_an_alert_about_our_certificate_is_told(
    way: str, issuer: str, version: str, tmp_path: Path
) -> None:
    with telling(wanting(version)) as port:
        error = await refused(way, tmp_path, port, ISSUERS[issuer])
    assert "client certificate" in str(error)
    assert "tls.cert" in error.hint
    # The WebSocket library keeps no alert that comes after the handshake; OpenSSL 1.2 has none for
    # a certificate that is missing.
    if (way, version) != ("websocket", "1.3") and (issuer, version) != ("none", "1.2"):
        assert isinstance(error, TlsError)
        assert "the server wants a client certificate that it accepts" in error.message
        assert ("certificate required" if issuer == "none" else "unknown ca") in error.message


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("issuer", ISSUERS)
@pytest.mark.parametrize("way", WAYS)
async def test_where_there_is_no_alert_it_is_named_as_a_reason(
    way: str, issuer: str, version: str, tmp_path: Path
) -> None:
    async with silent(wanting(version)) as port:
        error = await refused(way, tmp_path, port, ISSUERS[issuer])
    assert "client certificate" in str(error)
    assert "tls.cert" in error.hint
