"""The life of a connectivity-service (TR-548 5.7): ordered by RESTCONF, followed by the streams."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from instep import Consumer
from instep.errors import AuthenticationError, ConfigurationError
from instep.model.entities import StoredEntity
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi import (
    ConnectivityServices,
    ServiceFailedError,
    ServiceRefusedError,
    ServiceStaleError,
    ServiceTimeoutError,
    ServiceUnknownError,
    TapiSource,
    read_options,
)
from instep_tapi_provider import AuthSettings, Provider, ProviderSettings, StreamSettings
from tests.end_to_end.site_kit import QUICK, network
from tests.instep_tapi.small_provider_kit import SmallProvider, serving, stated

pytestmark = pytest.mark.asyncio
SERVICE = {"tapi-connectivity:layer-protocol-name": "PHOTONIC_MEDIA", "uuid": "s/1 ü"}
TIMEOUT_S = 60.0


class Services(ConnectivityServices):
    """Tells that it has looked into the store."""

    looked: asyncio.Event

    async def _stored(self, uuid: str) -> StoredEntity | None:
        found = await super()._stored(uuid)
        self.looked.set()
        return found


class Site:
    """A provider, the store that a consumer keeps in step with it, and the orders of a client."""

    def __init__(
        self, provider: Provider, services: Services, store: SqlStore, consumer: Consumer
    ) -> None:
        self.consumer = consumer
        self.provider = provider
        self.services = services
        self.store = store

    def truth(self) -> dict[str, Any]:
        """The services as the provider states them."""
        stated = self.provider.entities("network").values()
        found = [json.loads(body) for cls, body in stated if cls == "CONNECTIVITY_SERVICE"]
        return {one["uuid"]: one for one in found}

    def key(self) -> str:
        """The entity-key of the only service."""
        nodes = self.provider.context.nodes.values()
        (key,) = [node.key for node in nodes if node.cls == "CONNECTIVITY_SERVICE"]
        return key


@asynccontextmanager
async def site(
    folder: Path, settings: ProviderSettings | None = None, **options: Any
) -> AsyncIterator[Site]:
    async with Provider(network(2, 1), settings) as provider:
        table = {"endpoints": [provider.url], **options}
        source = TapiSource(read_options(table, "test"))
        store = SqlStore(f"sqlite:///{folder}/store.db")
        async with Consumer("test", source, store, QUICK) as consumer:
            await consumer.aligned(TIMEOUT_S)
            services = Services(source, store.reader, consumer="test", poll_s=0.02)
            services.looked = asyncio.Event()
            yield Site(provider, services, store, consumer)


@pytest.mark.parametrize("provisioning_s", [0.0, 0.5])
async def test_st_5_2_st_5_3_a_service_is_ordered_followed_and_deleted(
    tmp_path: Path, provisioning_s: float
) -> None:
    async with site(tmp_path, ProviderSettings(provisioning_s=provisioning_s)) as here:
        service = await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        assert service == here.truth()["s/1 ü"]
        assert service["layer-protocol-name"] == "PHOTONIC_MEDIA"
        assert (service["lifecycle-state"], service["operational-state"]) == (
            "INSTALLED",
            "ENABLED",
        )
        await here.services.delete("s/1 ü", timeout_s=TIMEOUT_S)
        assert here.truth() == {}
        await here.services.delete("s/1 ü", timeout_s=TIMEOUT_S)


async def test_what_is_wanted_may_be_less_and_a_uuid_is_given(tmp_path: Path) -> None:
    async with site(tmp_path, ProviderSettings(provisioning_s=3600)) as here:
        wanted = {"lifecycle-state": "PLANNED"}
        service = await here.services.create({}, wanted=wanted, timeout_s=TIMEOUT_S)
        assert service == here.truth()[service["uuid"]]


async def test_a_service_that_is_not_in_time_says_how_far_it_came(tmp_path: Path) -> None:
    async with site(tmp_path, ProviderSettings(provisioning_s=3600)) as here:
        wanted = {"lifecycle-state": "PLANNED"}
        await here.services.create(SERVICE, wanted=wanted, timeout_s=TIMEOUT_S)
        with pytest.raises(ServiceTimeoutError, match="PLANNED") as late:
            await here.services.create({}, timeout_s=1)
        assert late.value.where in here.truth(), "the request stands"
        assert late.value.data["service"] in (None, here.truth()[late.value.where])
        with pytest.raises(ServiceTimeoutError):
            await here.services.delete("s/1 ü", timeout_s=0.2)


async def test_a22_a_service_whose_last_record_cannot_be_read_is_not_installed(
    tmp_path: Path,
) -> None:
    """What is stored of it is INSTALLED, and unproven."""
    served = SmallProvider("CONNECTIVITY_SERVICE", storage="COMPACTED")
    installed = {"lifecycle-state": "INSTALLED", "operational-state": "ENABLED"}
    one = stated(0, "s", "CONNECTIVITY_SERVICE", {"uuid": "s", **installed}, parent=[])
    served.say(one)
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    async with serving(served) as source, Consumer("test", source, store, QUICK) as consumer:
        await consumer.aligned(TIMEOUT_S)
        services = ConnectivityServices(source, store.reader, poll_s=0.02)
        assert await services.wait("s", timeout_s=TIMEOUT_S)
        bad: dict[str, Any] = {"log-append-time-stamp": "unknown"}
        served.say(stated(1, "s", "CONNECTIVITY_SERVICE", {"uuid": "s"}, parent=[], **bad))
        async with asyncio.timeout(TIMEOUT_S):
            while not [one async for one in store.reader.entities(unproven=True)]:
                await asyncio.sleep(0.02)
        with pytest.raises(ServiceTimeoutError, match="unproven"):
            await services.wait("s", timeout_s=0.5)


async def test_a_service_that_the_provider_gives_up_has_failed(tmp_path: Path) -> None:
    async with site(tmp_path, ProviderSettings(provisioning_s=3600)) as here:
        # One look into the store at least is between the order and its end.
        wanted = {"lifecycle-state": "PLANNED"}
        await here.services.create(SERVICE, wanted=wanted, timeout_s=TIMEOUT_S)
        waiting = asyncio.create_task(here.services.wait("s/1 ü", timeout_s=TIMEOUT_S))
        here.services.looked.clear()
        await asyncio.wait_for(here.services.looked.wait(), TIMEOUT_S)
        here.provider.delete(here.key())
        with pytest.raises(ServiceFailedError) as failed:
            await waiting
        assert failed.value.where == "s/1 ü"
        assert failed.value.data["service"]["lifecycle-state"] == "PLANNED"


async def test_a_service_that_is_on_its_way_out_has_failed(tmp_path: Path) -> None:
    async with site(tmp_path, ProviderSettings(provisioning_s=3600)) as here:
        ordering = asyncio.create_task(here.services.create(SERVICE, timeout_s=TIMEOUT_S))
        async with asyncio.timeout(TIMEOUT_S):
            while "s/1 ü" not in here.truth():
                await asyncio.sleep(0.02)
        here.provider.update(here.key(), {"lifecycle-state": "PENDING_REMOVAL"})
        with pytest.raises(ServiceFailedError, match="PENDING_REMOVAL"):
            await ordering


async def test_a_refusal_is_told_with_its_reason(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        here.provider.set_faults(refuse_services=422)
        with pytest.raises(ServiceRefusedError, match="422: no path between") as refused:
            await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        assert refused.value.data["status"] == 422
        assert not refused.value.retriable
        here.provider.set_faults(refuse_services=None)
        await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        with pytest.raises(ServiceRefusedError, match="409"):
            await here.services.create(SERVICE, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_an_order_that_was_taken_is_followed(tmp_path: Path, status: int) -> None:
    async with site(tmp_path) as here:
        here.provider.set_faults(answer_services=status)
        service = await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        assert service == here.truth()["s/1 ü"]
        await here.services.delete("s/1 ü", timeout_s=TIMEOUT_S)
        assert here.truth() == {}


@pytest.mark.parametrize("status", [302, 408, 425, 429, 500, 503, 504])
async def test_an_answer_that_decides_nothing_is_no_refusal(tmp_path: Path, status: int) -> None:
    async with site(tmp_path) as here:
        here.provider.set_faults(answer_services=status)
        with pytest.raises(ServiceUnknownError, match=f"{status}.*it is not known whether") as told:
            await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        assert told.value.data["status"] == status
        assert not told.value.retriable
        await here.services.wait("s/1 ü", timeout_s=TIMEOUT_S)
        with pytest.raises(ServiceUnknownError):
            await here.services.delete("s/1 ü", timeout_s=TIMEOUT_S)


async def test_what_was_stored_before_the_order_does_not_count(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        here.provider.set_faults(forget_services=True)
        with pytest.raises(ServiceTimeoutError, match="as last stated"):
            await here.services.create(SERVICE, timeout_s=3.0)
        # Not stored before, and answered as taken: its absence says nothing yet.
        with pytest.raises(ServiceTimeoutError, match="nor its end"):
            await here.services.delete("another", timeout_s=3.0)


async def test_without_a_consumer_the_store_is_not_taken_for_the_network(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        url, key = here.provider.url, here.key()
        await here.consumer.__aexit__(None, None, None)
        here.provider.delete(key)
        source = TapiSource(read_options({"endpoints": [url]}, "test"))
        reader = sink.reader(f"sqlite:///{tmp_path}/store.db")
        services = ConnectivityServices(source, reader, poll_s=0.02)
        try:
            with pytest.raises(ServiceTimeoutError, match=r"as last stated.*but not connected"):
                await services.wait("s/1 ü", timeout_s=1.0)
            for call in (
                services.create({"uuid": "s2"}, timeout_s=1.0),
                services.delete("s/1 ü", timeout_s=1.0),
            ):
                with pytest.raises(ServiceStaleError, match="not followed now"):
                    await call
            assert here.truth() == {}
        finally:
            await reader.close()
            await source.close()


async def test_the_login_is_renewed_once_and_a_wrong_one_is_an_error(tmp_path: Path) -> None:
    auth = AuthSettings(client_id="me", client_secret="s3cret")
    login = {
        "kind": "oauth2",
        "token_url": "/oauth2/token",
        "client_id": "me",
        "client_secret": "s3cret",
    }
    async with site(tmp_path, ProviderSettings(auth=auth), auth=login) as here:
        here.provider.set_faults(unauthorized_once=True)
        await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        other = TapiSource(read_options({"endpoints": [here.provider.url]}, "test"))
        try:
            services = ConnectivityServices(other, here.store.reader)
            with pytest.raises(AuthenticationError):
                await services.create({}, timeout_s=TIMEOUT_S)
        finally:
            await other.close()
        assert list(here.truth()) == ["s/1 ü"]


async def test_cancelling_ends_the_waiting_and_the_request_stands(tmp_path: Path) -> None:
    async with site(tmp_path, ProviderSettings(provisioning_s=3600)) as here:
        ordering = asyncio.create_task(here.services.create(SERVICE, timeout_s=TIMEOUT_S))
        async with asyncio.timeout(TIMEOUT_S):
            while "s/1 ü" not in here.truth():
                await asyncio.sleep(0.02)
        ordering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ordering
        assert "s/1 ü" in here.truth()


async def test_without_a_stream_of_services_nothing_is_ordered(tmp_path: Path) -> None:
    nodes = (StreamSettings("network", classes=frozenset({"NODE"})),)
    async with site(tmp_path, ProviderSettings(streams=nodes)) as here:
        with pytest.raises(ConfigurationError, match="no stream in the store carries"):
            await here.services.create(SERVICE, timeout_s=TIMEOUT_S)
        assert "connectivity-context" not in str(here.provider.context.root)


@pytest.mark.parametrize("uuid", ["", " ", "\n", "a\x00b", None, 5, b"s1", UUID(int=1), ["s1"]])
async def test_what_is_no_uuid_is_refused_before_anything_is_sent(
    uuid: Any, tmp_path: Path
) -> None:
    services = unreachable(tmp_path)
    for call in (
        services.delete(uuid, timeout_s=TIMEOUT_S),
        services.wait(uuid, timeout_s=TIMEOUT_S),
        services.create({**SERVICE, "uuid": uuid}, timeout_s=TIMEOUT_S),
        services.create({"tapi-connectivity:uuid": uuid}, timeout_s=TIMEOUT_S),
    ):
        with pytest.raises(ConfigurationError, match="is not the uuid of a service"):
            await call


@pytest.mark.parametrize("seconds", [0, 0.0, -1, math.nan, math.inf, -math.inf, True, "5", None])
async def test_what_is_no_time_is_refused_before_anything_is_sent(
    seconds: Any, tmp_path: Path
) -> None:
    services = unreachable(tmp_path)
    for call in (
        services.delete("s1", timeout_s=seconds),
        services.wait("s1", timeout_s=seconds),
        services.create(SERVICE, timeout_s=seconds),
    ):
        with pytest.raises(ConfigurationError, match=r"timeout_s: .* is no time"):
            await call
    with pytest.raises(ConfigurationError, match=r"poll_s: .* is no time"):
        unreachable(tmp_path, poll_s=seconds)


def unreachable(folder: Path, **options: Any) -> ConnectivityServices:
    """Services of which neither the provider nor the store is there: any use would fail."""
    source = TapiSource(read_options({"endpoints": ["http://127.0.0.1:1"]}, "test"))
    return ConnectivityServices(source, SqlStore(f"sqlite:///{folder}/none.db").reader, **options)
