"""A durable pull consumer of NATS JetStream, as a `Broker`.

Messages are pulled by requests of our own (``$JS.API.CONSUMER.MSG.NEXT``), one under way at a time:
`fetch` of the client library returns only when its batch is full or its time is over. A request
ends with its last message, or with a status; while it is open, the server sends a heartbeat.

The library reconnects silently and does not insist on TLS. Both are ours: `BrokerListener` connects
again, and a server without TLS gets no login where TLS is wanted.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo
from yarl import URL

from instep.errors import AuthenticationError, SourceError, TlsError, UnreachableError
from instep_broker import Delivery
from instep_http import client_context
from instep_nats.options import Options

__all__ = ["JetStreamBroker"]

_SECOND_NS: Final = 1_000_000_000
_PULL_EXPIRES_S: Final = 30
_HEARTBEAT_S: Final = 5
_SILENT_S: Final = 3 * _HEARTBEAT_S
"""Without message, status and heartbeat for so long, the server is gone."""
_MOST_AT_ONCE: Final = 500
_CLOSE_S: Final = 2.0
_CONNECT_AGAIN_S: Final = 0.1
_HEARTBEAT: Final = "100"
_OVER: Final = frozenset({"404", "408"})
"""A pull request that has ended, with nothing wrong: no messages, or its time is over."""
_FULL_BATCH: Final = ("Batch Completed", "Message Size Exceeds MaxBytes")
"""And these, whose status is 409."""


class JetStreamBroker:
    """Follows a stream by a durable pull consumer; `instep_broker.Broker`.

    Args:
        options: See `read_options`.
        where: The place of the options in the configuration, for errors.

    Raises `ConfigurationError`: the files of `tls` cannot be used.
    """

    def __init__(self, options: Options, where: str = "nats") -> None:
        self._options = options
        self._tls: ssl.SSLContext | None = None
        if URL(options.servers[0]).scheme == "tls":
            self._tls = client_context(options.tls, f"{where}.tls")
        self._pull: _Pull | None = None

    def __repr__(self) -> str:
        return f"<JetStreamBroker {self.name}>"

    @property
    def name(self) -> str:
        return f"{self._options.servers[0]}/{self._options.stream}"

    def client(self) -> Client:
        """A client that is not connected yet, and that insists on TLS where it is wanted."""
        return _Client(insists_on_tls=self._tls is not None)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        client = self.client()
        lost = asyncio.Event()
        try:
            await self.connect(client, lost)
            await self._consumer(client)
            self._pull = await _Pull.open(client, self._options, lost)
            yield
        finally:
            pull, self._pull = self._pull, None
            with suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    if pull is not None:
                        await pull.give_back()
                    if client.is_connected:
                        await client.flush()
            with suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await client.close()

    async def take(self, most: int, most_bytes: int) -> Sequence[Delivery]:
        assert self._pull is not None
        return await self._pull.take(most, most_bytes)

    async def acknowledge(self, delivery: Delivery) -> None:
        await self._answer(delivery, Msg.Ack.Ack)

    async def ask_again(self, delivery: Delivery, delay_s: float) -> None:
        delay = json.dumps({"delay": int(delay_s * _SECOND_NS)}).encode()
        await self._answer(delivery, Msg.Ack.Nak + b" " + delay)

    async def refuse(self, delivery: Delivery, reason: str) -> None:
        assert self._pull is not None
        answer = Msg.Ack.Term
        if self._pull.takes_reasons:
            # It is in the advisory that the server publishes.
            answer += b" " + reason.encode()
        await self._answer(delivery, answer)

    # -- within ----------------------------------------------------------------------------------

    async def _answer(self, delivery: Delivery, answer: bytes) -> None:
        assert self._pull is not None
        try:
            await self._pull.client.publish(delivery.handle, answer)
        except (nats.errors.Error, OSError) as error:
            raise UnreachableError(f"the connection is lost: {error}", where=self.name) from None

    async def connect(self, client: Client, lost: asyncio.Event) -> None:
        """Connect and log in; `lost` is set when the connection is. Raises `SourceError`."""
        options = self._options

        seen: list[Exception] = []

        async def note_lost() -> None:
            lost.set()

        async def note_error(error: Exception) -> None:
            seen.append(error)

        login: dict[str, Any] = {}
        if options.token is not None:
            login["token"] = options.token.reveal()
        elif options.user is not None and options.password is not None:
            login |= {"user": options.user, "password": options.password.reveal()}
        try:
            async with asyncio.timeout(options.connect_timeout_s * (len(options.servers) + 1)):
                await client.connect(
                    servers=list(options.servers),
                    name="instep",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # of a server; they count before we are connected
                    reconnect_time_wait=_CONNECT_AGAIN_S,  # type: ignore[arg-type]
                    connect_timeout=options.connect_timeout_s,  # type: ignore[arg-type]
                    ping_interval=_HEARTBEAT_S,
                    disconnected_cb=note_lost,
                    closed_cb=note_lost,
                    error_cb=note_error,
                    tls=self._tls,
                    **login,
                )
        except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
            raise self._connect_error(seen[-1] if seen else error) from None

    def _connect_error(self, error: Exception) -> SourceError:
        """What the library raises where no server could be connected to says nothing itself."""
        text = str(error).removeprefix("nats: ").strip("'\"") or type(error).__name__
        if isinstance(error, (ssl.SSLError, ssl.CertificateError, _NoTlsError)):
            return TlsError(text, where=self.name, hint="tls.ca, or the name in the certificate")
        if "authorization" in text.lower() or "authentication" in text.lower():
            return AuthenticationError(f"the login is refused: {text}", where=self.name)
        return UnreachableError(text, where=self.name)

    async def _consumer(self, client: Client) -> None:
        """Find the durable consumer, or make it. Raises `SourceError`."""
        options, js = self._options, client.jetstream(timeout=self._options.connect_timeout_s)
        try:
            try:
                found = await js.consumer_info(options.stream, options.consumer)
            except nats.js.errors.NotFoundError:
                await js.stream_info(options.stream)
                found = await js.add_consumer(options.stream, self._wanted())
        except nats.js.errors.NotFoundError:
            raise SourceError(
                f"there is no stream {options.stream!r}",
                where=self.name,
                hint=f"make it: nats stream add {options.stream}",
            ) from None
        except nats.js.errors.APIError as error:
            raise SourceError(
                f"the consumer cannot be used: {error.description or error}", where=self.name
            ) from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise UnreachableError(
                f"JetStream does not answer: {str(error) or type(error).__name__}", where=self.name
            ) from None
        self._check(found)

    def _wanted(self) -> ConsumerConfig:
        options = self._options
        return ConsumerConfig(
            durable_name=options.consumer,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=options.ack_wait_s,
            max_deliver=-1,
            max_ack_pending=options.limit_unanswered,
            filter_subject=options.subjects[0] if len(options.subjects) == 1 else None,
            filter_subjects=list(options.subjects) if len(options.subjects) > 1 else None,
        )

    def _check(self, found: ConsumerInfo) -> None:
        """A consumer that somebody else has made must keep what is not answered."""
        config = found.config
        wrong = ""
        if config.deliver_subject:
            wrong = "it pushes"
        elif config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.EXPLICIT.value):
            wrong = "it takes no acknowledgement of each message"
        elif config.max_deliver is not None and config.max_deliver > 0:
            wrong = f"it gives a message up after {config.max_deliver} deliveries"
        if wrong:
            raise SourceError(
                f"the consumer {self._options.consumer!r} is another's: {wrong}",
                where=self.name,
                hint="name another one in consumer, or delete it",
            )


class _NoTlsError(nats.errors.Error):
    pass


class _Client(Client):
    """The client of the library, which asks for TLS only where the server does."""

    def __init__(self, *, insists_on_tls: bool) -> None:
        super().__init__()
        self._insists_on_tls = insists_on_tls

    def _connect_command(self) -> bytes:
        # This is what sends the login.
        if self._insists_on_tls and not self._server_info.get("tls_required"):
            raise _NoTlsError("the server offers no TLS")
        return super()._connect_command()


class _Pull:
    """The pull requests of one connection, and what came on them."""

    def __init__(self, client: Client, options: Options, lost: asyncio.Event) -> None:
        self.client = client
        self._options = options
        self._lost = lost
        version = client.connected_server_version
        self.takes_reasons = (version.major, version.minor) >= (2, 10)
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._request = f"$JS.API.CONSUMER.MSG.NEXT.{options.stream}.{options.consumer}"
        self._come: deque[Msg] = deque()
        self._wanted = 0
        """Messages that the request under way still brings; 0: none is under way."""
        self._failure = ""
        self._wake = asyncio.Event()

    @classmethod
    async def open(cls, client: Client, options: Options, lost: asyncio.Event) -> _Pull:
        """Begin to receive. Raises `SourceError`."""
        pull = cls(client, options, lost)
        try:
            pull._subscription = await client.subscribe(pull._inbox, cb=pull._on_message)
        except (nats.errors.Error, OSError) as error:
            raise UnreachableError(str(error)) from None
        return pull

    async def take(self, most: int, most_bytes: int) -> list[Delivery]:
        """See `Broker.take`."""
        while not self._come:
            self._check()
            if not self._wanted:
                await self._ask(min(most, _MOST_AT_ONCE), most_bytes)
            self._wake.clear()
            # The connection may be lost without a word.
            waiting = [
                asyncio.ensure_future(self._wake.wait()),
                asyncio.ensure_future(self._lost.wait()),
            ]
            try:
                done, _ = await asyncio.wait(
                    waiting, timeout=_SILENT_S, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for one in waiting:
                    one.cancel()
            if not done:
                raise UnreachableError(f"the server was silent for {_SILENT_S} s")
        taken = [_delivery(message) for message in self._come]
        self._come.clear()
        return taken

    async def give_back(self) -> None:
        """Let the server deliver to others at once what was not taken."""
        if self._subscription is not None:
            # What the server has sent for the request under way would wait for ack_wait.
            await self._subscription.drain()  # type: ignore[no-untyped-call]
        while self._come and not self._lost.is_set():
            await self.client.publish(self._come.popleft().reply, Msg.Ack.Nak)

    def _check(self) -> None:
        if self._failure:
            raise SourceError(f"the stream is not delivered: {self._failure}", retriable=True)
        if self._lost.is_set():
            raise UnreachableError("the connection is lost")

    async def _ask(self, most: int, most_bytes: int) -> None:
        request = {
            "batch": most,
            "expires": _PULL_EXPIRES_S * _SECOND_NS,
            "idle_heartbeat": _HEARTBEAT_S * _SECOND_NS,
            # One message fits in any case: a request that none fits into would never end.
            "max_bytes": max(most_bytes, 2 * self.client.max_payload),
        }
        self._wanted = most
        try:
            await self.client.publish(self._request, json.dumps(request).encode(), self._inbox)
        except (nats.errors.Error, OSError) as error:
            raise UnreachableError(f"the connection is lost: {error}") from None

    async def _on_message(self, message: Msg) -> None:
        headers = message.headers or {}
        status = headers.get("Status", "") if not message.reply else ""
        if not status:
            self._come.append(message)
            self._wanted = max(0, self._wanted - 1)
        elif status in _OVER:
            self._wanted = 0
        elif status != _HEARTBEAT:
            described = headers.get("Description", status)
            self._wanted = 0
            if not described.startswith(_FULL_BATCH):
                self._failure = described
        self._wake.set()


def _delivery(message: Msg) -> Delivery:
    place = message.metadata
    return Delivery(
        subject=message.subject,
        headers=message.headers or {},
        body=message.data,
        position=f"{place.stream}/{place.sequence.stream}",
        handle=message.reply,
    )
