"""The certificate of a client guards the door, and its name is who sends."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from instep_http.client_certificates import certificate_name
from instep_http.fast_path import FastPostConnection, PostRequest, RequestHeadParser
from instep_http.server import BoundedServer, Request, Response
from instep_http.tls import server_context
from tests.instep_http.certificates_kit import Certificates
from tests.instep_http.server_kit import UPGRADE, answer, request, serving


def subject(name: str) -> Any:
    return ((("organizationName", "Shop"),), (("commonName", name),))


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (
            {
                "subject": subject("Alice"),
                "subjectAltName": (
                    ("email", "a@x"),
                    ("DNS", "alice.example.org"),
                    ("URI", "spiffe://x/alice"),
                    ("URI", "urn:second"),
                ),
            },
            "spiffe://x/alice",
        ),
        (
            {"subject": subject("Alice"), "subjectAltName": (("DNS", "a.x"), ("DNS", "b.x"))},
            "a.x",
        ),
        (
            {"subject": subject("Alice Smith"), "subjectAltName": (("IP Address", "::1"),)},
            "Alice Smith",
        ),
        ({"subject": (), "subjectAltName": (("email", "alice@example.org"),)}, "alice@example.org"),
        ({"subject": ((("organizationName", "Shop"),),)}, ""),
        ({"subject": subject("a\nb")}, ""),
        ({"subject": subject("a" * 255)}, "a" * 255),
        # Cut, two such names would be one sender.
        ({"subject": subject("a" * 256)}, ""),
        ({"subjectAltName": (("URI", "a" * 256), ("DNS", "a"))}, ""),
        ({"subject": (), "subjectAltName": (("DirName", (("x", "y"),)), ("DNS", ""))}, ""),
        ({}, ""),
    ],
)
def test_the_name_in_a_certificate(certificate: dict[str, Any], name: str) -> None:
    assert certificate_name(certificate) == name


async def refused(server: BoundedServer, context: ssl.SSLContext) -> str:
    """Why TLS ended, as the client was told."""
    url = URL(server.address)
    try:
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
        try:
            writer.write(request())
            await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()
    except ssl.SSLError as error:
        return str(error.reason)
    return "no alert"


async def who(request: Request) -> Response:
    return Response(200, request.identity.encode())


@pytest.mark.asyncio
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_each_client_is_told_why_it_is_not_let_in(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    made = Certificates(tmp_path)
    tls = server_context(made.tls["cert"], None, "x", client_ca=made.tls["client_ca"])
    none, foreign = made.client(), made.client("alice.example.org", foreign=True)
    named = made.client("alice.example.org", common_name="Alice")
    for context in (none, foreign, named):
        context.maximum_version = version
    async with serving(who, listen="https://localhost:0/in", tls=tls) as server:
        told = await refused(server, none)
        if version is ssl.TLSVersion.TLSv1_3:
            assert told == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        else:
            assert told == "SSLV3_ALERT_HANDSHAKE_FAILURE"
        assert await refused(server, foreign) == "TLSV1_ALERT_UNKNOWN_CA"
        assert server.refused == {"tls-handshake": 2}
        assert await made.post(server.address, b"x", named) == (200, b"alice.example.org")
        # A new certificate with the same name is the same sender.
        renewed = made.client("alice.example.org", common_name="Alice 2027")
        assert await made.post(server.address, b"x", renewed) == (200, b"alice.example.org")
        only_common = made.client(common_name="Bob")
        if sys.version_info < (3, 13):
            assert await made.post(server.address, b"x", only_common) == (200, b"Bob")
            assert server.refused == {"tls-handshake": 2}
        else:
            # Its list of alternative names is empty, which Python refuses from there on (RFC 5280).
            assert await refused(server, only_common) == "SSLV3_ALERT_CERTIFICATE_UNKNOWN"
            assert server.refused == {"tls-handshake": 3}


@pytest.mark.asyncio
async def test_the_fast_path_and_what_it_hands_over_know_the_name(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    tls = server_context(made.tls["cert"], None, "x", client_ca=made.tls["client_ca"])
    posts: list[PostRequest] = []

    def on_post(post: PostRequest, respond: Any) -> None:
        posts.append(post)
        respond(Response(202))

    server = BoundedServer(
        URL("https://localhost:0/in"),
        who,
        tls=tls,
        first_protocol=lambda one, slot: FastPostConnection(one, slot, parser, on_post),
    )
    parser = RequestHeadParser(server.serves, 1_000, server.origins)
    await server.start()
    try:
        url, context = URL(server.address), made.client("alice.example.org")
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
        writer.write(request())
        assert (await answer(reader))[0] == 202
        writer.close()
        assert [post.identity for post in posts] == ["alice.example.org"]
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
        writer.write(b"POST /in HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"1\r\nx\r\n0\r\n\r\n")
        status, _, body = await answer(reader)
        assert (status, body) == (200, b"alice.example.org")
        writer.close()
    finally:
        await server.stop()


@pytest.mark.asyncio
async def test_a_websocket_knows_the_name(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    tls = server_context(made.tls["cert"], None, "x", client_ca=made.tls["client_ca"])
    seen: list[str] = []

    async def read(request: Request, _socket: Any) -> None:
        seen.append(request.identity)

    async with serving(who, listen="https://localhost:0/in", tls=tls, websocket=read) as server:
        url = URL(server.address)
        context = made.client("alice.example.org")
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
        writer.write(UPGRADE)
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert seen == ["alice.example.org"]


@pytest.mark.asyncio
async def test_what_is_no_tls_is_counted_too(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    tls = server_context(made.tls["cert"], None, "x", client_ca=made.tls["client_ca"])
    async with serving(who, listen="https://localhost:0/in", tls=tls) as server:
        url = URL(server.address)
        reader, writer = await asyncio.open_connection(url.host, url.port, family=socket.AF_INET)
        writer.write(request())
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert server.refused == {"tls-handshake": 1}


@pytest.mark.asyncio
async def test_without_client_ca_nobody_has_a_name(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    tls = server_context(made.tls["cert"], None, "x")
    async with serving(who, listen="https://localhost:0/in", tls=tls) as server:
        assert await made.post(server.address, b"x", made.client()) == (200, b"")
        assert await made.post(server.address, b"x", made.client("a.example")) == (200, b"")
