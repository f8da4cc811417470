"""Traces: what a program with an SDK of OpenTelemetry sees of a record and of a message, and that
a process without one does not import anything of it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from instep import Consumer, Handler, HandlerConnection, Message, Receiver
from instep_didcomm import DidcommListener, read_options
from instep_sql import SqlStore
from instep_tapi.plugin import source
from tests.end_to_end.site_kit import QUICK, provider, site

EXPORTER = InMemorySpanExporter()
ORDER = "https://example.org/shop/1.0/order"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What is exported; the provider of the process is set for this test alone."""
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(EXPORTER))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", traces)
    EXPORTER.clear()
    return EXPORTER


def tree(found: InMemorySpanExporter, root: str) -> tuple[ReadableSpan, dict[str, ReadableSpan]]:
    """The last span of this name with those directly below it."""
    done = found.get_finished_spans()
    top = [one for one in done if one.name == root][-1]
    assert top.context is not None
    below = [one for one in done if one.parent and one.parent.span_id == top.context.span_id]
    return top, {one.name: one for one in below}


@pytest.mark.asyncio
async def test_a_record_is_traced_from_its_frame_to_its_commit(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with site(provider(), tmp_path) as here:
        built = source.build({"endpoints": [here.provider.url]}, "test")
        async with Consumer("test", built, SqlStore(here.url), QUICK) as consumer:
            await consumer.aligned(30)
            spans.clear()
            before_ns = time.time_ns()
            here.provider.update("n1", {"operational-state": "DISABLED"})
            await here.equal()
    top, below = tree(spans, "instep.process")
    assert set(below) == {"instep.read_ahead", "instep.commit"}
    commit, wait = below["instep.commit"], below["instep.read_ahead"]
    assert top.attributes is not None
    assert commit.attributes is not None
    assert (top.attributes["instep.stream"], commit.attributes["instep.phase"]) == (
        "all",
        "aligned",
    )
    assert commit.attributes["messaging.batch.message_count"] == 1
    times = (top.start_time, wait.end_time, commit.start_time, commit.end_time, top.end_time)
    assert None not in times
    assert sorted(times, key=lambda ns: ns or 0) == list(times)
    assert before_ns - 1_000_000_000 < (top.start_time or 0) < time.time_ns()
    assert top.status.status_code is StatusCode.UNSET


@pytest.mark.asyncio
async def test_a_message_is_traced_to_its_handler(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    handled: list[str] = []

    async def handle(message: Message, _connection: HandlerConnection) -> None:
        handled.append(message.id)

    def party(did: str, **options: object) -> DidcommListener:
        table = {"listen": "127.0.0.1:0", "did": did, "protocols": [{"type": ORDER}], **options}
        return DidcommListener(read_options(table, "test"))

    takes: Handler = handle
    shop = party("did:example:shop")
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    async with Receiver("shop", shop, SqlStore(url), handler=takes) as receiver:
        await receiver.aligned(20)
        peers = [{"did": "did:example:shop", "endpoint": shop.address}]
        customer = party("did:example:customer", peers=peers)
        async with Receiver("customer", customer, SqlStore("sqlite://")):
            talk = (await customer.sender()).conversation(["did:example:shop"], thid="orders")
            await talk.send(ORDER, {"article": "bolts"})
            until_s = time.monotonic() + 20
            while not handled:
                assert time.monotonic() < until_s
                await asyncio.sleep(0.01)
    top, below = tree(spans, "instep.receive")
    assert top.attributes is not None
    assert (top.attributes["instep.listener"], set(below)) == ("didcomm", {"instep.queue"})
    names = {one.name for one in spans.get_finished_spans()}
    assert "instep.handle" in names


def test_a_process_without_a_provider_imports_nothing(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from instep import Consumer, StreamInfo
from instep.testing import SILENT, ScriptedSource
from instep_sql import SqlStore

async def main():
    stream = StreamInfo(id="letters", origin="x", kind="list", classes=("L",))
    async with Consumer("c", ScriptedSource([SILENT], stream=stream), SqlStore("sqlite://")):
        await asyncio.sleep(0.3)
    print([name for name in sys.modules if name.startswith("opentelemetry")])

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "[]\n", done.stderr
