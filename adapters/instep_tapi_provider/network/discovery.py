"""What a client discovers: the stream context and the stream monitor (TR-548 3.7, 3.18)."""

from typing import Any

from instep_tapi.facts.names import STREAMING_MODULE, LogStorageStrategy
from instep_tapi_provider.clock import rfc3339
from instep_tapi_provider.network.site import Site
from instep_tapi_provider.stream import Stream

Json = dict[str, Any]


def stream_context(site: Site, base: str) -> Json:
    """The content of ``tapi-streaming:stream-context``. `base`: scheme, host and RESTCONF root."""
    return {
        "available-stream": [_available(site, stream, base) for stream in site.streams],
        "supported-stream-type": [_supported(site, stream) for stream in site.streams],
    }


def _available(site: Site, stream: Stream, base: str) -> Json:
    style = site.settings.discovery
    path = f"/data/context/stream-context/available-stream={stream.uuid}"
    return {
        "uuid": stream.uuid,
        "name": [{"value-name": "stream-name", "value": stream.stream_id}],
        "stream-id": stream.stream_id,
        "connection-address": base + path,
        "connection-protocol": style.protocol,
        "stream-state": style.style.identity(stream.state),
        "supported-stream-type": {"supported-stream-type-uuid": stream.type_uuid},
    }


def _supported(site: Site, stream: Stream) -> Json:
    style = site.settings.discovery
    settings = stream.settings
    log = stream.log.settings
    prefix = f"{STREAMING_MODULE}:" if style.prefixed_members else ""
    truncated = settings.storage is LogStorageStrategy.TRUNCATED and not settings.emulated
    supported: Json = {
        "uuid": stream.type_uuid,
        "name": [{"value-name": "stream-type-name", "value": stream.stream_id}],
        "stream-type-name": stream.stream_id,
        "record-retention": _minutes(log.retention_s) if truncated or log.forgets else "FOREVER",
        style.classes_member.value: sorted(stream.classes),
        "log-storage-strategy": style.style.identity(settings.storage),
        "log-record-strategy": style.style.identity(settings.record_strategy),
    }
    if settings.storage is LogStorageStrategy.COMPACTED and style.compacted_log_details:
        # An emulated log keeps changes and tombstones equally long (3.19.2).
        delay_s = log.retention_s if settings.emulated else log.compaction_delay_s
        retention_s = log.retention_s if settings.emulated else log.tombstone_retention_s
        supported[f"{prefix}compacted-log-details"] = {
            "tombstone-retention": _minutes(retention_s),
            "compaction-delay": _minutes(delay_s),
        }
    if style.connection_protocol_details:
        supported[f"{prefix}connection-protocol-details"] = {
            "allowed-connection-protocols": [style.protocol]
        }
    return supported


def stream_admin_context(site: Site) -> Json:
    """The content of ``tapi-streaming:stream-admin-context``: one monitor a connected client
    (3.18).
    """
    monitors = []
    for stream in site.streams:
        newest = stream.log.newest
        for listener in stream.listeners:
            monitor = {
                "uuid": listener.client_id,
                "client-id": listener.client_id,
                "client-address": listener.address,
                "available-stream": {"available-stream-uuid": stream.uuid},
                "last-updated": rfc3339(listener.updated_s),
            }
            if newest is not None:
                monitor["id-of-last-record-written-to-log"] = newest.token
            if listener.last_read is not None:
                monitor["id-of-last-record-read-from-log"] = listener.last_read.token
            monitors.append(monitor)
    return {"stream-monitor": monitors}


def _minutes(period_s: float) -> str:
    """Minutes as the YANG has them; a scaled period is shown as it really passes, so with
    decimals.
    """
    return f"{period_s / 60:.6f}".rstrip("0").rstrip(".")
