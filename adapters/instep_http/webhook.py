"""Posts committed changes to a URL of the operator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

import msgspec

from instep.errors import SourceError
from instep.model.entities import Change
from instep.model.freshness import Freshness
from instep_http.client import ClientSettings, GuardedClient
from instep_http.errors import retry_later
from instep_http.json_batches import joined_within
from instep_http.redirects import NO_REDIRECTS
from instep_http.tls import TlsOptions, client_context
from instep_http.urls import check_url, shown

__all__ = ["Webhook"]

_ANSWER_BYTES: Final = 4_096
_LONGEST_RETRY_AFTER_S: Final = 3_600.0


class _Posted(msgspec.Struct, omit_defaults=True, rename={"entity_class": "class"}):
    cursor: int
    consumer: str
    stream: str
    key: str
    entity_class: str
    change: str
    appended_at_us: int
    committed_at_us: int
    body: msgspec.Raw | None = None
    previous: msgspec.Raw | None = None
    epoch: str = ""


class _Stream(msgspec.Struct):
    consumer: str
    stream: str
    state: str
    text: str
    heard_s: float | None


class Webhook:
    """A handler for `Subscription.run` that posts each batch of changes to one URL.

    ::

        async with Webhook("https://oss.example/changes", headers={"Authorization": token}) as hook:
            subscription = Subscription(reader, cursor, epoch=epoch)
            await subscription.run(hook, saved=save, freshness=hook.post_freshness)

    A request is a POST of `{"changes": [...]}`: of each change the cursor with its epoch, consumer,
    stream, key, class, kind of change, its times in microseconds since 1970, and the bodies that
    the journal keeps. Any 2xx takes the batch. At least once: the receiver may get a batch again,
    and knows it by the cursors within their epoch.

    With `post_freshness`, a receiver to which nothing comes knows why: nothing has changed, or
    nobody follows the network.

    Nothing that is stored chooses a request: the URL is that of the caller, and no redirect is
    followed. TLS is verified unless it is turned off by name.

    What the receiver refuses with Retry-After (RFC 9110 10.2.3), in seconds or as a date, is posted
    again after that time, an hour at most; whatever the status, 429 and 503 as well as 403 or 413.

    Raises `ConfigurationError` for what is no http or https URL.

    Args:
        url: Where to post.
        headers: Headers of each request, such as `Authorization`; they are never logged.
        tls: How the receiver is verified.
        timeout_s: The longest exchange, in seconds.
        max_bytes: About the largest request; a batch that is larger is posted in several. One
            change is never divided.
        now: The time in seconds since 1970 UTC, for a Retry-After that is a date.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tls: TlsOptions | None = None,
        timeout_s: float = 30.0,
        max_bytes: int = 4 << 20,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._url = check_url(url, ("http", "https"), "Webhook")
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._max_bytes = max_bytes
        self._now = now
        settings = ClientSettings(
            total_timeout_s=timeout_s, max_body_bytes=_ANSWER_BYTES, max_connections=1
        )
        context = client_context(tls or TlsOptions(), "Webhook.tls")
        self._client = GuardedClient(settings, context, redirects=NO_REDIRECTS)

    def __repr__(self) -> str:
        return f"<Webhook {shown(self._url)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def __call__(self, batch: Sequence[Change]) -> None:
        """Post a batch. Raises `SourceError`; it is retriable where the receiver is not reachable
        or asks to try later. `data["retry_after_s"]` is then the least wait that it asks for.
        """
        # A batch without changes is posted, too.
        for joined in list(joined_within(map(_encoded, batch), self._max_bytes)) or [b""]:
            await self._post(b'{"changes":[%b]}' % joined)

    async def _post(self, body: bytes) -> None:
        answer = await self._client.send(
            "POST", self._url, headers=self._headers, data=body, cut=True
        )
        if not 200 <= answer.status < 300:
            asked_s = min(answer.retry_after_s(self._now()), _LONGEST_RETRY_AFTER_S)
            raise SourceError(
                f"the receiver of changes answered {answer.status}",
                where=shown(self._url),
                retriable=retry_later(answer.status) or (answer.status >= 400 and asked_s > 0),
                status=answer.status,
                retry_after_s=asked_s,
            )

    async def post_freshness(self, found: Sequence[Freshness]) -> None:
        """Post `{"changes": [], "streams": [...]}`: how fresh each stream is (`FreshnessState`), in
        words, too, and when whoever follows it was heard. Raises as a call does.
        """
        streams = [
            _Stream(one.consumer, one.stream, one.state, one.text, one.heard_s) for one in found
        ]
        await self._post(b'{"changes":[],"streams":%b}' % msgspec.json.encode(streams))


def _encoded(change: Change) -> bytes:
    return msgspec.json.encode(
        _Posted(
            change.cursor,
            change.consumer,
            change.stream,
            change.key,
            change.entity_class,
            change.change.value,
            change.appended_at_us,
            change.committed_at_us,
            msgspec.Raw(change.body) if change.body else None,
            msgspec.Raw(change.previous) if change.previous else None,
            change.epoch,
        )
    )
