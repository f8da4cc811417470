"""The requests to a provider, and what it answers."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Final, TypeVar
from uuid import uuid4

from yarl import URL

from instep.errors import DiscoveryError, SourceError, UnreachableError
from instep_http import ClientSettings, GuardedClient, parse_url, shown
from instep_sdpi.mdib_process import stated_pages
from instep_sdpi.options import Options
from instep_sdpi.wire import requests
from instep_sdpi.wire.eventing import GrantedSubscription, read_granted, read_subscribed
from instep_sdpi.wire.mdib import MdibPage, MdibRequest
from instep_sdpi.wire.metadata import Device, read_metadata
from instep_soap import (
    WSA_2005,
    EndpointReference,
    Envelope,
    SoapFaultError,
    XmlError,
    XmlLimits,
    post_envelope,
    read_answer,
    send_envelope,
)

__all__ = ["Provider"]

T = TypeVar("T")

_MDIB_REQUESTS: Final = {
    MdibRequest.GET_MDIB: requests.get_mdib,
    MdibRequest.GET_CONTEXT_STATES: requests.get_context_states,
}


class Provider:
    """One device. Each method sends one request, and raises a `SourceError` where the response is
    none, a fault, or not what was asked for.
    """

    def __init__(self, options: Options, tls: ssl.SSLContext) -> None:
        self._url = URL(options.provider)
        self._hosts = {self._url.host, *options.allow_hosts}
        self._limits = XmlLimits(max_elements=options.max_mdib_elements)
        self._client = GuardedClient(
            ClientSettings(
                total_timeout_s=options.request_timeout_s,
                max_body_bytes=options.max_mdib_bytes,
                tls_hint="tls.ca is who signed the certificate of the provider",
                body_hint="raise max_mdib_bytes",
            ),
            tls,
        )

    def __repr__(self) -> str:
        return f"<Provider {shown(self._url)}>"

    def allows(self, address: str) -> bool:
        """Whether requests may go to this address."""
        try:
            self._check_host(address)
        except SourceError:
            return False
        return True

    async def metadata(self) -> Device:
        """The device and the services that it hosts."""
        to = EndpointReference(WSA_2005, str(self._url))
        try:
            return await self._ask(to, requests.get_metadata(to, _message_id()), read_metadata)
        except UnreachableError:
            raise
        except SourceError as error:
            raise DiscoveryError(
                f"no metadata of a device: {error.message}",
                where=error.where,
                hint="provider is the address of a BICEPS device (an XAddr)",
                retriable=error.retriable,
            ) from error

    async def pages(
        self, to: EndpointReference, asked: MdibRequest
    ) -> AsyncGenerator[MdibPage, None]:
        """The whole MDIB, or all context states, in pages."""
        action, envelope = _MDIB_REQUESTS[asked](to, _message_id())
        url = self._check_host(to.address)
        with _as_source_errors(action, url):
            answer = await send_envelope(
                self._client, url, envelope, requests.SOAP_REQUESTS, action
            )
            if not 200 <= answer.status < 300:
                await read_answer(answer, self._limits)
            async with aclosing(stated_pages(answer.body, asked, self._limits)) as pages:
                async for page in pages:
                    yield page

    async def subscribe(
        self, to: EndpointReference, notify_to: str, actions: list[str], expires_s: float
    ) -> GrantedSubscription:
        """Subscribe to reports with these actions; they and the end come to `notify_to`."""
        us = EndpointReference(WSA_2005, notify_to)
        request = requests.subscribe(
            to,
            _message_id(),
            notify_to=us,
            end_to=us,
            actions=actions,
            expires_s=expires_s,
        )
        granted = await self._ask(to, request, lambda one: read_subscribed(one, time.time()))
        self._check_host(granted.manager.address)
        return granted

    async def renew(self, manager: EndpointReference, expires_s: float) -> float:
        """Seconds that the subscription lasts from now on."""
        request = requests.renew(manager, _message_id(), expires_s)
        return await self._ask(
            manager, request, lambda one: read_granted(one, "RenewResponse", time.time())
        )

    async def status(self, manager: EndpointReference) -> float:
        """Seconds that the subscription lasts still."""
        request = requests.get_status(manager, _message_id())
        return await self._ask(
            manager, request, lambda one: read_granted(one, "GetStatusResponse", time.time())
        )

    async def unsubscribe(self, manager: EndpointReference) -> None:
        """End the subscription."""
        await self._ask(manager, requests.unsubscribe(manager, _message_id()), lambda _: None)

    async def close(self) -> None:
        """Close the connections; the provider can be asked again afterwards."""
        await self._client.close()

    async def _ask(
        self, to: EndpointReference, request: requests.Request, read: Callable[[Envelope], T]
    ) -> T:
        url = self._check_host(to.address)
        action, envelope = request
        with _as_source_errors(action, url):
            answer = await post_envelope(
                self._client, url, envelope, requests.SOAP_REQUESTS, action, limits=self._limits
            )
            if answer is None:
                answer = Envelope(requests.SOAP_REQUESTS, [], [])
            return read(answer)

    def _check_host(self, address: str) -> URL:
        """Where a request may go: to the host of the provider, or to one that is allowed."""
        url = parse_url(address)
        if url.host not in self._hosts:
            raise SourceError(
                f"the provider names an address at another host, {shown(url)}",
                where=shown(self._url),
                hint=f'allow_hosts = ["{url.host}"], if it belongs to the provider',
            )
        return url


@contextmanager
def _as_source_errors(action: str, url: URL) -> Iterator[None]:
    """Raise what is wrong with the response to a request as `SourceError`."""
    try:
        yield
    except SoapFaultError as fault:
        name = action.rpartition("/")[2]
        raise SourceError(
            f"the provider refuses {name}: {fault.message or fault.fault_code}",
            where=shown(url),
            retriable=True,
            fault=fault.subcode or str(fault.fault_code),
        ) from None
    except XmlError as error:
        raise SourceError(error.message, where=shown(url), retriable=True) from None


def _message_id() -> str:
    return f"urn:uuid:{uuid4()}"
