"""What is fuzzed: functions that take any bytes, and what must hold whatever these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from yarl import URL

from instep.errors import DiscoveryError
from instep.model.records import Record, RecordChunk
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.endpoints.selection import log_mode, select, websocket_address
from instep_tapi.options import StreamOptions
from instep_tapi.restconf.baseline import page_records
from instep_tapi.restconf.client import error_text, restconf_root
from instep_tapi.restconf.json_bounds import decode_bounded
from instep_tapi.wire import decoder as reading
from instep_tapi.wire.context_tree import entities
from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi.wire.names import MAX_NAME_CHARS, MAX_TEXT_CHARS
from instep_tapi.wire.stream_context import parse_context

__all__ = ["TARGETS"]

_HERE: Final = URL("https://here:8443")


def reader(data: bytes) -> None:
    """Any frame is read or kept; what is read can be stored; both decoders give the same
    records.
    """
    chunk = _read(data, fast=True)
    assert chunk.size_bytes == len(data)
    assert set(chunk.deviations) <= set(DEVIATIONS)
    assert len(chunk.unreadable) <= reading.MAX_FRAME_UNREADABLE
    for record in chunk.decode().records:
        _check_storable(record)
    for unreadable in chunk.unreadable:
        assert unreadable.reason
        assert len(unreadable.reason) < 1_000
        assert unreadable.raw in data or not chunk.records
    liberal = _read(data, fast=False)
    assert list(liberal.records) == list(chunk.records)
    assert list(liberal.unreadable) == list(chunk.unreadable)
    assert liberal.deviations == chunk.deviations


def _read(data: bytes, *, fast: bool) -> RecordChunk:
    made = FrameDecoder("s", with_uuid=True)
    if not fast:
        made._columns_backoff.note_result(succeeded=False)
        made._fast_backoff.note_result(succeeded=False)
    return made.read([data])


def discovery(data: bytes) -> None:
    """Any answer to discovery is read or refused in our terms; every stream is judged."""
    restconf_root(data, _HERE)
    assert len(error_text(data)) <= 200
    try:
        context = parse_context(decode_bounded(data))
    except (ValueError, DiscoveryError):
        return
    if context is None:
        return
    for choice in select(context, StreamOptions()):
        assert choice.reason or choice.chosen
        if choice.chosen:
            assert choice.stream.uuid
            assert choice.stream.type is not None
            assert log_mode(choice.stream.type)
        try:
            url = websocket_address(choice.stream.address, _HERE, insecure=True)
        except (ValueError, DiscoveryError):
            continue
        assert url.host == _HERE.host
        assert url.scheme in {"ws", "wss"}
        assert url.user is None
        assert not set("\r\n \0") & set(url.raw_path_qs)


def baseline(data: bytes) -> None:
    """Any answer with current state gives rows that can be stored, each key once, or an error."""
    try:
        found = list(entities(decode_bounded(data)))
    except ValueError:
        return
    records = list(page_records(found, "s", 1, set()))
    for record in records:
        _check_storable(record, of_log=False)
    assert len({record.key for record in records}) == len(records)


def _check_storable(record: Record, *, of_log: bool = True) -> None:
    texts = {record.key, record.partition, record.entity_class, record.uuid, record.token}
    for text in texts:
        assert "\0" not in text
        assert len(text) <= MAX_TEXT_CHARS
        text.encode()
    assert record.key
    assert record.token or not of_log
    assert max(len(record.partition), len(record.entity_class)) <= MAX_NAME_CHARS
    assert -1 <= record.offset < 2**63
    assert abs(record.appended_at_us) < 2**63
    for body in (record.body, record.envelope):
        if body:
            msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            body.decode()


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "reader": reader,
    "discovery": discovery,
    "baseline": baseline,
}
