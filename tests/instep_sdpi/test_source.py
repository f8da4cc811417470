"""A consumer, a real store, and a provider on loopback: subscribed, renewed, realigned, ended."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import sqlite3
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

import aiohttp
import pytest
import trustme
from aiohttp import web
from yarl import URL

from instep import AlignmentSettings, Consumer, ConsumerSettings
from instep.conformance import TraceJudge
from instep.errors import DiscoveryError, NoStreamError, SourceError
from instep.model import Batch, CommitResult
from instep_sdpi import SdpiSource, read_options
from instep_sdpi.conformance import sdpi_rules
from instep_sql import SqlStore
from instep_sql.plugin import sink
from tests.instep_sdpi.provider_kit import (
    ENVELOPE,
    UNKNOWN,
    FakeProvider,
    FakeSubscription,
    providing,
)
from tests.instep_sdpi.relay_kit import relaying

pytestmark = pytest.mark.asyncio

QUICK = ConsumerSettings(
    reconnect_initial_s=0.001,
    reconnect_max_s=0.01,
    poll_state_s=0.02,
    alignment=AlignmentSettings(quiet_s=0.05, unreached_quiet_s=0.15),
)


class Site:
    """A provider, its consumer, and the store."""

    def __init__(self, provider: FakeProvider, store: SqlStore, **options: Any) -> None:
        table = {
            "provider": provider.url,
            "listen": "127.0.0.1:0",
            "feed": {"reorder_window_s": 0.1},
            **options,
        }
        self.provider = provider
        self.store = store
        self.source = SdpiSource(read_options(table, "source"))
        self.judging = TraceJudge(sdpi_rules())
        self.source.record(self.judging.observe)
        self.consumer = Consumer("test", self.source, store, QUICK)
        self.kinds: list[str] = []
        self.texts: list[str] = []

    async def listen(self) -> None:
        async for event in self.consumer.events():
            self.kinds.append(event.kind)
            self.texts.append(event.text)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not done():
                await asyncio.sleep(0.005)

    async def subscribed(self, count: int = 1) -> None:
        await self.until(lambda: len(self.provider.subscriptions) >= count)

    async def stored(self) -> dict[str, str]:
        """The values of the metrics by key of their state."""
        reader = sink.reader(self.store.options.url)
        try:
            return {
                entity.key.removeprefix("state/"): json.loads(entity.body)["MetricValue"]["Value"]
                async for entity in reader.entities()
                if entity.entity_class == "NumericMetricState"
            }
        finally:
            await reader.close()

    async def agrees(self) -> None:
        """Wait until it is aligned, and the store is as the provider."""
        truth = {handle: value for handle, (value, _) in self.provider.metrics.items()}
        try:
            async with asyncio.timeout(10):
                while not self.consumer.health().aligned or await self.stored() != truth:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            health = self.consumer.health()
            raise AssertionError(f"{await self.stored()} is not {truth}: {health}") from None

    @property
    def attempt(self) -> int:
        return self.consumer.health().streams[0].attempt


@asynccontextmanager
async def site(
    provider: FakeProvider, path: Path, store: SqlStore | None = None, **options: Any
) -> AsyncIterator[Site]:
    made = Site(provider, store or SqlStore(f"sqlite:///{path}/store.db"), **options)
    listening = asyncio.create_task(made.listen())
    await asyncio.sleep(0)
    async with made.consumer:
        await made.subscribed()
        yield made
    await listening


async def test_a_store_follows_its_provider_and_the_end_is_clean(tmp_path: Path) -> None:
    async with providing() as provider:
        async with site(provider, tmp_path) as made:
            await made.agrees()
            for value in range(20):
                assert await provider.notify(provider.set("m1", str(value))) == [202]
            await made.agrees()
            assert made.attempt == 1
            (wanted,) = (one.filter for one in provider.subscriptions.values())
            assert "ContextService/EpisodicContextReport" in wanted
            assert "Waveform" not in wanted
        assert not provider.subscriptions
        assert (provider.counts["Subscribe"], provider.counts["GetMdib"]) == (1, 1)
        statuses = {
            one.clause.removeprefix("SDPi "): one.status for one in made.judging.report().results
        }
        assert statuses == {"R0800": "held", "R0801": "held", "R0802": "not seen"}


async def test_a_report_that_is_lost_realigns_once(tmp_path: Path) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        await made.agrees()
        await provider.notify(provider.set("m1", "first"))
        await provider.notify(provider.set("m1", "lost"), skip=True)
        await provider.notify(provider.set("m2", "later"))
        await made.until(lambda: provider.counts["GetMdib"] == 2)
        await made.agrees()
        assert (made.attempt, provider.counts["Subscribe"]) == (2, 2)
        assert "no-progress" not in made.kinds
        broken = made.judging.report().results[1]
        assert (broken.clause, broken.status) == ("SDPi R0801", "broken")
        assert [one.what.partition(",")[0] for one in broken.evidence] == ["number 1", "number 3"]


async def test_a_removed_metric_disappears_with_its_report_or_with_the_next_mdib(
    tmp_path: Path,
) -> None:
    async with providing() as provider:
        provider.set("m3", "1")
        async with site(provider, tmp_path) as made:
            await made.agrees()
            await provider.notify(provider.remove("m1"))
            await made.agrees()
            assert made.attempt == 1
            await provider.notify(provider.remove("m2"), skip=True)
            await provider.notify(provider.set("m3", "2"))
            await made.until(lambda: made.attempt == 2)
            await made.agrees()


async def test_reports_come_while_the_mdib_is_read(tmp_path: Path) -> None:
    async with providing() as provider:
        provider.slow_s = 0.3
        async with site(provider, tmp_path) as made:
            await made.until(lambda: provider.counts["GetMdib"] == 1)
            answers = await asyncio.gather(
                *(
                    provider.post(
                        next(iter(provider.subscriptions.values())),
                        provider.set("m1", str(number)),
                        number,
                    )
                    for number in (1, 2, 3)
                )
            )
            assert answers == [202, 202, 202]
            await made.agrees()
            assert made.attempt == 1


async def test_it_is_renewed_for_what_is_granted(tmp_path: Path) -> None:
    async with providing() as provider:
        provider.expires_s = 0.4
        async with site(provider, tmp_path) as made:
            (subscription,) = provider.subscriptions.values()
            provider.failing["Renew"] = 1
            await made.until(lambda: subscription.renewed >= 3)
            await made.agrees()
            assert made.attempt == 1


@pytest.mark.parametrize("numbered", [True, False])
async def test_a_provider_that_begins_anew_is_followed(tmp_path: Path, numbered: bool) -> None:
    async with providing(numbered=numbered) as provider:
        provider.expires_s = 0.5
        async with site(provider, tmp_path) as made:
            await provider.notify(provider.set("m1", "before"))
            await made.agrees()
            provider.begin_anew()
            await made.until(lambda: provider.counts["Subscribe"] == 2)
            await made.subscribed()
            await provider.notify(provider.set("m2", "after"))
            await made.agrees()


async def test_the_announced_end_leads_to_a_new_subscription(tmp_path: Path) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        await made.agrees()
        await provider.end()
        await made.until(lambda: provider.counts["Subscribe"] == 2)
        await made.subscribed()
        await provider.notify(provider.set("m1", "1"))
        await made.agrees()


async def test_a_subscription_that_was_dropped_silently_is_found_in_the_silence(
    tmp_path: Path,
) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        provider.subscriptions.clear()
        await made.until(lambda: provider.counts["Subscribe"] == 2)
        await made.agrees()


async def test_a_provider_that_is_silent_is_not_called_fresh(tmp_path: Path) -> None:
    async with providing() as provider, site(provider, tmp_path, status_every_s=0.05) as made:
        await made.agrees()
        provider.failing.update({"GetStatus": 10_000, "Renew": 10_000, "Subscribe": 10_000})
        await made.until(lambda: "not answered" in " ".join(made.texts))
        assert not made.consumer.health().streams[0].connected
        provider.failing.clear()
        await made.agrees()


async def test_an_mdib_that_fails_is_asked_for_again(tmp_path: Path) -> None:
    async with providing() as provider:
        provider.failing["GetMdib"] = 2
        async with site(provider, tmp_path) as made:
            await made.until(lambda: provider.counts["GetMdib"] >= 3)
            await made.agrees()


async def test_full_and_partial_subscriptions_have_their_own_numbers(tmp_path: Path) -> None:
    subscriptions = [{"name": "all"}, {"name": "metrics", "actions": ["EpisodicMetricReport"]}]
    async with (
        providing() as provider,
        site(provider, tmp_path, subscriptions=subscriptions) as made,
    ):
        await made.subscribed(2)
        for value in range(3):
            assert await provider.notify(provider.set("m1", str(value))) == [202, 202]
        partial = next(one for one in provider.subscriptions.values() if "Alert" not in one.filter)
        del provider.subscriptions[partial.name]
        await provider.notify(provider.set("m2", "1"))
        await made.subscribed(2)
        await made.until(lambda: made.consumer.health().aligned)
        reader = sink.reader(made.store.options.url)
        found = [(one.stream, one.key, one.body) async for one in reader.entities()]
        await reader.close()
        assert {key for stream, key, _ in found if stream == "metrics"} == {
            "state/m1",
            "state/m2",
        }
        assert {key for stream, key, _ in found if stream == "all"} > {"descriptor/ch0", "state/m1"}


async def test_a_subscription_sweeps_only_what_it_covers(tmp_path: Path) -> None:
    """What a full subscription has stored stays when a partial one takes its place, except what
    the partial one covers and the device has no more.
    """
    async with providing() as provider:
        async with site(provider, tmp_path) as made:
            await made.agrees()
        del provider.metrics["m2"]
        provider.version += 1
        async with site(provider, tmp_path, actions=["EpisodicMetricReport"]) as made:
            await made.agrees()
            await made.until(lambda: made.consumer.health().aligned)
        reader = sink.reader(made.store.options.url)
        found = {one.key: one.proven async for one in reader.entities()}
        await reader.close()
    described = {f"descriptor/{handle}" for handle in ("mds0", "vmd0", "ch0", "m1", "m2")}
    assert found == {**dict.fromkeys(described, False), "state/m1": True}


async def test_consumers_that_share_a_source_have_a_subscription_each(tmp_path: Path) -> None:
    async with providing() as provider:
        provider.slow_s = 0.1
        async with site(provider, tmp_path) as made:
            store = SqlStore(f"sqlite:///{tmp_path}/other.db")
            other = Site(provider, store)
            other.consumer = Consumer("other", made.source, store, QUICK)
            await made.agrees()
            async with other.consumer:
                await made.subscribed(2)
                # Reports that come while the second one reads its MDIB are for both.
                for value in range(5):
                    assert await provider.notify(provider.set("m1", str(value))) == [202, 202]
                await made.agrees()
                await other.agrees()
                assert (made.attempt, other.attempt) == (1, 1)


async def test_a_consumer_that_stops_leaves_the_source_to_those_that_share_it(
    tmp_path: Path,
) -> None:
    async with providing() as provider:
        async with site(provider, tmp_path) as made:
            store = SqlStore(f"sqlite:///{tmp_path}/other.db")
            async with Consumer("other", made.source, store, QUICK):
                await made.subscribed(2)
            (subscription,) = provider.subscriptions.values()
            assert await provider.notify(provider.set("m1", "1")) == [202]
            await made.agrees()
            assert list(provider.subscriptions.values()) == [subscription]
            assert made.attempt == 1
        assert not made.source.listening_at


async def test_a_subscription_that_is_granted_while_the_consumer_stops_is_ended(
    tmp_path: Path,
) -> None:
    class Slow(FakeProvider):
        async def _subscribe(self, root: ET.Element, path: str) -> str:
            response = await super()._subscribe(root, path)
            await asyncio.sleep(0.3)
            return response

    async with providing() as provider:
        provider.__class__ = Slow
        async with site(provider, tmp_path) as made:
            await made.subscribed()
        assert not provider.subscriptions


async def test_r0800_a_report_may_come_before_the_subscribe_response(tmp_path: Path) -> None:
    class Hasty(FakeProvider):
        async def _subscribe(self, root: ET.Element, path: str) -> str:
            response = await super()._subscribe(root, path)
            # It waits for the confirmation before it answers.
            for subscription in self.subscriptions.values():
                report = self.set("m1", "hasty")
                self.statuses = [await self.post(subscription, report, subscription.number)]
                subscription.number += 1
            return response

    async with providing() as provider:
        provider.__class__ = Hasty
        async with site(provider, tmp_path) as made:
            await made.agrees()
            assert provider.statuses == [202]  # type: ignore[attr-defined]
            assert await provider.notify(provider.set("m2", "next")) == [202]
            await made.agrees()
            assert made.attempt == 1


async def test_s3_what_is_confirmed_before_the_subscribe_response_is_over_no_aligned_store(
    tmp_path: Path,
) -> None:
    """Whoever reads the store when a report is confirmed finds it there, or finds the store not
    aligned: also at the next subscription, when it was aligned before.
    """

    class Hasty(FakeProvider):
        seen: ClassVar[list[tuple[int, str]]] = []

        async def _subscribe(self, root: ET.Element, path: str) -> str:
            response = await super()._subscribe(root, path)
            for answer in await self.notify(self.set("m1", f"hasty {len(self.seen)}")):
                with closing(sqlite3.connect(tmp_path / "store.db")) as raw:
                    (position,) = raw.execute("SELECT position FROM instep_stream").fetchone()
                self.seen.append((answer, json.loads(position)["phase"]))
            return response

    async with providing() as provider:
        provider.__class__ = Hasty
        async with site(provider, tmp_path) as made:
            await made.agrees()
            await provider.end()
            await made.subscribed()
            await made.agrees()
            assert made.attempt == 2
        assert Hasty.seen == [(202, "baselining")] * 2


async def test_a_subscription_that_is_refused_after_its_first_report_is_asked_for_again(
    tmp_path: Path,
) -> None:
    class Wavering(FakeProvider):
        async def _subscribe(self, root: ET.Element, path: str) -> str:
            response = await super()._subscribe(root, path)
            if self.counts["Subscribe"] == 1:
                assert await self.notify(self.set("m1", "taken back")) == [202]
                self.subscriptions.clear()
                return UNKNOWN
            return response

    async with providing() as provider:
        provider.__class__ = Wavering
        async with site(provider, tmp_path) as made:
            await made.until(lambda: provider.counts["Subscribe"] == 2)
            await made.agrees()
            assert await provider.notify(provider.set("m2", "next")) == [202]
            await made.agrees()
            assert made.attempt == 2


async def test_r0800_a_provider_that_drops_whoever_answers_a_fault_is_followed(
    tmp_path: Path,
) -> None:
    """It reports before it answers Subscribe, and a fault ends the subscription."""

    class Strict(FakeProvider):
        async def _subscribe(self, root: ET.Element, path: str) -> str:
            response = await super()._subscribe(root, path)
            await self.notify(self.set("m1", "hasty"))
            return response

        async def post(
            self, subscription: FakeSubscription, body: str, number: int, **headers: str
        ) -> int:
            status = await super().post(subscription, body, number, **headers)
            if status >= 400:
                self.subscriptions.pop(subscription.name, None)
            return status

    async with providing() as provider:
        provider.__class__ = Strict
        async with site(provider, tmp_path) as made:
            (to,) = provider.subscriptions.values()
            await made.until(lambda: to.number == 2)
            for value in range(20):
                assert await provider.notify(provider.set("m1", str(value))) == [202]
            await made.agrees()
        assert (provider.counts["Subscribe"], provider.counts["GetMdib"]) == (1, 1)


@pytest.mark.parametrize("durable", [True, False])
async def test_r0802_other_content_after_a_fault_of_ours_costs_no_subscription(
    tmp_path: Path, durable: bool
) -> None:
    """The store was too slow for the report; it has it meanwhile, or is about to."""

    class SlowStore(SqlStore):
        free = asyncio.Event()

        async def commit(self, batch: Batch) -> CommitResult:
            await self.free.wait()
            return await super().commit(batch)

    free = SlowStore.free
    free.set()
    async with providing() as provider:
        store = SlowStore(f"sqlite:///{tmp_path}/store.db")
        feed = {"answer_within_s": 0.1 if durable else 2.0}
        async with site(provider, tmp_path, store, feed=feed) as made:
            await made.agrees()
            (to,) = provider.subscriptions.values()
            free.clear()
            assert await provider.notify(provider.set("m1", "first")) == [503]
            if durable:
                free.set()
                await made.agrees()
            other = asyncio.create_task(provider.notify(provider.set("m1", "other")))
            await asyncio.sleep(0.05)
            free.set()
            assert await other == [202]
            assert await provider.notify(provider.set("m2", "next")) == [202]
            await made.agrees()
            assert (to.number, made.attempt) == (3, 1)
        assert (provider.counts["Subscribe"], provider.counts["GetMdib"]) == (1, 1)


async def test_responses_of_the_provider_may_be_gzip(tmp_path: Path) -> None:
    class Zipping(FakeProvider):
        async def answer(self, request: web.Request) -> web.Response:
            response = await super().answer(request)
            assert "gzip" in request.headers["Accept-Encoding"]
            response.enable_compression(web.ContentCoding.gzip)
            return response

    async with providing() as provider:
        provider.__class__ = Zipping
        async with site(provider, tmp_path) as made:
            await made.agrees()
            assert await provider.notify(provider.set("m1", "1")) == [202]
            await made.agrees()


async def test_reports_come_over_one_connection_that_is_kept(tmp_path: Path) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        await made.agrees()
        (subscription,) = provider.subscriptions.values()
        url = URL(subscription.notify_to)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for number in range(1, 4):
            header = f'<q:ReportSequence MessageNumber="{number}"/>'
            body = ENVELOPE.format(header=header, body=provider.set("m1", str(number))).encode()
            head = f"POST {url.path} HTTP/1.1\r\nHost: {url.authority}\r\n"
            kind = "Content-Type: application/soap+xml\r\n"
            writer.write(f"{head}{kind}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 202 ")
            assert b"close" not in answer
        writer.close()
        await made.agrees()


async def test_services_at_several_addresses_are_several_streams(tmp_path: Path) -> None:
    async with providing(services=3) as provider, site(provider, tmp_path) as made:
        await made.subscribed(3)
        await made.until(lambda: made.consumer.health().aligned)
        assert sorted(stream.stream for stream in made.consumer.health().streams) == [
            "mdib/ContextService",
            "mdib/DescriptionEventService",
            "mdib/StateEventService",
        ]


async def test_gzip_and_chunks_are_read(tmp_path: Path) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        await made.agrees()
        (subscription,) = provider.subscriptions.values()
        client = provider.client
        assert client is not None
        headers = {"Content-Type": "application/soap+xml"}

        def raw(number: int) -> bytes:
            header = f'<q:ReportSequence MessageNumber="{number}"/>'
            return ENVELOPE.format(header=header, body=provider.set("m1", str(number))).encode()

        zipped = {**headers, "Content-Encoding": "gzip"}
        async with client.post(
            subscription.notify_to, data=gzip.compress(raw(1)), headers=zipped
        ) as answer:
            assert answer.status == 202

        async def chunks(of: bytes) -> AsyncIterator[bytes]:
            for at in range(0, len(of), 100):
                yield of[at : at + 100]

        async with client.post(
            subscription.notify_to, data=chunks(raw(2)), headers=headers
        ) as answer:
            assert answer.status == 202
        await made.agrees()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 415),
        (b"no xml", 415),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', 400),
        (b"<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Body/>", 400),
    ],
)
async def test_what_is_no_envelope_changes_nothing(tmp_path: Path, raw: bytes, status: int) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        await made.agrees()
        (subscription,) = provider.subscriptions.values()
        assert provider.client is not None
        async with provider.client.post(subscription.notify_to, data=raw) as answer:
            assert answer.status == status
        assert await provider.notify(provider.set("m1", "1")) == [202]
        await made.agrees()
        assert made.attempt == 1


async def test_nobody_reports_without_the_address_of_a_subscription(tmp_path: Path) -> None:
    async with providing() as provider, site(provider, tmp_path) as made:
        await made.agrees()
        (subscription,) = provider.subscriptions.values()
        base = subscription.notify_to.rpartition("/")[0]
        for path in ("/", "/guessed", f"/{'0' * 32}"):
            assert await provider.send(base + path, "", provider.set("m1", "forged")) == 404
        provider.metrics["m1"] = ("0", 0)
        await made.agrees()


async def test_by_https_only_a_provider_with_its_certificate_reports(tmp_path: Path) -> None:
    authority = trustme.CA()
    ours, theirs = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("cert", "key", "ca")}
    ours.cert_chain_pems[0].write_to_path(files["cert"])
    ours.private_key_pem.write_to_path(files["key"])
    authority.cert_pem.write_to_path(files["ca"])
    Path(files["key"]).chmod(0o600)
    anybody = ssl.create_default_context()
    authority.configure_trust(anybody)
    known = ssl.create_default_context()
    authority.configure_trust(known)
    theirs.configure_cert(known)
    async with (
        providing() as provider,
        site(provider, tmp_path, listen="https://127.0.0.1:0/sdpi", tls=files) as made,
    ):
        (subscription,) = provider.subscriptions.values()
        assert subscription.notify_to.startswith("https://")
        assert provider.client is not None
        raw = ENVELOPE.format(
            header='<q:ReportSequence MessageNumber="1"/>', body=provider.set("m1", "1")
        ).encode()
        with pytest.raises(aiohttp.ClientError):
            await provider.client.post(subscription.notify_to, data=raw, ssl=anybody)
        async with provider.client.post(subscription.notify_to, data=raw, ssl=known) as answer:
            assert answer.status == 202
        await made.agrees()
        # Another device has a certificate of the same authority, and has seen the address.
        other = ssl.create_default_context()
        authority.configure_trust(other)
        authority.issue_cert("other.example.org").configure_cert(other)
        forged = ENVELOPE.format(
            header='<q:ReportSequence MessageNumber="2"/>', body=provider.set("m1", "forged")
        ).encode()
        async with provider.client.post(subscription.notify_to, data=forged, ssl=other) as answer:
            assert answer.status == 404
        provider.metrics["m1"] = ("1", 0)
        await made.agrees()


async def test_a_large_mdib_is_read_whole(tmp_path: Path) -> None:
    async with providing() as provider:
        provider.metrics.update({f"n{number}": ("0", 0) for number in range(2_000)})
        async with site(provider, tmp_path) as made:
            await made.agrees()
            assert made.attempt == 1


@pytest.mark.parametrize("seed", range(3))
async def test_behind_a_relay_that_fails_it_is_equal_in_the_end(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with relaying(seed, 0.3) as relay, providing() as provider:
        async with site(provider, tmp_path, notify_to=relay.url) as made:
            relay.target = made.source.listening_at
            for number in range(150):
                await made.subscribed()
                await provider.deliver(provider.set(rng.choice(["m1", "m2"]), str(number)))
            relay.share = 0.0
            await made.subscribed()
            await provider.deliver(provider.set("m1", "last"))
            await made.agrees()
        assert len(relay.made) == 7


async def test_a_provider_may_not_lead_to_another_host() -> None:
    async with providing() as provider:
        url = provider.url
        provider.url = "http://elsewhere.invalid/device"
        table = {"provider": url, "listen": "127.0.0.1:0"}
        source = SdpiSource(read_options(table, "source"))
        (stream,) = await source.discover()
        with pytest.raises(SourceError, match="another host"):
            async with source.feed(stream, ""):
                pass
        await source.close()


async def test_what_is_no_device_is_told_at_discovery() -> None:
    async with providing() as provider:
        source = SdpiSource(read_options({"provider": provider.url, "listen": "127.0.0.1:0"}, "s"))
        provider.failing["Get"] = 1
        with pytest.raises(DiscoveryError):
            await source.discover()
        actions = ["WaveformStream"]
        table = {"provider": provider.url, "listen": "127.0.0.1:0", "actions": actions}
        other = SdpiSource(read_options(table, "s"))
        with pytest.raises(NoStreamError, match="WaveformStream"):
            await other.discover()
        await source.close()
        await other.close()


async def test_a_provider_that_is_away_is_waited_for(tmp_path: Path) -> None:
    async with providing() as provider:
        provider.failing["Subscribe"] = 3
        async with site(provider, tmp_path) as made:
            await made.agrees()
        assert provider.counts["Subscribe"] == 4
