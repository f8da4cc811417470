"""The port, over HTTP: what each page says of consumers, in step or not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
import msgspec
import pytest

import instep.metrics
from instep.errors import ConfigurationError
from instep.metrics.port import OperationsPort
from instep.runtime.health import Health
from instep.runtime.lifecycle import Service
from instep_sql import SqlStore
from tests.instep.metrics.test_readiness import STREAM, health
from tests.instep.runtime.consumer_kit import consumer, store
from tests.instep.scripted_source_kit import SILENT, ScriptedSource, records

pytestmark = pytest.mark.asyncio
__all__ = ["store"]

PROMETHEUS = pytest.importorskip("prometheus_client")
PARSER = pytest.importorskip("prometheus_client.parser")


class Said(Service):
    """A consumer that says what it is told to."""

    def __init__(self, said: Health) -> None:
        super().__init__(said.consumer)
        self.said = said

    def health(self) -> Health:
        return self.said

    async def aligned(self, timeout_s: float | None = None) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self


@asynccontextmanager
async def served(services: Sequence[Service]) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        OperationsPort(lambda: services, "127.0.0.1:0", "test") as port,
        aiohttp.ClientSession(port.address) as session,
    ):
        yield session


async def page(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.status, await answer.text()


WELL = health()
AWAY = health(msgspec.structs.replace(STREAM, connected=False, last_error="no route"))
AWAY = msgspec.structs.replace(AWAY, consumer="west")


async def test_ready_names_who_is_at_fault_and_live_stays() -> None:
    async with served([Said(WELL), Said(AWAY)]) as session:
        assert await page(session, "/livez") == (200, "live\n")
        assert await page(session, "/readyz") == (
            503,
            "not ready\nprovider: west / network: aligned, but not connected: no route\n",
        )
        assert await page(session, "/readyz?consumer=east") == (200, "ready\n")
        assert await page(session, "/readyz?consumer=west&role=reader") == (200, "ready\n")
        assert (await page(session, "/readyz?consumer=north"))[0] == 404
        assert (await page(session, "/readyz?role=king"))[0] == 400
        # A probe that is mistyped is no other probe.
        assert (await page(session, "/readyz?consumers=east"))[0] == 400
        assert (await page(session, "/readyz?consumer="))[0] == 404
        assert (await page(session, "/readyz?consumer=east&consumer=north"))[0] == 404
        assert (await page(session, "/readyz?consumer=east&consumer=west"))[0] == 503
        async with session.post("/readyz") as answer:
            assert answer.status == 405


async def test_startup_stays_once_it_was_reached() -> None:
    one = Said(AWAY)
    async with served([one]) as session:
        assert await page(session, "/startupz") == (503, "not in step yet\nwest\n")
        one.said = msgspec.structs.replace(WELL, consumer="west")
        assert (await page(session, "/startupz"))[0] == 200
        one.said = AWAY
        assert (await page(session, "/startupz"))[0] == 200


async def test_the_metrics_are_the_text_that_prometheus_reads(store: SqlStore) -> None:
    source = ScriptedSource([records(0, 1, 2), SILENT])
    async with consumer(source, store) as started, served([started]) as session:
        await started.aligned(5)
        status, text = await page(session, "/metrics")
        assert status == 200
        found = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in PARSER.text_string_to_metric_families(text)
            for sample in family.samples
        }
        collected = PROMETHEUS.CollectorRegistry()
        collected.register(instep.metrics.collector(started))
        assert set(found) == {
            (sample.name, *sorted(sample.labels.values()))
            for family in collected.collect()
            for sample in family.samples
        }
        assert found["instep_stream_records_total", "alarms", "test"] == 3
        assert found["instep_stream_phase", "alarms", "aligned", "test"] == 1
        assert found["instep_consumer_ready", "test"] == 1
        assert 0 <= found["instep_stream_record_age_seconds", "alarms", "test"] < 60
        async with session.get("/status.json") as answer:
            told = await answer.json()
        assert told["ready"]
        assert told["consumers"][0]["streams"][0]["records"] == 3


async def test_a_program_registers_the_collector_in_its_own_registry(store: SqlStore) -> None:
    source = ScriptedSource([records(0), SILENT])
    async with consumer(source, store) as started:
        await started.aligned(5)
        registry = PROMETHEUS.CollectorRegistry()
        registry.register(instep.metrics.collector(started))
        line = b'instep_stream_records_total{consumer="test",stream="alarms"} 1.0'
        assert line in PROMETHEUS.generate_latest(registry)
        # A server of its own has a thread of its own.
        assert line in await asyncio.to_thread(PROMETHEUS.generate_latest, registry)


async def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="cannot listen") as failed:
            await OperationsPort(list, f":{port}", "x.toml: operations.listen").__aenter__()
    assert failed.value.where == "x.toml: operations.listen"


@pytest.mark.parametrize("text", ["", "host", "1.2.3.4:", "1.2.3.4:70000", "example.org:1", ":-1"])
async def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not an address"):
        OperationsPort(list, text, "x")
