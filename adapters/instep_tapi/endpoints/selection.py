"""Chooses among the streams of a provider, by class (TR-548 ST-3.1), id and strategy, with a reason
for each (ST-0.2). Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec
from yarl import URL

from instep.errors import DiscoveryError, SourceError, TlsError
from instep.model.streams import Mode, StreamState
from instep_http import shown
from instep_tapi.facts.names import ANY_CLASS, class_named, short_identity
from instep_tapi.facts.stream_profile import TAPI_2_6
from instep_tapi.options import StreamOptions, host_of
from instep_tapi.wire.stream_context import AvailableStream, StreamContext, StreamType

__all__ = [
    "SSE",
    "WEBSOCKET",
    "Choice",
    "StreamAddress",
    "compacts",
    "foreign_host",
    "judge_addresses",
    "kept_classes",
    "log_mode",
    "may_be_emulated",
    "protocol_of",
    "select",
    "stream_address",
]

_CONNECTABLE = {
    StreamState.ACTIVE: "it is ACTIVE",
    StreamState.ALIGNING: "it is ALIGNING: records come when it is ACTIVE",
    StreamState.PAUSED: "it is PAUSED: records come when it is ACTIVE",
    StreamState.UNKNOWN: "its state is not declared",
}
WEBSOCKET: Final = "WebSocket"
SSE: Final = "SSE"
_PROTOCOLS: Final = {
    **dict.fromkeys(("websocket", "websockets", "ws", "wss"), WEBSOCKET),
    **dict.fromkeys(("sse", "eventsource", "serversentevents", "serversentevent"), SSE),
}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BLANK: Final = re.compile("[\\x00-\\x20]")
_SCHEMES: Final = {
    WEBSOCKET: {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"},
    SSE: {"http": "http", "https": "https"},
}


class StreamAddress(NamedTuple):
    """A connection-address, and where it leads, or why it is not followed."""

    stated: str
    url: URL | None
    error: SourceError | None


class Choice(msgspec.Struct, frozen=True):
    """A stream, whether it is followed, and why or why not."""

    id: str
    stream: AvailableStream
    chosen: bool
    reason: str


def select(context: StreamContext, wanted: StreamOptions) -> list[Choice]:
    """Judge every available stream, in the provider's order.

    Where two of those that fit carry the same classes, one that gives state by itself (COMPACTED,
    then FULL_HISTORY) is preferred; asked for by id, a stream is followed whatever the others do.
    """
    ids = stream_ids(context.streams)
    fitting: list[tuple[str, AvailableStream, StreamType]] = []
    passed: dict[str, str] = {}
    for stream in context.streams:
        id_ = ids[stream.uuid]
        reason = _why_not(id_, stream, wanted)
        if reason is None and stream.type is not None:
            fitting.append((id_, stream, stream.type))
        else:
            passed[id_] = reason or ""
    fitting.sort(key=lambda fit: _rank(fit[2]))
    kept: list[tuple[str, StreamType]] = []
    for id_, _, type_ in fitting:
        better = None if wanted.ids else _covered_by(type_, kept, wanted)
        if better is not None:
            passed[id_] = f"{better} carries its classes, by a better log strategy"
        else:
            kept.append((id_, type_))
    chosen = {id_ for id_, _ in kept}
    return [
        Choice(
            ids[stream.uuid],
            stream,
            ids[stream.uuid] in chosen,
            passed.get(ids[stream.uuid]) or _CONNECTABLE.get(stream.state, ""),
        )
        for stream in context.streams
    ]


def stream_ids(streams: tuple[AvailableStream, ...]) -> dict[str, str]:
    """The name of each stream in the store: its stream-id where that is unique, else its uuid."""
    counts = Counter(stream.stream_id for stream in streams)
    return {
        stream.uuid: stream.stream_id
        if stream.stream_id and counts[stream.stream_id] == 1
        else stream.uuid
        for stream in streams
    }


def _why_not(id_: str, stream: AvailableStream, wanted: StreamOptions) -> str | None:
    type_ = stream.type
    if not stream.uuid:
        return "it has no uuid"
    if wanted.ids and id_ not in wanted.ids and stream.uuid not in wanted.ids:
        return "other ids are asked for"
    if stream.state not in _CONNECTABLE:
        return f"its state is {stream.state.name}"
    if type_ is None:
        return "its supported-stream-type is not stated"
    if (reason := _why_unreadable(stream, type_)) is not None:
        return reason
    if wanted.strategies and type_.storage_strategy not in {
        short_identity(text) for text in wanted.strategies
    }:
        return f"its strategy {type_.storage_strategy or '(none)'} is not asked for"
    if wanted.classes and not _carries_everything(type_):
        classes = {short_identity(text) for text in wanted.classes}
        if classes.isdisjoint(type_.classes):
            return "it carries none of the classes that are asked for"
    if wanted.only_classes and not kept_classes(type_, wanted):
        return "it carries none of the classes that are kept"
    return None


def _why_unreadable(stream: AvailableStream, type_: StreamType) -> str | None:
    protocol = protocol_of(stream)
    if not protocol:
        declared = stream.protocol or ", ".join(type_.protocols) or "is not declared"
        return f"its protocol {declared!r} is neither WebSocket nor SSE"
    if type_.encoding.upper() not in {"", "JSON"}:
        return f"its encoding-format is {type_.encoding}: only JSON is read"
    if not stream.addresses:
        return "it has no connection-address"
    if all(_is_of_another_protocol(address, protocol) for address in stream.addresses):
        return f"its address {stream.addresses[0][:200]!r} is none of a stream over {protocol}"
    return None


def kept_classes(type_: StreamType, wanted: StreamOptions) -> tuple[str, ...]:
    """The classes of a stream whose entities are kept; empty: all that it carries."""
    only = dict.fromkeys(class_named(text) for text in wanted.only_classes)
    if not only or _carries_everything(type_):
        return tuple(only)
    return tuple(name for name in type_.classes if name in only)


def protocol_of(stream: AvailableStream) -> str:
    """`WEBSOCKET` or `SSE`, in any spelling; empty for another, or one that is not known."""
    if stream.protocol:
        return _protocol_named(stream.protocol)
    if any(address.startswith(("ws://", "wss://")) for address in stream.addresses):
        return WEBSOCKET
    # It need not be stated where its type leaves no choice (v3.2 3.7.1.1), or for WebSocket, the
    # default of the YANG from 2.4 on.
    allowed = () if stream.type is None else stream.type.protocols
    if len(allowed) == 1:
        return _protocol_named(allowed[0])
    is_default = not allowed or WEBSOCKET in map(_protocol_named, allowed)
    return WEBSOCKET if is_default and stream.profile.tapi == TAPI_2_6 else ""


def _protocol_named(text: str) -> str:
    name = short_identity(text).lower().removeprefix("connection_protocol_")
    return _PROTOCOLS.get(name.replace("_", ""), "")


def _is_of_another_protocol(address: str, protocol: str) -> bool:
    found = _SCHEME.match(address)
    return found is not None and found[1].lower() not in _SCHEMES[protocol]


def _rank(type_: StreamType) -> int:
    if type_.storage_strategy == "COMPACTED":
        return 0 if type_.compacted_details else 2
    return 1 if type_.storage_strategy.startswith("FULL_HISTORY") else 3


def _covered_by(
    type_: StreamType, kept: list[tuple[str, StreamType]], wanted: StreamOptions
) -> str | None:
    """The id of a stream of a better strategy that carries all that this one would add."""
    asked = {short_identity(text) for text in wanted.classes} or set(type_.classes)
    adds = asked if _carries_everything(type_) else set(type_.classes) & asked
    if wanted.only_classes:
        adds = set(kept_classes(type_, wanted))
    for id_, other in kept:
        if _rank(other) != _rank(type_) and (
            _carries_everything(other) or (adds and adds <= set(other.classes))
        ):
            return id_
    return None


def _carries_everything(type_: StreamType) -> bool:
    return not type_.classes or ANY_CLASS in type_.classes


def log_mode(type_: StreamType, *, trust_compacted: bool = False) -> Mode:
    """Whether the log alone gives state (TR-548 3.8.1; A15): a compacted log that keeps the last
    record of each entity does (3.8.1.1), and so does a full history (3.8.1.3). A truncated log does
    not (3.8.1.2).

    A log that forgets live entities would lead to a sweep of them. So no log is trusted that states
    for how long it keeps its records, nor COMPACTED without compacted-log-details, unless
    `trust_compacted` is set.

    FULL_HISTORY_WITH_PERIODIC_BASELINE is read as FULL_HISTORY: it holds all records, and the form
    of its baselines is not defined (3.8.1.4), so a reading cannot begin at one. A baseline in
    ordinary records changes nothing; one in another form goes to quarantine.
    """
    if type_.forgets:
        return Mode.BASELINE
    if type_.storage_strategy.startswith("FULL_HISTORY"):
        return Mode.LOG
    if type_.storage_strategy == "COMPACTED" and (type_.compacted_details or trust_compacted):
        return Mode.LOG
    return Mode.BASELINE


def foreign_host(address: URL, endpoint: URL) -> str:
    """The host of an address, if it is not the endpoint's; else empty."""
    host, ours = (host_of(url.host or "") or "" for url in (address, endpoint))
    return "" if host == ours else host


def compacts(type_: StreamType) -> bool:
    """Whether a log in `Mode.BASELINE` may have gaps where it was compacted. Where it states no
    tombstone-retention, a gap after an absence may as well be an end that we missed.
    """
    return type_.storage_strategy == "COMPACTED" and type_.tombstone_retention_s is not None


def may_be_emulated(type_: StreamType) -> bool:
    """Whether what a log in `Mode.LOG` states may begin with a snapshot of current state (TR-548
    3.19.2): seen from outside, such a log keeps changes and tombstones for one and the same time
    (3.19.3). A full compacted log (3.19.1) keeps tombstones longer.
    """
    one_time = type_.compaction_delay_s == type_.tombstone_retention_s
    return type_.storage_strategy == "COMPACTED" and one_time


def stream_address(
    address: str,
    endpoint: URL,
    *,
    protocol: str = WEBSOCKET,
    hosts: Collection[str] = (),
    insecure: bool = False,
) -> URL:
    """The connection-address as a URL of its protocol; it is opaque, but may be relative, and that
    of a WebSocket may say http.

    Raises `ValueError` where it is no address of that protocol. Raises `DiscoveryError` where it
    would have us send our login to a host that is neither the endpoint's nor among `hosts`, and
    `TlsError` where an endpoint that is reached by TLS would have us send it in clear, unless
    `insecure` allows it.
    """
    url = endpoint.join(URL(address, encoded=True))
    # A blank would end the request's target. A user would replace our login, and be shown with the
    # address.
    blank = _BLANK.search(address) is not None
    scheme = _SCHEMES[protocol].get(url.scheme)
    if blank or scheme is None or not url.host or url.raw_user is not None:
        raise ValueError(f"{address[:200]!r} is no address of a stream over {protocol}")
    found = url.with_scheme(scheme)
    if (host := foreign_host(found, endpoint)) and host not in hosts:
        raise DiscoveryError(
            f"the provider would have its stream read at another host, {shown(found)}",
            where=str(endpoint),
            hint=f'if our login may be sent there: stream_hosts = ["{host}"]',
            host=host,
        )
    if endpoint.scheme == "https" and found.scheme in {"ws", "http"} and not insecure:
        raise TlsError(
            f"the provider would have its stream read without TLS, at {found.origin()}",
            where=str(endpoint),
            hint="let it offer TLS; tls.insecure_websocket = true sends login and records in clear",
        )
    return found


def judge_addresses(
    stream: AvailableStream,
    endpoint: URL,
    *,
    hosts: Collection[str] = (),
    insecure: bool = False,
) -> list[StreamAddress]:
    """The addresses of a stream that is chosen, in the provider's order; see `stream_address`."""
    protocol = protocol_of(stream)
    judged: list[StreamAddress] = []
    for stated in stream.addresses:
        try:
            url = stream_address(
                stated, endpoint, protocol=protocol, hosts=hosts, insecure=insecure
            )
        except ValueError as error:
            judged.append(StreamAddress(stated, None, DiscoveryError(str(error))))
        except SourceError as error:
            judged.append(StreamAddress(stated, None, error))
        else:
            judged.append(StreamAddress(stated, url, None))
    return judged
