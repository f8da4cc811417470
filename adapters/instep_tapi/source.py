"""The source `tapi`: one provider of TR-548 streams, behind the port of the core."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import msgspec
from yarl import URL

from instep.errors import DiscoveryError, NoStreamError, StreamGoneError, UnreachableError
from instep.ports import Feed, Mode, Start, StreamInfo
from instep.records import Record, StreamState
from instep_tapi.auth import Authenticator
from instep_tapi.baseline import read_baseline, readable_classes
from instep_tapi.discovery import ContextAddress, StreamContext, find_context, parse_context
from instep_tapi.feed import open_feed
from instep_tapi.options import Options
from instep_tapi.reader import Reader
from instep_tapi.rest import Rest
from instep_tapi.selection import Choice, log_mode, select, websocket_address
from instep_tapi.transport import make_session, tls_context

__all__ = ["KIND", "TapiSource"]

KIND = "tapi"
_LONGEST_ANSWER_TIMEOUTS = 20
_DISCOVERY_TIMEOUTS = 5
_log = logging.getLogger("instep.tapi")


class _Details(msgspec.Struct, frozen=True):
    """What `StreamInfo.details` keeps: where the stream and its context are."""

    uuid: str
    address: str
    endpoint: str
    context: str
    streams: str
    state: str = ""


class Survey(NamedTuple):
    """What discovery found at the endpoint that answered."""

    address: ContextAddress
    context: StreamContext
    choices: list[Choice]


class TapiSource:
    """Implements `Source` (TR-548 ST-0.1 to ST-0.4). `where` names its options in errors.

    The HTTP session is made at first use, in the loop that uses it, and lives until `close`.
    """

    def __init__(self, options: Options, where: str = "source") -> None:
        self._options = options
        self._tls = tls_context(options.tls, f"{where}.tls")
        self._session_made: aiohttp.ClientSession | None = None
        self._auth = Authenticator(options.auth, self._session)
        self._rest = Rest(
            self._session,
            self._auth,
            options.max_body_bytes,
            options.request_timeout_s * _LONGEST_ANSWER_TIMEOUTS,
        )
        if not options.tls.verifies:
            _log.warning("%s: certificates are not verified (tls.verify is off)", where)

    def __repr__(self) -> str:
        return f"<TapiSource {', '.join(self._options.endpoints)}>"

    def _session(self) -> aiohttp.ClientSession:
        if self._session_made is None:
            self._session_made = make_session(self._options, self._tls)
        return self._session_made

    async def survey(self) -> Survey:
        """Discover at the first endpoint that answers, and judge every stream (ST-0.2).

        Raises `SourceError`.
        """
        unreachable: list[UnreachableError] = []
        for endpoint in map(URL, self._options.endpoints):
            self._auth.use(endpoint)
            try:
                address, context = await self._find(endpoint)
            except UnreachableError as error:
                unreachable.append(error)
                continue
            return Survey(address, context, select(context, self._options.streams))
        if len(unreachable) == 1:
            raise unreachable[0]
        raise UnreachableError(
            "none of the endpoints can be reached: " + "; ".join(map(str, unreachable)),
            where=", ".join(self._options.endpoints),
            retriable=any(error.retriable for error in unreachable),
        ) from unreachable[0]

    async def _find(self, endpoint: URL) -> tuple[ContextAddress, StreamContext]:
        timeout_s = self._options.request_timeout_s * _DISCOVERY_TIMEOUTS
        try:
            async with asyncio.timeout(timeout_s):
                return await find_context(self._rest, endpoint, self._options.roots)
        except TimeoutError:
            raise UnreachableError(
                f"no stream context within {timeout_s:g} s", where=str(endpoint)
            ) from None

    async def discover(self) -> Sequence[StreamInfo]:
        """See `Source.discover`. Raises `NoStreamError` where nothing fits, with all reasons."""
        survey = await self.survey()
        infos = [self._info(choice, survey.address) for choice in survey.choices if choice.chosen]
        if not infos:
            reasons = {choice.id: choice.reason for choice in survey.choices}
            told = "; ".join(f"{id_}: {reason}" for id_, reason in reasons.items())
            raise NoStreamError(
                f"no stream to follow ({told})" if told else "the provider offers no stream",
                where=survey.address.streams,
                hint="see `instep discover`; widen streams, or wait until one is ACTIVE",
                reasons=reasons,
            )
        return infos

    def _info(self, choice: Choice, address: ContextAddress) -> StreamInfo:
        stream, type_ = choice.stream, choice.stream.type
        assert type_ is not None
        mode = log_mode(type_, trust_compacted=self._options.trust_compacted)
        try:
            connect_to = websocket_address(stream.address, URL(address.endpoint))
        except ValueError as error:
            raise DiscoveryError(str(error), where=address.streams) from None
        details = _Details(
            uuid=stream.uuid,
            address=str(connect_to),
            endpoint=address.endpoint,
            context=address.context,
            streams=address.streams,
            state=stream.state,
        )
        return StreamInfo(
            id=choice.id,
            origin=f"{address.endpoint} {stream.uuid}",
            kind=KIND,
            mode=mode,
            classes=type_.classes,
            storage_strategy=type_.storage_strategy,
            record_strategy=type_.record_strategy,
            compaction_delay_s=type_.compaction_delay_s,
            tombstone_retention_s=type_.tombstone_retention_s,
            record_retention_s=type_.record_retention_s,
            readable=readable_classes(type_.classes) if mode is Mode.BASELINE else frozenset(),
            clock_offset_us=self._rest.clock_offset_us,
            details=msgspec.to_builtins(details),
        )

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:
        """See `Source.feed`."""
        details = _details(stream)
        reader = Reader(
            stream.id,
            with_uuid=stream.mode is Mode.BASELINE or stream.record_strategy == "CHANGE_ONLY",
            whole=stream.record_strategy != "CHANGE_ONLY",
        )
        self._auth.use(URL(details.endpoint))
        async with open_feed(
            self._session(),
            self._auth,
            self._options,
            URL(details.address, encoded=True),
            start,
            reader,
            self._rest.clock_offset_us,
        ) as feed:
            yield feed

    def baseline(self, stream: StreamInfo, opened_at_us: int) -> AsyncIterator[list[Record]]:
        """See `Source.baseline`."""
        details = _details(stream)
        address = ContextAddress(details.endpoint, details.context, details.streams)
        return read_baseline(self._rest, address, stream.id, stream.classes, opened_at_us)

    async def state(self, stream: StreamInfo) -> StreamState:
        """See `Source.state`: the stream's own resource, else the container (3.7.2)."""
        details = _details(stream)
        container = URL(details.streams)
        answer = await self._rest.get(container / f"available-stream={details.uuid}")
        if not answer.found:
            answer = await self._rest.get(container)
        if not answer.found:
            raise DiscoveryError(
                f"the stream's state is answered with {answer.status}",
                where=answer.url,
                retriable=answer.status == 429 or answer.status >= 500,
            )
        try:
            context = parse_context(msgspec.json.decode(answer.body))
        except (ValueError, RecursionError):
            raise DiscoveryError("the answer is no JSON", where=answer.url) from None
        for found in context.streams if context is not None else ():
            if found.uuid == details.uuid:
                return found.state
        raise StreamGoneError("the stream is not offered any more", where=str(container))

    async def close(self) -> None:
        """Close the connections; the source can be used again afterwards."""
        session, self._session_made = self._session_made, None
        if session is not None:
            await session.close()


def _details(stream: StreamInfo) -> _Details:
    return msgspec.convert(stream.details, _Details)
