"""The source `tapi`: one provider of TR-548 streams, behind the port of the core."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from yarl import URL

from instep.config.plugins import verifier_plugin
from instep.config.secret import warn_if_readable
from instep.conformance import Event
from instep.errors import (
    AuthenticationError,
    ConfigurationError,
    DiscoveryError,
    NoStreamError,
    SourceError,
    StreamGoneError,
    TokenRefusedError,
    UnreachableError,
)
from instep.model.conversion import converter
from instep.model.entities import StoredEntity
from instep.model.freshness import ProviderMonitor
from instep.model.lookups import LookupAnswer
from instep.model.records import Record, RecordChunk
from instep.model.streams import Mode, Start, StreamInfo, StreamState
from instep.ports.source import Feed, Source
from instep_http import client_context
from instep_tapi.endpoints.address_order import AddressOrder
from instep_tapi.endpoints.endpoint import Endpoint
from instep_tapi.endpoints.failover import EndpointFailover
from instep_tapi.endpoints.selection import (
    SSE,
    WEBSOCKET,
    Choice,
    compacts,
    foreign_host,
    judge_addresses,
    kept_classes,
    log_mode,
    may_be_emulated,
    protocol_of,
    select,
)
from instep_tapi.facts.containment import (
    SERIES_CLASSES,
    carried_classes,
    carried_events,
    contained_members,
)
from instep_tapi.facts.names import ANY_CLASS, LogRecordStrategy
from instep_tapi.facts.stream_profile import TAPI_2_1_3
from instep_tapi.feeds.held_bytes import HeldBytes
from instep_tapi.options import Bearer, Options, host_of, read_options
from instep_tapi.restconf.baseline import read_baseline, readable_classes, unprovable_classes
from instep_tapi.restconf.client import RestconfClient
from instep_tapi.restconf.discovery import MAX_STREAMS_BYTES, ContextAddress
from instep_tapi.restconf.entity_lookup import look_up, shown_classes
from instep_tapi.restconf.json_bounds import decode_members
from instep_tapi.source_tap import SourceTap
from instep_tapi.sse.feed import EventFeed, open_events
from instep_tapi.websocket.feed import WebSocketFeed, open_feed
from instep_tapi.wire import stream_monitor
from instep_tapi.wire.decoder import decoder_for
from instep_tapi.wire.stream_context import (
    MEMBERS,
    AvailableStream,
    StreamContext,
    StreamType,
    parse_context,
)
from instep_tapi.wire.subtree_filter import is_below

__all__ = ["KIND", "TapiSource"]

KIND = "tapi"
_MAX_SUMMARY_CHARS = 1_000
_T = TypeVar("_T")
_MAX_RETRY_S = 30.0
"""Longest wait that a provider of server-sent events can ask for before the next connection."""
_StreamFeed = WebSocketFeed | EventFeed
_log = logging.getLogger("instep.tapi")


class _Details(msgspec.Struct, frozen=True):
    """The content of `StreamInfo.details`: the addresses of the stream and its context."""

    uuid: str
    address: str
    endpoint: str
    context: str
    streams: str
    other_addresses: list[str] = []
    """Where the stream is read as well, in the provider's order."""
    tapi: str = TAPI_2_1_3
    """The edition by which its records are read: `TAPI_2_1_3` or `TAPI_2_6`."""
    edition: str = TAPI_2_1_3
    """The edition whose resources show its classes; the same, unless names alone show it."""
    protocol: str = WEBSOCKET
    """`WEBSOCKET` or `SSE`."""
    state: str = ""
    followed: list[str] = []
    """The classes that the streams of this consumer state, kept or not: a baseline cuts them out of
    what contains them, as the streams do.
    """
    only: list[str] = []
    """The classes of which entities are kept; empty: all."""
    below: list[str] = []
    """The entities, by uuid, whose subtrees are kept; empty: all."""
    deviations: list[str] = []
    """Of what is declared of the stream."""
    shows_alarms: bool = False
    """Whether a GET shows the alarms that stand (tapi-fm of 2.4.1 and later)."""
    verified: bool = False
    """Whether records were checked for authenticity: then a replay must not accept unchecked ones.
    """

    @property
    def addresses(self) -> list[str]:
        """Where the stream is read, in the provider's order."""
        return [self.address, *self.other_addresses]


_read_details = converter(_Details)


class Survey(NamedTuple):
    """The result of discovery at the endpoint that answered."""

    address: ContextAddress
    context: StreamContext
    choices: list[Choice]


class _Discovered(NamedTuple):
    """What a discovery found, and what it was derived from."""

    address: ContextAddress
    clock_offset_us: int
    context: StreamContext
    infos: list[StreamInfo]


class TapiSource(Source):
    """Implements `Source` (TR-548 ST-0.1 to ST-0.4, ST-4.2). `where` names its options in errors.

    One instance of the provider is used at a time, by all streams. When another is chosen, the
    feeds of the one that is left end with `StreamGoneError`, so that every stream is discovered
    anew. Each instance has its own login, cookies and connections.
    """

    def __init__(
        self, options: Options, where: str = "source", clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not isinstance(options, Options):
            raise ConfigurationError(
                f"the options are a {type(options).__name__}",
                where="TapiSource",
                hint="write TapiSource(read_options(table))",
            )
        self._options = options
        self._verifier = None
        if (checks := options.authenticity) is not None:
            plugin = verifier_plugin(checks.kind, f"{where}.authenticity.kind")
            self._verifier = plugin.build(checks.options, f"{where}.authenticity")
        self._clock = clock
        named = (*options.stream_hosts, *(URL(url).host or "" for url in options.endpoints))
        self._hosts = {host for text in named if (host := host_of(text))}
        """Where a stream may be read."""
        self._foreign_hosts: set[str] = set()
        """Hosts of `stream_hosts` that a provider has named, as far as reported."""
        tls = client_context(options.tls, f"{where}.tls")
        urls = [URL(endpoint) for endpoint in options.endpoints]
        self._endpoints = {str(url): Endpoint(url, options, tls) for url in urls}
        self._failover = EndpointFailover(tuple(self._endpoints), options.fail_over)
        self._address_order = AddressOrder()
        self._discovered: _Discovered | None = None
        """The last discovery: most of those that follow find the same."""
        self._feeds: dict[_StreamFeed, str] = {}
        """Open feeds with their endpoints."""
        self._retry_at_s: dict[str, float] = {}
        """The earliest time of the next connection to a stream, where its provider states one."""
        self._streams_of_feeds: dict[_StreamFeed, str] = {}
        """Open connections, probes included, with the ids of their streams."""
        self._local_addresses: set[str] = set()
        """By which a stream monitor may name our connections, those of before included."""
        self._doubts: dict[str, str] = {}
        """What the last monitor of a stream said otherwise than we know it."""
        self._unmonitored: set[str] = set()
        """Endpoints that had no stream monitor since the last connection was opened."""
        self._held = HeldBytes(options.hold_total_bytes)
        self._prober: asyncio.Task[None] | None = None
        self._tap: SourceTap | None = None
        if isinstance(options.auth, Bearer) and options.auth.token_file:
            warn_if_readable(options.auth.token_file, f"{where}.auth.token_file")
        if not options.tls.verifies:
            _log.warning("%s: certificates are not verified (tls.verify is off)", where)
        if options.tls.insecure_websocket:
            _log.warning("%s: streams may be read without TLS (tls.insecure_websocket)", where)

    def __repr__(self) -> str:
        return f"<TapiSource {', '.join(self._options.endpoints)}>"

    def record(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        """See `Recordable`: connections, messages, and the answers to our readings."""
        self._tap = SourceTap(recorder, room)
        for endpoint in self._endpoints.values():
            endpoint.rest.tap = partial(self._tap.answered, endpoint.rest)

    def reconfigure(self, options: Mapping[str, Any], where: str) -> Collection[str]:
        """See `Source`: which streams are followed, and how to log in."""
        new = read_options(options, where)
        old, taken = self._options, ("streams", "auth")
        left = [
            name
            for name in old.__struct_fields__
            if name not in taken and getattr(old, name) != getattr(new, name)
        ]
        kept = {name: getattr(new, name) for name in taken}
        self._options = msgspec.structs.replace(old, **kept)
        self._discovered = None
        for endpoint in self._endpoints.values():
            endpoint.auth.reconfigure(new.auth)
        return left

    async def survey(self) -> Survey:
        """Discover at the instance that is due, and judge every stream (ST-0.2).

        Raises `SourceError`.
        """
        return await self._try_endpoints(self._survey_at)

    async def discover(self) -> Sequence[StreamInfo]:
        """See `Source.discover`. Raises `NoStreamError` where nothing fits, with all reasons."""
        return await self._try_endpoints(self._discover_at)

    async def _survey_at(self, endpoint: Endpoint) -> Survey:
        address, context = await endpoint.find()
        return Survey(address, context, select(context, self._options.streams))

    def rest_at(self, endpoint: str) -> RestconfClient:
        """The requests to an instance of the provider, by its `ContextAddress.endpoint`."""
        return self._endpoints[endpoint].rest

    async def refresh(self, stream: StreamInfo) -> StreamInfo:
        """See `Source.refresh`. The instance that the stream is read from is asked."""
        endpoint = self._endpoint(_details(stream))
        infos = await self._infos(await self._survey_at(endpoint), endpoint)
        found = next((info for info in infos if info.uuid == stream.uuid), None)
        if found is None:
            text = "the stream is not offered under its uuid"
            raise StreamGoneError(text, where=str(endpoint.url), suggests_restart=True)
        return msgspec.structs.replace(found, id=stream.id)

    async def _infos(self, survey: Survey, endpoint: Endpoint) -> list[StreamInfo]:
        """The streams that are followed."""
        chosen = [choice for choice in survey.choices if choice.chosen]
        types = [choice.stream.type for choice in chosen if choice.stream.type is not None]
        followed = frozenset[str]().union(*(carried_classes(type_.classes) for type_ in types))
        shows_alarms = False
        if any(self._asks_for_alarms(choice) for choice in chosen):
            shows_alarms = await endpoint.shows_alarms(survey.address)
        return [
            self._info(
                choice,
                survey.address,
                followed,
                shows_alarms=shows_alarms and self._asks_for_alarms(choice),
            )
            for choice in chosen
        ]

    def _asks_for_alarms(self, choice: Choice) -> bool:
        """Whether a baseline of the stream is to show the alarms that stand."""
        type_ = choice.stream.type
        if type_ is None or self._edition(choice.stream) == TAPI_2_1_3:
            return False
        mode = log_mode(type_, trust_compacted=self._options.trust_compacted)
        return mode is Mode.BASELINE and bool(carried_events(type_.classes))

    def _edition(self, stream: AvailableStream) -> str:
        return self._options.tapi or stream.profile.tapi

    def _profile(self, stream: AvailableStream) -> str:
        """The edition and what shows it, for readers."""
        if self._options.tapi:
            return f"TAPI {self._options.tapi}: it is configured"
        return f"TAPI {stream.profile.tapi}: {stream.profile.evidence}"

    async def _discover_at(self, endpoint: Endpoint) -> list[StreamInfo]:
        address, context = await endpoint.find()
        known, clock_us = self._discovered, endpoint.rest.clock_offset_us
        if known is not None and known.context is context and known[:2] == (address, clock_us):
            return list(known.infos)
        survey = Survey(address, context, select(context, self._options.streams))
        fitting, most = sum(choice.chosen for choice in survey.choices), self._options.max_streams
        if fitting > most:
            raise DiscoveryError(
                f"{fitting:,} streams are offered that fit, more than {most:,}",
                where=survey.address.streams,
                hint="choose some by streams, or raise max_streams",
            )
        infos = await self._infos(survey, endpoint)
        if not infos:
            reasons = {choice.id: choice.reason for choice in survey.choices}
            summary = "; ".join(f"{id_}: {reason}" for id_, reason in reasons.items())
            summary = summary[:_MAX_SUMMARY_CHARS]
            raise NoStreamError(
                f"no stream to follow ({summary})" if summary else "the provider offers no stream",
                where=survey.address.streams,
                hint="see `instep discover`; ask for more in `streams`, or wait for an ACTIVE one",
                reasons=reasons,
            )
        self._discovered = _Discovered(address, clock_us, context, infos)
        return infos

    # -- which instance (ST-4.2) -----------------------------------------------------------------

    async def _try_endpoints(self, action: Callable[[Endpoint], Awaitable[_T]]) -> _T:
        """Try one instance after another, in the order of fail-over, until one answers."""
        errors: dict[str, SourceError] = {}
        while (url := self._failover.next(errors, self._clock())) is not None:
            try:
                found = await action(self._endpoints[url])
            except SourceError as error:
                errors[url] = error
                self._failed(url, error)
                if len(self._endpoints) > 1:
                    _log.warning("nothing to be read at %s: %s", url, error)
                continue
            self._select(url)
            return found
        first, *others = errors.values()
        if not others:
            raise first
        raise UnreachableError(
            "none of the endpoints can be reached: " + "; ".join(map(str, errors.values())),
            where=", ".join(errors),
            retriable=any(error.retriable for error in errors.values()),
            retriable_after_success=any(one.retriable_after_success for one in errors.values()),
        ) from first

    def _select(self, url: str) -> None:
        left = self._failover.selected(url, self._clock())
        if left is not None:
            _log.warning("the provider at %s is left for %s", left, url)
            self._abandon_feeds(f"the provider is left for {url}", stay=url)
        if self._failover.preferred and self._prober is None:
            self._prober = asyncio.create_task(self._probe(), name="instep fail-back")

    def _abandon_feeds(self, why: str, *, stay: str = "") -> None:
        for feed, url in self._feeds.items():
            if url != stay:
                feed.abandon(StreamGoneError(why, where=url))

    async def _probe(self) -> None:
        """Probe preferred instances until one is used again."""
        try:
            while self._failover.preferred:
                await asyncio.sleep(self._options.fail_over.probe_every_s)
                for url in self._failover.to_probe(self._clock()):
                    healthy = await self._is_healthy(self._endpoints[url])
                    if self._failover.probed(url, self._clock(), healthy=healthy):
                        self._abandon_feeds(f"{url} is preferred, and healthy again", stay=url)
                        return
        finally:
            self._prober = None

    async def _is_healthy(self, endpoint: Endpoint) -> bool:
        try:
            await self._discover_at(endpoint)
        except SourceError as error:
            self._failed(str(endpoint.url), error)
            return False
        return True

    def _failed(self, url: str, error: SourceError) -> None:
        """Note a failure, and make it retriable where another instance can be tried."""
        now_s = self._clock()
        self._failover.failed(url, now_s)
        if isinstance(error, AuthenticationError) and self._failover.refused(url, now_s):
            error.retriable = True

    def _check_current(self, url: str) -> None:
        current = self._failover.failing_back_to or self._failover.current
        if current is not None and current != url:
            raise StreamGoneError(f"the provider is left for {current}", where=url)

    def _kept(self, type_: StreamType) -> StreamType:
        """The type of a stream, with the classes of which entities are kept."""
        kept = kept_classes(type_, self._options.streams)
        return msgspec.structs.replace(type_, classes=kept) if kept else type_

    def _info(
        self,
        choice: Choice,
        address: ContextAddress,
        followed: frozenset[str],
        *,
        shows_alarms: bool,
    ) -> StreamInfo:
        stream = choice.stream
        assert stream.type is not None
        type_ = self._kept(stream.type)
        only = type_.classes if self._options.streams.only_classes else ()
        below = sorted(set(self._options.streams.only_below))
        mode = log_mode(type_, trust_compacted=self._options.trust_compacted)
        left_out = carried_classes(stream.type.classes).difference(only) if only else frozenset()
        urls = self._urls(stream, address)
        edition = self._options.tapi or stream.profile.tapi
        details = _Details(
            uuid=stream.uuid,
            address=str(urls[0]),
            other_addresses=[str(url) for url in urls[1:]],
            tapi=self._options.tapi or stream.profile.tapi_of_records,
            edition=edition,
            protocol=protocol_of(stream),
            endpoint=address.endpoint,
            context=address.context,
            streams=address.streams,
            state=stream.state.name,
            followed=sorted(followed) if mode is Mode.BASELINE else [],
            deviations=list(type_.deviations),
            only=list(only),
            below=list(below),
            verified=self._verifier is not None,
            shows_alarms=shows_alarms,
        )
        return StreamInfo(
            id=choice.id,
            # What another selection keeps was not stored so far, and the other way round.
            origin=" ".join(
                (address.endpoint, stream.uuid, *sorted(only), *(f"/{uuid}" for uuid in below))
            ),
            kind=KIND,
            profile=self._profile(stream),
            uuid=stream.uuid,
            endpoint=address.endpoint,
            mode=mode,
            classes=type_.classes,
            one_class=len(type_.classes) == 1 and ANY_CLASS not in type_.classes,
            # Only CHANGE_ONLY states parts. Whole entities replace what is stored, on change
            # (TR-548 3.8.2.1) or periodically (TR-548 3.8.2.3): a repetition changes nothing.
            partial_updates=type_.record_strategy == LogRecordStrategy.CHANGE_ONLY,
            may_start_with_snapshot=mode is Mode.LOG and may_be_emulated(type_),
            variant=f"{type_.storage_strategy} {type_.record_strategy}",
            compaction_delay_s=type_.compaction_delay_s,
            tombstone_retention_s=type_.tombstone_retention_s,
            record_retention_s=type_.record_retention_s,
            absence_stated=left_out if mode is Mode.BASELINE else frozenset(),
            unprovable=unprovable_classes(type_.classes, edition, shows_alarms=shows_alarms)
            if mode is Mode.BASELINE
            else frozenset(),
            compacts=mode is Mode.BASELINE and compacts(type_),
            readable=readable_classes(type_.classes, edition, shows_alarms=shows_alarms) | left_out
            if mode is Mode.BASELINE
            else frozenset(),
            event_classes=carried_events(type_.classes),
            # What the log still holds of alarms is their history, which no GET shows.
            states_series=shows_alarms or not SERIES_CLASSES.isdisjoint(type_.classes),
            shown=shown_classes(type_.classes, edition),
            contained=contained_members(followed) if mode is Mode.BASELINE else frozenset(),
            clock_offset_us=self._endpoints[address.endpoint].rest.clock_offset_us,
            details=msgspec.to_builtins(details),
        )

    def _urls(self, stream: AvailableStream, address: ContextAddress) -> list[URL]:
        """Where a stream may be read, at least one address. Raises `SourceError`."""
        endpoint = URL(address.endpoint)
        insecure = self._options.tls.insecure_websocket
        judged = judge_addresses(stream, endpoint, hosts=self._hosts, insecure=insecure)
        urls = [one.url for one in judged if one.url is not None]
        if not urls:
            errors = [one.error for one in judged if one.error is not None]
            # An address that a setting would allow tells more than one of another protocol.
            error = next((one for one in errors if one.hint), errors[0])
            error.where = error.where or address.streams
            raise error
        for foreign in {foreign_host(url, endpoint) for url in urls} - {"", *self._foreign_hosts}:
            self._foreign_hosts.add(foreign)
            _log.warning("the provider at %s has streams read at %s", address.endpoint, foreign)
        return urls

    # -- one stream ------------------------------------------------------------------------------

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:
        """See `Source.feed`."""
        details = _details(stream)
        url = details.endpoint
        async with AsyncExitStack() as stack:
            self._check_current(url)
            await asyncio.sleep(self._retry_at_s.pop(stream.id, 0.0) - self._clock())
            address = self._address_order.next(details.addresses)
            opening = self._open_feed(stream, details, address, start)
            try:
                feed = await stack.enter_async_context(opening)
            except TokenRefusedError:
                raise
            except SourceError as error:
                # A login that is refused at one address is taken to no other.
                if not isinstance(error, AuthenticationError) and self._address_order.failed(
                    address, details.addresses
                ):
                    # The instance may well work: it has failed where all addresses have.
                    error.retriable = True
                    _log.warning("%s: another address is tried next: %s", stream.id, error)
                else:
                    self._failed(url, error)
                raise
            # Meanwhile another stream may have found this instance unusable.
            self._check_current(url)
            feed.clock_error_us = self._endpoint(details).rest.clock_error_us
            self._address_order.opened(address)
            opened_s = self._clock()
            self._feeds[feed] = url
            self._failover.opened(url)
            # It may have been upgraded meanwhile.
            self._unmonitored.discard(url)
            try:
                yield feed
            finally:
                del self._feeds[feed]
                if isinstance(feed, EventFeed) and feed.retry_s:
                    wait_s = min(feed.retry_s, _MAX_RETRY_S)
                    self._retry_at_s[stream.id] = self._clock() + wait_s
                self._failover.closed(url, opened_s, self._clock())

    @asynccontextmanager
    async def probe(self, stream: StreamInfo) -> AsyncIterator[Feed]:
        """See `Source.probe`. A provider that refuses it is not left for another one."""
        details = _details(stream)
        address = self._address_order.next(details.addresses)
        async with self._open_feed(stream, details, address, Start.OLDEST) as feed:
            yield feed

    def _open_feed(
        self, stream: StreamInfo, details: _Details, stated_address: str, start: str | Start
    ) -> AbstractAsyncContextManager[_StreamFeed]:
        decoder = decoder_for(stream, self._verifier, details.deviations)
        address = URL(stated_address, encoded=True)
        discovered_at = self._endpoint(details)
        # An address at another instance is opened with the login of that one.
        endpoint = next(
            (one for one in self._endpoints.values() if one.serves(address)), discovered_at
        )
        offset_us = discovered_at.rest.clock_offset_us
        opened = open_events if details.protocol == SSE else open_feed
        opening = opened(
            endpoint,
            self._options,
            address,
            start,
            decoder,
            offset_us,
            self._held,
        )
        noted = self._noted(stream.id, opening)
        return noted if self._tap is None else self._tap.tapped(noted, stream.uuid, start)

    @asynccontextmanager
    async def _noted(
        self, stream: str, opening: AbstractAsyncContextManager[_StreamFeed]
    ) -> AsyncIterator[_StreamFeed]:
        """The feed, counted as open, with the addresses by which a monitor names it."""
        async with opening as feed:
            self._streams_of_feeds[feed] = stream
            self._local_addresses.update(feed.local_addresses)
            try:
                yield feed
            finally:
                del self._streams_of_feeds[feed]

    async def baseline(
        self, stream: StreamInfo, opened_at_us: int
    ) -> AsyncIterator[list[Record] | RecordChunk]:
        """See `Source.baseline`."""
        details = _details(stream)
        address = ContextAddress(details.endpoint, details.context, details.streams)
        rest = self._endpoint(details).rest
        read = read_baseline(
            rest,
            address,
            stream.id,
            stream.classes,
            opened_at_us,
            details.followed,
            details.edition,
            shows_alarms=details.shows_alarms,
        )
        async with aclosing(read) as pages:
            async for page in pages:
                if details.below and not isinstance(page, RecordChunk):
                    yield [one for one in page if is_below(one, details.below)]
                else:
                    yield page

    async def look_up(self, stream: StreamInfo, entity: StoredEntity) -> LookupAnswer | None:
        """See `Source.look_up`."""
        details = _details(stream)
        rest = self._endpoint(details).rest
        context = URL(details.context)
        return await look_up(rest, context, details.edition, stream.classes, entity)

    async def monitor(self, stream: StreamInfo) -> ProviderMonitor | None:
        """See `Source.monitor`: the stream-monitor (TR-548 3.18)."""
        details = _details(stream)
        if details.endpoint in self._unmonitored:
            return None
        opened = self._open_feeds(stream.id)
        committed = max((feed.committed_number for feed in opened), default=-1)
        address = ContextAddress(details.endpoint, details.context, details.streams)
        url = address.resource("tapi-streaming:stream-admin-context")
        answer = await self._endpoint(details).rest.get(url, limit_bytes=MAX_STREAMS_BYTES)
        if not answer.found:
            self._unmonitored.add(details.endpoint)
            return None
        try:
            document = await decode_members(answer.body, stream_monitor.MEMBERS)
        except ValueError:
            return None
        entries = stream_monitor.entries_of(document, details.uuid)
        ours, certain = stream_monitor.of_client(entries, self._local_addresses)
        # Where no entry says whose it is, the only one is ours.
        shown = ours or (entries if len(entries) == 1 else [])
        if not shown:
            return None
        last = max(shown, key=lambda one: -(stream_monitor.lag_of(one) or 0))
        doubt = ""
        if certain and len(ours) > max(1, len(self._open_feeds(stream.id))):
            # A probe of ours is open for seconds, and what is told is seen twice.
            doubt = f"{len(ours)} connections of this client are open for the provider"
        elif last.read_id.isdecimal() and int(last.read_id) < committed:
            doubt = f"it takes us to have read up to {last.read_id}; {committed} is committed"
        before, self._doubts[stream.id] = self._doubts.get(stream.id, ""), doubt
        return ProviderMonitor(
            read_id=last.read_id,
            written_id=last.written_id,
            lag_records=stream_monitor.lag_of(last),
            connections=len(ours) or None,
            difference=doubt if before else "",
        )

    def _open_feeds(self, stream: str) -> list[_StreamFeed]:
        """The open connections to a stream, probes included."""
        return [feed for feed, of in self._streams_of_feeds.items() if of == stream]

    async def state(self, stream: StreamInfo) -> StreamState:
        """See `Source.state`: the stream's own resource, else the container (3.7.2)."""
        details = _details(stream)
        container = URL(details.streams)
        rest = self._endpoint(details).rest
        one = container / f"available-stream={details.uuid}"
        answer = await rest.get(one, limit_bytes=MAX_STREAMS_BYTES)
        if not answer.found:
            answer = await rest.get(container, limit_bytes=MAX_STREAMS_BYTES)
        if not answer.found:
            raise DiscoveryError(
                f"the stream's state is answered with {answer.status}",
                where=answer.url,
                retriable=answer.status == 429 or answer.status >= 500,
            )
        try:
            context = parse_context(await decode_members(answer.body, MEMBERS))
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
    return _read_details(stream.details)
