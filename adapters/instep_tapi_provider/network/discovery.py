"""What a client discovers: the stream context and the stream monitor (TR-548 3.7, 3.18)."""

from typing import Any
from uuid import UUID, uuid5

from yarl import URL

from instep_tapi.facts.names import (
    STREAMING_MODULE,
    LogRecordStrategy,
    LogStorageStrategy,
    StreamState,
)
from instep_tapi_provider.clock import rfc3339
from instep_tapi_provider.network.site import Site
from instep_tapi_provider.records import RecordStyle
from instep_tapi_provider.settings import Aliases, DiscoveryStyle
from instep_tapi_provider.stream import Stream

Json = dict[str, Any]
_NAMESPACE = UUID("8f1d9b3e-9d55-5a57-8c0d-6a3e0a1c7f42")
_GNMI = 9339
"""The port that IANA gives to gNMI."""


def stream_context(site: Site, base: str) -> Json:
    """The content of ``tapi-streaming:stream-context``. `base`: scheme, host and RESTCONF root."""
    available = [_available(site, stream, base) for stream in site.streams]
    supported = [_supported(site, stream) for stream in site.streams]
    style = site.settings.discovery.style
    if style.is_2_6:
        stream, type_ = _measurements(style, URL(base))
        available.append(stream)
        supported.append(type_)
    shown = {"available-stream": available, "supported-stream-type": supported}
    deviation = site.faults.deviation
    return shown if deviation is None else deviation.context(shown)


def _measurements(style: RecordStyle, base: URL) -> tuple[Json, Json]:
    """The stream of measurements that a provider of v3.2 offers over gNMI (v3.2 3.9.2.6). It is
    listed, and not served.
    """
    uuid, type_uuid = (str(uuid5(_NAMESPACE, name)) for name in ("measurements", "type"))
    protocol = style.spelled("tapi-streaming:CONNECTION_PROTOCOL_GNMI")
    stream = {
        "uuid": uuid,
        "stream-id": "measurements",
        "connection-address": [str(URL.build(scheme="grpc", host=base.host or "", port=_GNMI))],
        "connection-protocol": protocol,
        "stream-state": style.identity(StreamState.ACTIVE),
        "supported-stream-type": {"supported-stream-type-uuid": type_uuid},
    }
    type_ = {
        "uuid": type_uuid,
        "stream-type-name": "measurements",
        "record-retention": "60",
        "stream-type-content": [style.class_name("MEASUREMENT_DETAILS")],
        "log-storage-strategy": style.identity(LogStorageStrategy.TRUNCATED),
        "log-record-strategy": style.spelled("tapi-streaming:LOG_RECORD_STRATEGY_WHOLE_ENTITY"),
        "record-trigger": style.spelled("tapi-streaming:RECORD_TRIGGER_PERIODIC"),
        "connection-protocol-details": {
            "allowed-connection-protocols": [protocol],
            "encoding-format": style.spelled("tapi-streaming:ENCODING_FORMAT_PROTOBUF"),
        },
    }
    return stream, type_


def _protocol(style: DiscoveryStyle) -> str:
    """The protocol of the streams: a text in 2.1.3, an identity from 2.4 on."""
    if not style.style.is_2_6:
        return style.protocol
    return style.style.spelled(f"tapi-streaming:CONNECTION_PROTOCOL_{style.protocol.upper()}")


def fault_management_context(site: Site) -> Json:
    """The content of ``tapi-fm:fault-management-context``: the alarms that stand (TAPI 2.4.1 and
    later).
    """
    style = site.settings.discovery.style
    alarms = site.operator.alarms.values()
    return {"active-condition": [alarm.active_condition(style) for alarm in alarms]}


def _available(site: Site, stream: Stream, base: str) -> Json:
    style = site.settings.discovery
    path = f"/data/context/stream-context/available-stream={stream.uuid}"
    return {
        "uuid": stream.uuid,
        "name": [{"value-name": "stream-name", "value": stream.stream_id}],
        "stream-id": stream.stream_id,
        "connection-address": [base + path] if style.style.is_2_6 else base + path,
        "connection-protocol": _protocol(style),
        "stream-state": style.style.identity(stream.state),
        "supported-stream-type": {"supported-stream-type-uuid": stream.type_uuid},
    }


def _supported(site: Site, stream: Stream) -> Json:
    style = site.settings.discovery
    settings = stream.settings
    log = stream.log.settings
    spelling = style.style
    # RFC 7951 has no prefix there; the generators of 2.1.3 write it all the same.
    prefix = f"{STREAMING_MODULE}:" if style.prefixed_members and not spelling.is_2_6 else ""
    truncated = settings.storage is LogStorageStrategy.TRUNCATED and not settings.emulated
    supported: Json = {
        "uuid": stream.type_uuid,
        "name": [{"value-name": "stream-type-name", "value": stream.stream_id}],
        "stream-type-name": stream.stream_id,
        "record-retention": _minutes(log.retention_s) if truncated or log.forgets else "FOREVER",
        "log-storage-strategy": spelling.identity(settings.storage),
        **_record_strategy(spelling, settings.record_strategy),
    }
    member = Aliases.STREAM_TYPE_CONTENT if spelling.is_2_6 else style.classes_member
    supported[member.value] = sorted(map(spelling.class_name, stream.classes))
    if settings.storage is LogStorageStrategy.COMPACTED and style.compacted_log_details:
        # An emulated log keeps changes and tombstones equally long (3.19.2).
        delay_s = log.retention_s if settings.emulated else log.compaction_delay_s
        retention_s = log.retention_s if settings.emulated else log.tombstone_retention_s
        supported[f"{prefix}compacted-log-details"] = {
            "tombstone-retention": _minutes(retention_s),
            "compaction-delay": _minutes(delay_s),
        }
    if style.connection_protocol_details:
        details: Json = {"allowed-connection-protocols": [_protocol(style)]}
        if spelling.is_2_6:
            details["encoding-format"] = spelling.spelled("tapi-streaming:ENCODING_FORMAT_JSON")
        supported[f"{prefix}connection-protocol-details"] = details
    return supported


def _record_strategy(style: RecordStyle, strategy: LogRecordStrategy) -> Json:
    """From TAPI 2.4 on what is stated and when are told apart (v3.2 3.9)."""
    if not style.is_2_6:
        return {"log-record-strategy": style.identity(strategy)}
    periodic = strategy is LogRecordStrategy.WHOLE_ENTITY_PERIODIC
    stated = "CHANGE_ONLY" if strategy is LogRecordStrategy.CHANGE_ONLY else "WHOLE_ENTITY"
    trigger = "PERIODIC" if periodic else "ON_CHANGE"
    return {
        "log-record-strategy": style.spelled(f"tapi-streaming:LOG_RECORD_STRATEGY_{stated}"),
        "record-trigger": style.spelled(f"tapi-streaming:RECORD_TRIGGER_{trigger}"),
    }


def stream_admin_context(site: Site) -> Json:
    """The content of ``tapi-streaming:stream-admin-context``: one monitor a connected client
    (3.18).
    """
    monitors = []
    for stream in site.streams:
        newest = stream.log.newest
        for listener in stream.listeners:
            monitor: Json = {
                "uuid": listener.client_id,
                "client-id": listener.client_id,
                "client-address": listener.address,
                "available-stream": {"available-stream-uuid": stream.uuid},
            }
            counts = {"last-updated": rfc3339(listener.updated_s)}
            if newest is not None:
                counts["id-of-last-record-written-to-log"] = newest.token
            if listener.last_read is not None:
                counts["id-of-last-record-read-from-log"] = listener.last_read.token
            nested = site.settings.discovery.style.is_2_6
            monitor |= {"dynamic-stream-data": counts} if nested else counts
            monitors.append(monitor)
    return {"stream-monitor": monitors}


def _minutes(period_s: float) -> str:
    """Minutes as the YANG has them; a scaled period is shown as it really passes, so with
    decimals.
    """
    return f"{period_s / 60:.6f}".rstrip("0").rstrip(".")
