"""A real BICEPS provider, on the stack sdc11073, as a process of its own; and what its MDIB is, by
means that share nothing with the reader.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import aiohttp
import pytest

__all__ = ["PeerProvider", "forwarding", "needs_sdc11073", "peer_provider"]

SCRIPT = Path(__file__).resolve().parents[3] / "shared" / "peers" / "sdc_provider.py"
needs_sdc11073 = pytest.mark.skipif(
    importlib.util.find_spec("sdc11073") is None or not SCRIPT.is_file(),
    reason="the provider on sdc11073 is not here",
)
PM = "{http://standards.ieee.org/downloads/11073/11073-10207-2017/participant}"
XSI = "{http://www.w3.org/2001/XMLSchema-instance}type"
GET_MDIB = b"""<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"
 xmlns:a="http://www.w3.org/2005/08/addressing"
 xmlns:m="http://standards.ieee.org/downloads/11073/11073-10207-2017/message"><s:Header><a:Action>\
http://standards.ieee.org/downloads/11073/11073-20701-2018/GetService/GetMdib</a:Action>\
<a:MessageID>urn:uuid:9f8b5a0e-0000-4000-8000-000000000001</a:MessageID></s:Header>\
<s:Body><m:GetMdib/></s:Body></s:Envelope>"""

Facts = dict[str, dict[str, str]]
"""What is stated of each entity: its attributes, and those of its metric value."""


class PeerProvider:
    """A running provider."""

    def __init__(self, xaddr: str, process: asyncio.subprocess.Process) -> None:
        self.xaddr = xaddr
        self._process = process

    async def facts(self) -> Facts:
        """The MDIB, handle by handle, read without instep."""
        headers = {"Content-Type": "application/soap+xml"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.xaddr}/Get", data=GET_MDIB, headers=headers) as answer,
        ):
            root = ET.fromstring(await answer.read())
        found: Facts = {}
        for element in root.iter():
            handle = element.get("Handle")
            if element.tag == f"{PM}State":
                found[f"state/{handle or element.get('DescriptorHandle')}"] = stated(element)
            elif handle is not None:
                found[f"descriptor/{handle}"] = stated(element)
        return found

    def pause(self) -> None:
        """Let it stand still, with its connections open."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it: it announces that to its subscribers."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), 20)


def stated(element: ET.Element) -> dict[str, str]:
    facts = {name: value for name, value in element.attrib.items() if name != XSI}
    value = element.find(f"{PM}MetricValue")
    if value is not None:
        facts.update({f"MetricValue/{name}": text for name, text in value.attrib.items()})
    return facts


def stored(body: bytes) -> dict[str, str]:
    """The same facts of an entity as stored."""
    read = json.loads(body)
    facts = {name: text for name, text in read.items() if isinstance(text, str)}
    value = read.get("MetricValue", {})
    facts.update({f"MetricValue/{n}": t for n, t in value.items() if isinstance(t, str)})
    return facts


class Forwarder:
    """Forwards connections to where the provider is now: its port is another after each start."""

    def __init__(self) -> None:
        self.port = 0
        self._to = ("", 0)

    def address(self, xaddr: str) -> str:
        """The address of a provider behind this one; from now on it is forwarded to."""
        at = urlsplit(xaddr)
        assert at.hostname is not None
        assert at.port is not None
        self._to = (at.hostname, at.port)
        return f"http://127.0.0.1:{self.port}{at.path}"

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(*self._to)
            await asyncio.gather(_pipe(reader, there[1]), _pipe(there[0], writer))
        except OSError:
            writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def forwarding() -> AsyncIterator[Forwarder]:
    """A forwarder on a free port."""
    forwarder = Forwarder()
    server = await asyncio.start_server(forwarder.forward, "127.0.0.1", 0)
    forwarder.port = server.sockets[0].getsockname()[1]
    try:
        yield forwarder
    finally:
        server.close()


@asynccontextmanager
async def peer_provider(*arguments: str) -> AsyncIterator[PeerProvider]:
    """Run it with these arguments of its script."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "ignore",
        str(SCRIPT),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": ""},
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 60)
    provider = PeerProvider(json.loads(line)["xaddr"], process)
    try:
        yield provider
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
