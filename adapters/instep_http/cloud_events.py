"""Posts CloudEvents to a URL (CloudEvents 1.0.2, HTTP Protocol Binding 3.3: batched)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec

from instep.errors import SourceError
from instep.model.cloud_events import CloudEvent
from instep_http.client import ClientSettings, GuardedClient
from instep_http.errors import retry_later
from instep_http.json_batches import joined_within
from instep_http.redirects import NO_REDIRECTS
from instep_http.tls import TlsOptions, client_context
from instep_http.urls import check_url, shown

__all__ = ["CloudEventsTarget"]

_ANSWER_BYTES: Final = 4_096
_encode: Final = msgspec.json.Encoder().encode


class CloudEventsTarget:
    """A target of `instep.Publisher` that posts events in batches, as
    `application/cloudevents-batch+json`.

    Any 2xx takes a batch. 429, 5xx and the like are tried again, anything else ends the publisher.
    No redirect is followed. TLS is verified unless it is turned off by name.

    Raises `ConfigurationError` for what is no http or https URL.

    Args:
        url: Where to post.
        headers: Headers of each request, such as `Authorization`; they are never logged.
        tls: How the receiver is verified.
        timeout_s: The longest exchange, in seconds.
        max_bytes: About the largest request; one event is never divided.
        where: The place of the arguments in a configuration, for errors.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: TlsOptions | None = None,
        timeout_s: float = 30.0,
        max_bytes: int = 1 << 20,
        where: str = "CloudEventsTarget",
    ) -> None:
        self._url = check_url(url, ("http", "https"), f"{where}.url")
        media_type = "application/cloudevents-batch+json; charset=utf-8"
        self._headers = {**(headers or {}), "Content-Type": media_type}
        self._max_bytes = max_bytes
        settings = ClientSettings(
            total_timeout_s=timeout_s, max_body_bytes=_ANSWER_BYTES, max_connections=1
        )
        context = client_context(tls or TlsOptions(), f"{where}.tls")
        self._client = GuardedClient(settings, context, redirects=NO_REDIRECTS)

    def __repr__(self) -> str:
        return f"<CloudEventsTarget {shown(self._url)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """See `instep.ports.PublishTarget`."""
        for joined in joined_within(map(_encode, events), self._max_bytes):
            answer = await self._client.send(
                "POST", self._url, headers=self._headers, data=b"[%b]" % joined, cut=True
            )
            if not 200 <= answer.status < 300:
                raise SourceError(
                    f"the receiver of events answered {answer.status}",
                    where=shown(self._url),
                    retriable=retry_later(answer.status),
                    status=answer.status,
                )
