"""The source `sdpi`: one BICEPS provider behind the port of the core."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import msgspec

from instep.conformance import Event, MeteredRecorder
from instep.errors import BaselineError, NoStreamError, SourceError
from instep.model.conversion import converter
from instep.model.records import Record
from instep.model.streams import Mode, Start, StreamInfo, StreamState
from instep.ports.source import Feed, Source
from instep.runtime.clock import steady_now
from instep_sdpi.endpoint import NotificationEndpoint
from instep_sdpi.options import Options, SubscriptionOptions, client_tls, server_tls
from instep_sdpi.provider import Provider
from instep_sdpi.session import ReportSession
from instep_sdpi.subscription import Subscription, subscribed
from instep_sdpi.wire.entities import MdibVersion
from instep_sdpi.wire.mdib import MdibPage, MdibRequest
from instep_sdpi.wire.metadata import Device, HostedService
from instep_sdpi.wire.names import CLASSES, MdibPart, ReportKind
from instep_soap import WSA_2005, EndpointReference

__all__ = ["KIND", "SdpiSource"]

KIND: Final = "sdpi"
_CONTEXTS: Final = "ContextService"
_GET: Final = "GetService"


class _Details(msgspec.Struct, frozen=True):
    """The content of `StreamInfo.details`: where the stream is subscribed to and read."""

    events: str
    get: str
    contexts: str
    actions: list[str]
    covers: list[MdibPart]


_read_details: Final = converter(_Details)


class SdpiSource(Source):
    """Follows the MDIB of one provider by its reports (SDPi, ReportSequence). Raises
    `ConfigurationError`; `where` names its options in errors.

    Promised: a report is confirmed (2xx) only when it is durable. The exception is the time while
    the MDIB is read, which the store itself says before the first confirmation
    (`Phase.BASELINING`), also where a report comes before the answer to Subscribe: what is
    confirmed then is durable before the store says that the new MDIB is read, or is stated again by
    the GetMdib of the next session. A report that is missing, or that shows
    another MDIB, leads to a new subscription and to GetMdib; meanwhile the store keeps what it has.
    What a subscription does not cover is not stored. Not promised: every value in between; and,
    without numbers, that a lost report is seen by a subscription to a part of the reports.
    """

    def __init__(
        self,
        options: Options,
        where: str = "source",
        clock: Callable[[], float] = steady_now,
    ) -> None:
        self._options = options
        self._clock = clock
        self._provider = Provider(options, client_tls(options, where))
        self._endpoint = NotificationEndpoint(options, server_tls(options, where), where)
        self._recorder: MeteredRecorder | None = None
        self._sessions: dict[str, list[ReportSession]] = {}
        """Open sessions by stream, the oldest first."""
        self._subscriptions: dict[str, Subscription] = {}
        """The last subscription of each stream."""
        self._users = 0
        """How many consumers discover, or have a feed, now."""
        self._close_wanted = False

    def __repr__(self) -> str:
        return f"<SdpiSource {self._options.provider}>"

    @property
    def listening_at(self) -> str:
        """The URL that reports are received below; empty while it does not listen."""
        return self._endpoint.address

    def record(
        self, recorder: Callable[[Event], None], room: Callable[[], int] | None = None
    ) -> None:
        """See `Recordable`: each report and its answer, from the next subscription on."""
        self._recorder = MeteredRecorder(recorder, room, lambda: int(self._clock() * 1e6))

    async def discover(self) -> Sequence[StreamInfo]:
        """See `Source.discover`: a stream for each subscription, or for each service of it where
        the device has its reports at several.
        """
        async with self._in_use():
            device = await self._provider.metadata()
        missing: dict[str, str] = {}
        infos = [
            info
            for subscription in self._options.subscribed
            for info in self._infos(device, subscription, missing)
        ]
        if not infos:
            raise NoStreamError(
                "the device hosts no service with these reports: " + ", ".join(missing),
                where=self._options.provider,
                reasons=missing,
            )
        return infos

    def _infos(
        self, device: Device, subscription: SubscriptionOptions, missing: dict[str, str]
    ) -> list[StreamInfo]:
        by_service: dict[str, tuple[HostedService, list[ReportKind]]] = {}
        for kind in subscription.kinds():
            service = device.serving(kind.service)
            if service is None:
                missing[kind.name] = f"no {kind.service}"
            else:
                address = self._address(service)
                by_service.setdefault(address, (service, []))[1].append(kind)
        several = len(by_service) > 1
        return [
            self._info(
                device,
                f"{subscription.name}/{service.service_id}" if several else subscription.name,
                address,
                kinds,
            )
            for address, (service, kinds) in by_service.items()
        ]

    def _info(
        self, device: Device, stream_id: str, address: str, kinds: list[ReportKind]
    ) -> StreamInfo:
        get, contexts = device.serving(_GET), device.serving(_CONTEXTS)
        if get is None:
            raise NoStreamError("the device hosts no GetService", where=self._options.provider)
        covers = frozenset[MdibPart]().union(*(kind.covers for kind in kinds))
        classes = frozenset[str]().union(*(CLASSES[part] for part in covers))
        details = _Details(
            events=address,
            get=self._address(get),
            contexts=self._address(contexts) if contexts is not None else "",
            actions=[kind.action for kind in kinds],
            covers=sorted(covers),
        )
        return StreamInfo(
            id=stream_id,
            origin=device.epr or self._options.provider,
            kind=KIND,
            uuid=device.epr.removeprefix("urn:uuid:"),
            endpoint=self._options.provider,
            mode=Mode.BASELINE,
            classes=tuple(sorted(classes)),
            readable=classes,
            # The answer is an MDIB of one version, whole.
            absence_stated=classes,
            variant=" ".join(kind.name for kind in kinds),
            resumable=False,
            keys_are_uuids=True,
            details=msgspec.to_builtins(details),
        )

    def _address(self, service: HostedService) -> str:
        """The first address of a service that requests may go to, else the first."""
        addresses = [one.address for one in service.endpoints]
        return next(filter(self._provider.allows, addresses), addresses[0])

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:  # noqa: ARG002 - each is a new session
        """See `Source.feed`: a subscription of its own."""
        async with self._in_use(), self._subscribed(stream) as feed:
            yield feed

    @asynccontextmanager
    async def _subscribed(self, stream: StreamInfo) -> AsyncIterator[Feed]:
        details = _details(stream)
        session = self._new_session(stream, details)
        notify_to = await self._endpoint.register(session)
        open_ = self._sessions.setdefault(stream.id, [])
        open_.append(session)
        events = EndpointReference(WSA_2005, details.events)
        try:
            async with subscribed(
                self._provider,
                session,
                events,
                notify_to,
                details.actions,
                self._options,
            ) as subscription:
                self._subscriptions[stream.id] = subscription
                try:
                    yield session.feed
                finally:
                    # Whoever waits for an answer gets it before the subscription ends.
                    session.feed.close()
        finally:
            open_.remove(session)
            session.feed.close()
            self._endpoint.unregister(session)

    def _new_session(self, stream: StreamInfo, details: _Details) -> ReportSession:
        covers = frozenset(details.covers)
        return ReportSession(
            stream.id,
            covers,
            self._options.feed,
            self._clock,
            recorder=self._recorder,
        )

    async def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:  # noqa: ARG002 - the session knows
        """See `Source.baseline`: GetMdib, and GetContextStates where the MDIB shows none."""
        details = _details(stream)
        sessions = list(self._sessions.get(stream.id, ()))
        if not sessions:
            raise BaselineError("it is not subscribed", where=stream.id, retriable=True)
        yield []  # From here on the store says that it is behind, see `confirm_while_baselining`.
        version: MdibVersion | None = None
        async with aclosing(self._pages(details)) as pages:
            async for page in pages:
                version = version or page.version
                if page.version.counted_in != version.counted_in:
                    raise BaselineError(
                        "the MDIB began anew while it was read", where=details.get, retriable=True
                    )
                rows = [session.baseline(page) for session in sessions]
                yield rows[0]
        # What was read last may be newer; reports since the first are applied to both.
        assert version is not None
        for session in sessions:
            session.baseline_read(version)

    async def _pages(self, details: _Details) -> AsyncGenerator[MdibPage, None]:
        """The MDIB; and the context states, where it shows none: it need not have any (IEEE
        11073-20701 R5039).
        """
        get = EndpointReference(WSA_2005, details.get)
        contexts = EndpointReference(WSA_2005, details.contexts)
        wanted = MdibPart.CONTEXT in details.covers and bool(details.contexts)
        try:
            async with aclosing(self._provider.pages(get, MdibRequest.GET_MDIB)) as pages:
                async for page in pages:
                    wanted = wanted and all(
                        one.part is not MdibPart.CONTEXT for one in page.entities
                    )
                    yield page
            if wanted:
                asked = MdibRequest.GET_CONTEXT_STATES
                async with aclosing(self._provider.pages(contexts, asked)) as pages:
                    async for page in pages:
                        yield page
        except SourceError as error:
            raise BaselineError(
                f"the MDIB cannot be read: {error.message}",
                where=error.where,
                hint=error.hint,
                retriable=error.retriable,
            ) from error

    async def state(self, stream: StreamInfo) -> StreamState:
        """See `Source.state`: GetStatus. A provider may drop a subscription and say nothing."""
        subscription = self._subscriptions.get(stream.id)
        if subscription is None or not subscription.granted:
            return StreamState.UNKNOWN
        await subscription.status()
        return StreamState.ACTIVE

    async def close(self) -> None:
        """Stop listening and close the connections, once no consumer that shares the source uses
        it; the source can be used again afterwards.
        """
        self._close_wanted = True
        await self._close_unused()

    @asynccontextmanager
    async def _in_use(self) -> AsyncIterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            await self._close_unused()

    async def _close_unused(self) -> None:
        if self._close_wanted and not self._users:
            self._close_wanted = False
            await self._endpoint.stop()
            if not self._users:
                await self._provider.close()


def _details(stream: StreamInfo) -> _Details:
    return _read_details(stream.details)
