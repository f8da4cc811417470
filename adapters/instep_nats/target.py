"""Publishes CloudEvents to a stream of JetStream (NATS Protocol Binding 3.1: binary mode)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self
from urllib.parse import quote

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from instep.errors import ConfigurationError, SourceError, UnreachableError
from instep.model.cloud_events import CloudEvent
from instep_http import TlsOptions
from instep_nats.jetstream import JetStreamBroker
from instep_nats.options import read_options

__all__ = ["JetStreamTarget"]

_CLOSE_S: Final = 2.0
_NO_KEY: Final = "%"


class JetStreamTarget:
    """A target of `instep.Publisher`: each event is a message of JetStream.

    - The subject is `PREFIX.CONSUMER.STREAM.KEY`, each part percent-encoded. The stream must take
      `PREFIX.>`. With `max_msgs_per_subject = 1` it keeps the last event of each entity.
    - The attributes are headers `ce-…`; the payload is `data`. An entity that has ended has an
      empty payload, a tombstone.
    - `Nats-Msg-Id` is the same whenever an event is published, so the server drops copies within
      its window (`duplicate_window`).
    - A message is acknowledged by the server before the next one goes out: the order is kept.

    Raises `ConfigurationError` for what is no address, no name or no login.

    Args:
        servers: The servers of a cluster: `tls://nats.example.org:4222`, or `nats://` on loopback.
        stream: The stream. It must be there.
        prefix: The first part of subjects.
        user: The login: a user …
        password: … with its password …
        token: … or a token.
        tls: Which authority has signed the server's certificate, and our own certificate.
        allow_plaintext: Whether `nats://` may lead beyond loopback.
        connect_timeout_s: Longest wait for a connection, and for each acknowledgement.
        where: The place of the arguments in a configuration, for errors.
    """

    def __init__(  # noqa: PLR0913 - where a server is, and who we are
        self,
        servers: str | Sequence[str],
        stream: str,
        *,
        prefix: str = "instep",
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        tls: TlsOptions | None = None,
        allow_plaintext: bool = False,
        connect_timeout_s: float = 5.0,
        where: str = "JetStreamTarget",
    ) -> None:
        if not prefix or set(prefix) & set(" *>\t\r\n"):
            raise ConfigurationError(
                f"{prefix!r} begins no subject",
                where=f"{where}.prefix",
                hint='for example "instep"',
            )
        table = {
            "servers": servers if isinstance(servers, str) else list(servers),
            "stream": stream,
            "user": user,
            "password": password,
            "token": token,
            "tls": None if tls is None else msgspec.to_builtins(tls),
            "allow_plaintext": allow_plaintext,
            "connect_timeout_s": connect_timeout_s,
            "number": "member:number",  # nothing is read
        }
        given = {name: value for name, value in table.items() if value is not None}
        self._options = read_options(given, where)
        self._prefix = prefix
        self._broker = JetStreamBroker(self._options, where)
        self._client: Client | None = None
        self._lost = asyncio.Event()

    def __repr__(self) -> str:
        return f"<JetStreamTarget {self._broker.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """See `instep.ports.PublishTarget`."""
        client = await self._connected()
        stream = client.jetstream(timeout=self._options.connect_timeout_s)
        try:
            for event in events:
                await stream.publish(
                    self._subject(event),
                    b"" if event.data is None else bytes(event.data),
                    stream=self._options.stream,
                    headers=_headers(event),
                )
        except nats.js.errors.NoStreamResponseError:
            raise SourceError(
                f"no stream takes the subjects {self._prefix}.>",
                where=self._broker.name,
                hint=f"add {self._prefix}.> to the subjects of {self._options.stream}",
            ) from None
        except nats.js.errors.APIError as error:
            # A stream that is full, or a cluster without a leader.
            raise SourceError(
                f"the stream refuses: {error.description or error}",
                where=self._broker.name,
                retriable=True,
            ) from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self._close()
            raise UnreachableError(
                f"the server did not acknowledge: {str(error) or type(error).__name__}",
                where=self._broker.name,
            ) from None

    async def _connected(self) -> Client:
        if self._client is not None and self._lost.is_set():
            await self._close()
        if self._client is None:
            client, self._lost = self._broker.client(), asyncio.Event()
            await self._broker.connect(client, self._lost)
            self._client = client
        return self._client

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await client.close()

    def _subject(self, event: CloudEvent) -> str:
        _, _, consumer, stream, key = event.partitionkey.split("/")
        parts = [(part or _NO_KEY).replace(".", "%2E") for part in (consumer, stream, key)]
        return ".".join([self._prefix, *parts])


def _headers(event: CloudEvent) -> dict[str, str]:
    attributes = {
        "specversion": event.specversion,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.time,
        "partitionkey": event.partitionkey,
    }
    headers = {f"ce-{name}": quote(value, safe="/:+*%") for name, value in attributes.items()}
    headers["Nats-Msg-Id"] = f"{event.source}#{event.id}"
    if event.datacontenttype:
        headers["content-type"] = event.datacontenttype
    return headers
