"""`instep discover` against a real provider in another thread of control."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from instep_tapi_provider import AuthSettings, Context, Provider, ProviderSettings, StreamSettings
from tests.instep_tapi.hostile_kit import CONTAINER, Peer, hostile, streams
from tests.json_names_kit import check_names

STREAMS = (StreamSettings("network"), StreamSettings("alarms", frozenset({"CONDITION_DETECTOR"})))


@asynccontextmanager
async def provider(token: str = "") -> AsyncIterator[str]:
    auth = AuthSettings(tokens=frozenset({token} if token else ()))
    context = Context({"uuid": "c", "service-interface-point": [{"uuid": "s"}]})
    async with Provider(context, ProviderSettings(streams=STREAMS, auth=auth)) as served:
        yield served.url


async def instep(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "instep.cli",
        "discover",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    if "jsonl" in arguments:
        check_names(["discover"], out)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.asyncio
async def test_json_lines_show_each_stream_and_why() -> None:
    async with provider() as url:
        code, out, _ = await instep(url, "--format", "jsonl", "--class", "CONDITION_DETECTOR")
    network, alarms = map(json.loads, out.splitlines())
    assert code == 0
    assert (alarms["stream"], alarms["chosen"], alarms["mode"]) == ("alarms", True, "log")
    assert alarms["tombstone_retention_s"] == 4 * 3600
    assert alarms["record_retention_s"] == "FOREVER"
    assert network["chosen"] is False
    assert network["reason"] == "it carries none of the classes that are asked for"


@pytest.mark.asyncio
async def test_the_table_and_nothing_to_follow() -> None:
    async with provider() as url:
        code, out, _ = await instep(url, "--class", "DEVICE")
    assert code == 1
    assert "network" in out
    assert "no: it" in out


@pytest.mark.asyncio
async def test_a_stream_at_another_host_is_marked() -> None:
    async def site(peer: Peer) -> None:
        if peer.target == CONTAINER:
            await peer.answer(json.dumps(streams("ws://elsewhere.example/s")).encode())
        else:
            await peer.answer(b"", status="404 Not Found")

    async with hostile(site) as url:
        _, table, _ = await instep(url)
        _, line, _ = await instep(url, "--format", "jsonl")
    assert "elsewhere.example" in table
    assert "stream_hosts" in table
    assert json.loads(line)["foreign_host"] == "elsewhere.example"


@pytest.mark.asyncio
async def test_3_7_2_addresses_and_profiles_of_tapi_2_6() -> None:
    async def site(peer: Peer) -> None:
        host = peer.headers["Host"]
        context = streams([f"grpc://{host}", f"ws://{host}/s"])
        (kind,) = context["supported-stream-type"]
        kind["record-trigger"] = "tapi-streaming:RECORD_TRIGGER_ON_CHANGE"
        pm = {
            "uuid": "pm",
            "stream-type-content": ["tapi-gnmi-streaming:GNMI_STREAMING_OBJECT_TYPE_MEASUREMENT"],
            "log-storage-strategy": "tapi-streaming:LOG_STORAGE_STRATEGY_TRUNCATED",
            "connection-protocol-details": {
                "allowed-connection-protocols": ["tapi-streaming:CONNECTION_PROTOCOL_GNMI"],
                "encoding-format": "tapi-streaming:ENCODING_FORMAT_PROTOBUF",
            },
        }
        stream = {
            "uuid": "g",
            "supported-stream-type": {"supported-stream-type-uuid": "pm"},
            "connection-address": [f"grpc://{host}"],
        }
        context["supported-stream-type"].append(pm)
        context["available-stream"].append(stream)
        if peer.target == CONTAINER:
            await peer.answer(json.dumps(context).encode())
        else:
            await peer.answer(b"", status="404 Not Found")

    async with hostile(site) as url:
        _, table, _ = await instep(url)
        code, lines, _ = await instep(url, "--format", "jsonl")
    host = url.removeprefix("http://")
    network, measurements = map(json.loads, lines.splitlines())
    assert code == 0
    assert network["address"] == f"ws://{host}/s"
    assert [one["chosen"] for one in network["addresses"]] == [False, True]
    assert "is no address of a stream over WebSocket" in network["addresses"][0]["reason"]
    assert (network["tapi"], network["tapi_evidence"]) == ("2.6", "record-trigger is stated")
    assert measurements["chosen"] is False
    gnmi = "its protocol 'tapi-streaming:CONNECTION_PROTOCOL_GNMI' is neither WebSocket nor SSE"
    assert measurements["reason"] == measurements["addresses"][0]["reason"] == gnmi
    assert (measurements["tapi"], measurements["encoding"]) == ("2.6", "PROTOBUF")
    words = " ".join(table.split())
    assert "tapi 2.6: record-trigger is stated" in words
    assert f"grpc://{host} (not used:" in words


@pytest.mark.asyncio
@pytest.mark.parametrize("reset", [False, True])
async def test_a_server_that_hangs_up_may_speak_tls(reset: bool) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reset:
            made = writer.get_extra_info("socket")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, _, err = await instep(f"http://{address}")
    assert code == 1
    # What to write is an address, without the path that was asked for.
    assert f"if it speaks TLS, write https://{address}\n" in err


@pytest.mark.asyncio
async def test_logins(tmp_path: Path) -> None:
    config = tmp_path / "auth.toml"
    config.write_text('[auth]\nkind = "bearer"\ntoken = "right-secret"\n')
    token = tmp_path / "token"
    token.write_text("right-secret")
    async with provider("right-secret") as url:
        for option in (
            ("--token", "right-secret"),
            ("--token-file", str(token)),
            ("--auth-config", str(config)),
        ):
            assert (await instep(url, *option))[0] == 0
        code, _, err = await instep(url, "--token", "wrong-secret")
    assert code == 1
    assert "the provider answers 401" in err
    assert "wrong-secret" not in err


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ftp://h",), "is not a URL of http:// or https://"),
        (("http://h", "--ca", "/no/such.pem"), "no such file: /no/such.pem"),
        (("http://h", "--auth-config", "/no/such.toml"), "/no/such.toml"),
    ],
)
async def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], message: str) -> None:
    code, _, err = await instep(*arguments)
    assert code == 2
    assert message in err
