"""The source `tapi`: one provider of TR-548 streams, behind the port of the core."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple, TypeVar

import msgspec
from yarl import URL

from instep.errors import (
    AuthenticationError,
    DiscoveryError,
    NoStreamError,
    SourceError,
    StreamGoneError,
    TokenRefusedError,
    UnreachableError,
)
from instep.plugins import verifier_plugin
from instep.ports import Feed, Mode, Start, StreamInfo
from instep.records import Record, StreamState
from instep_tapi.baseline import read_baseline, readable_classes
from instep_tapi.discovery import ContextAddress, StreamContext, parse_context
from instep_tapi.documents import decode_document
from instep_tapi.endpoint import Endpoint
from instep_tapi.failover import Instances
from instep_tapi.feed import WebSocketFeed, open_feed
from instep_tapi.options import Options
from instep_tapi.reader import reader_of
from instep_tapi.selection import Choice, log_mode, select, websocket_address
from instep_tapi.transport import tls_context

__all__ = ["KIND", "TapiSource"]

KIND = "tapi"
_MAX_TOLD_CHARS = 1_000
_T = TypeVar("_T")
_log = logging.getLogger("instep.tapi")


class _Details(msgspec.Struct, frozen=True):
    """What `StreamInfo.details` keeps: where the stream and its context are."""

    uuid: str
    address: str
    endpoint: str
    context: str
    streams: str
    state: str = ""
    verified: bool = False
    """Records were checked for authenticity, so that no unchecked one is let in by a replay."""


class Survey(NamedTuple):
    """What discovery found at the endpoint that answered."""

    address: ContextAddress
    context: StreamContext
    choices: list[Choice]


class TapiSource:
    """Implements `Source` (TR-548 ST-0.1 to ST-0.4, ST-4.2). `where` names its options in errors.

    One instance of the provider is used at a time, by all streams. When another is chosen, the
    feeds of the one that is left end with `StreamGoneError`, so that every stream is discovered
    anew. Each instance has its own login, cookies and connections.
    """

    def __init__(
        self, options: Options, where: str = "source", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._verifier = None
        if (checks := options.authenticity) is not None:
            plugin = verifier_plugin(checks.kind, f"{where}.authenticity.kind")
            self._verifier = plugin.build(checks.options, f"{where}.authenticity")
        self._clock = clock
        tls = tls_context(options.tls, f"{where}.tls")
        urls = [URL(endpoint) for endpoint in options.endpoints]
        self._endpoints = {str(url): Endpoint(url, options, tls) for url in urls}
        self._instances = Instances(tuple(self._endpoints), options.fail_over)
        self._feeds: dict[WebSocketFeed, str] = {}
        """Those that are open, and where."""
        self._prober: asyncio.Task[None] | None = None
        if not options.tls.verifies:
            _log.warning("%s: certificates are not verified (tls.verify is off)", where)
        if options.tls.insecure_websocket:
            _log.warning("%s: streams may be read without TLS (tls.insecure_websocket)", where)

    def __repr__(self) -> str:
        return f"<TapiSource {', '.join(self._options.endpoints)}>"

    async def survey(self) -> Survey:
        """Discover at the instance that is due, and judge every stream (ST-0.2).

        Raises `SourceError`.
        """
        return await self._at_an_instance(self._surveyed)

    async def discover(self) -> Sequence[StreamInfo]:
        """See `Source.discover`. Raises `NoStreamError` where nothing fits, with all reasons."""
        return await self._at_an_instance(self._discovered)

    async def _surveyed(self, endpoint: Endpoint) -> Survey:
        address, context = await endpoint.find()
        return Survey(address, context, select(context, self._options.streams))

    async def _discovered(self, endpoint: Endpoint) -> list[StreamInfo]:
        survey = await self._surveyed(endpoint)
        infos = [self._info(choice, survey.address) for choice in survey.choices if choice.chosen]
        if not infos:
            reasons = {choice.id: choice.reason for choice in survey.choices}
            told = "; ".join(f"{id_}: {reason}" for id_, reason in reasons.items())
            told = told[:_MAX_TOLD_CHARS]
            raise NoStreamError(
                f"no stream to follow ({told})" if told else "the provider offers no stream",
                where=survey.address.streams,
                hint="see `instep discover`; widen streams, or wait until one is ACTIVE",
                reasons=reasons,
            )
        return infos

    # -- which instance (ST-4.2) -----------------------------------------------------------------

    async def _at_an_instance(self, look: Callable[[Endpoint], Awaitable[_T]]) -> _T:
        """Look at one instance after another, as fail-over has it, until one shows something."""
        errors: dict[str, SourceError] = {}
        while (url := self._instances.next(errors, self._clock())) is not None:
            try:
                found = await look(self._endpoints[url])
            except SourceError as error:
                errors[url] = error
                self._failed(url, error)
                if len(self._endpoints) > 1:
                    _log.warning("nothing to be read at %s: %s", url, error)
                continue
            self._settle(url)
            return found
        first, *others = errors.values()
        if not others:
            raise first
        raise UnreachableError(
            "none of the endpoints can be reached: " + "; ".join(map(str, errors.values())),
            where=", ".join(errors),
            retriable=any(error.retriable for error in errors.values()),
        ) from first

    def _settle(self, url: str) -> None:
        left = self._instances.settled(url, self._clock())
        if left is not None:
            _log.warning("the provider at %s is left for %s", left, url)
            self._leave(f"the provider is left for {url}", stay=url)
        if self._instances.preferred and self._prober is None:
            self._prober = asyncio.create_task(self._probe(), name="instep fail-back")

    def _leave(self, why: str, *, stay: str = "") -> None:
        for feed, url in self._feeds.items():
            if url != stay:
                feed.leave(StreamGoneError(why, where=url))

    async def _probe(self) -> None:
        """Ask preferred instances whether they are healthy, until one is gone back to."""
        try:
            while self._instances.preferred:
                await asyncio.sleep(self._options.fail_over.probe_every_s)
                for url in self._instances.to_probe(self._clock()):
                    healthy = await self._is_healthy(self._endpoints[url])
                    if self._instances.probed(url, self._clock(), healthy=healthy):
                        self._leave(f"{url} is preferred, and healthy again", stay=url)
                        return
        finally:
            self._prober = None

    async def _is_healthy(self, endpoint: Endpoint) -> bool:
        try:
            await self._discovered(endpoint)
        except SourceError as error:
            self._failed(str(endpoint.url), error)
            return False
        return True

    def _failed(self, url: str, error: SourceError) -> None:
        """Take note, and let what another instance may do better be tried again."""
        now_s = self._clock()
        self._instances.failed(url, now_s)
        if isinstance(error, AuthenticationError) and self._instances.refused(url, now_s):
            error.retriable = True

    def _check_current(self, url: str) -> None:
        current = self._instances.returning or self._instances.current
        if current is not None and current != url:
            raise StreamGoneError(f"the provider is left for {current}", where=url)

    def _info(self, choice: Choice, address: ContextAddress) -> StreamInfo:
        stream, type_ = choice.stream, choice.stream.type
        assert type_ is not None
        mode = log_mode(type_, trust_compacted=self._options.trust_compacted)
        try:
            connect_to = websocket_address(
                stream.address,
                URL(address.endpoint),
                insecure=self._options.tls.insecure_websocket,
            )
        except ValueError as error:
            raise DiscoveryError(str(error), where=address.streams) from None
        details = _Details(
            uuid=stream.uuid,
            address=str(connect_to),
            endpoint=address.endpoint,
            context=address.context,
            streams=address.streams,
            state=stream.state,
            verified=self._verifier is not None,
        )
        return StreamInfo(
            id=choice.id,
            origin=f"{address.endpoint} {stream.uuid}",
            kind=KIND,
            uuid=stream.uuid,
            endpoint=address.endpoint,
            mode=mode,
            classes=type_.classes,
            storage_strategy=type_.storage_strategy,
            record_strategy=type_.record_strategy,
            compaction_delay_s=type_.compaction_delay_s,
            tombstone_retention_s=type_.tombstone_retention_s,
            record_retention_s=type_.record_retention_s,
            readable=readable_classes(type_.classes) if mode is Mode.BASELINE else frozenset(),
            clock_offset_us=self._endpoints[address.endpoint].rest.clock_offset_us,
            details=msgspec.to_builtins(details),
        )

    # -- one stream ------------------------------------------------------------------------------

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:
        """See `Source.feed`."""
        details = _details(stream)
        url = details.endpoint
        async with AsyncExitStack() as stack:
            self._check_current(url)
            try:
                feed = await stack.enter_async_context(self._opened(stream, details, start))
            except TokenRefusedError:
                raise
            except SourceError as error:
                self._failed(url, error)
                raise
            # Meanwhile another stream may have found this instance unusable.
            self._check_current(url)
            opened_s = self._clock()
            self._feeds[feed] = url
            self._instances.opened(url)
            try:
                yield feed
            finally:
                del self._feeds[feed]
                self._instances.closed(url, opened_s, self._clock())

    def _opened(
        self, stream: StreamInfo, details: _Details, start: str | Start
    ) -> AbstractAsyncContextManager[WebSocketFeed]:
        reader = reader_of(stream, self._verifier)
        address = URL(details.address, encoded=True)
        home = self._endpoint(details)
        # An address at another instance is opened with the login of that one.
        door = next((one for one in self._endpoints.values() if one.serves(address)), home)
        offset_us = home.rest.clock_offset_us
        return open_feed(
            door.session(), door.tls, door.auth, self._options, address, start, reader, offset_us
        )

    def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        """See `Source.baseline`."""
        details = _details(stream)
        address = ContextAddress(details.endpoint, details.context, details.streams)
        rest = self._endpoint(details).rest
        return read_baseline(rest, address, stream.id, stream.classes, opened_at_us)

    async def state(self, stream: StreamInfo) -> StreamState:
        """See `Source.state`: the stream's own resource, else the container (3.7.2)."""
        details = _details(stream)
        container = URL(details.streams)
        rest = self._endpoint(details).rest
        answer = await rest.get(container / f"available-stream={details.uuid}")
        if not answer.found:
            answer = await rest.get(container)
        if not answer.found:
            raise DiscoveryError(
                f"the stream's state is answered with {answer.status}",
                where=answer.url,
                retriable=answer.status == 429 or answer.status >= 500,
            )
        try:
            context = parse_context(await decode_document(answer.body))
        except ValueError as error:
            raise DiscoveryError(f"the answer is no JSON: {error}", where=answer.url) from None
        for found in context.streams if context is not None else ():
            if found.uuid == details.uuid:
                return found.state
        raise StreamGoneError("the stream is not offered any more", where=str(container))

    def _endpoint(self, details: _Details) -> Endpoint:
        return self._endpoints[details.endpoint]

    async def close(self) -> None:
        """Close the connections; the source can be used again afterwards."""
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.gather(self._prober, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.close()


def _details(stream: StreamInfo) -> _Details:
    return msgspec.convert(stream.details, _Details)
