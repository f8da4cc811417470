"""What is fuzzed: functions that take any bytes, and what must hold whatever these are."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec
from yarl import URL

from instep.errors import DiscoveryError, UnreachableError
from instep.model.records import Record, RecordChunk
from instep.model.streams import Start
from instep_http import SAME_ORIGIN, shown, source_error
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.endpoints.selection import log_mode, select, stream_address
from instep_tapi.facts.names import MAX_NAME_CHARS, MAX_TEXT_CHARS
from instep_tapi.feeds.close_codes import closed_error, handshake_error
from instep_tapi.options import StreamOptions, read_options
from instep_tapi.restconf.auth import Authenticator
from instep_tapi.restconf.baseline_rows import page_records
from instep_tapi.restconf.client import (
    RestconfClient,
    error_text,
    new_client,
    restconf_root,
)
from instep_tapi.restconf.json_bounds import decode_bounded
from instep_tapi.websocket.assembly import BrokenMessage, MessageAssembler, MessageTooBig
from instep_tapi.wire import decoder as reading
from instep_tapi.wire.context_tree import entities
from instep_tapi.wire.decoder import FrameDecoder
from instep_tapi.wire.stream_context import parse_context
from tests.fuzz.didcomm_targets import DIDCOMM_TARGETS
from tests.fuzz.sdpi_targets import SDPI_TARGETS
from tests.fuzz.soap_targets import SOAP_TARGETS

__all__ = ["TARGETS"]

_HERE: Final = URL("https://here:8443")
_LIMIT_BYTES: Final = 10_000
_OPTIONS: Final = read_options({"endpoints": [str(_HERE)]}, "fuzz")
_http: Final = new_client(_OPTIONS, ssl.create_default_context())
_client: Final = RestconfClient(_http, Authenticator(_OPTIONS.auth, _http), 1 << 20, 60.0)


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
    if chunk.records and not liberal.records and not _is_utf8(data):
        # Of a member that is stated twice, the first is left out unread.
        assert all("utf-8" in unreadable.reason for unreadable in liberal.unreadable)
        return
    assert list(liberal.records) == list(chunk.records)
    assert list(liberal.unreadable) == list(chunk.unreadable)
    assert liberal.deviations == chunk.deviations


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(data: bytes, *, fast: bool) -> RecordChunk:
    made = FrameDecoder("s", with_uuid=True)
    if not fast:
        made._lessons = -1_000_000
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
        for stated in choice.stream.addresses:
            try:
                url = stream_address(stated, _HERE, insecure=True)
            except (ValueError, DiscoveryError):
                continue
            assert url.host == _HERE.host
            assert url.scheme in {"ws", "wss"}
            assert url.user is None
            assert not set("\r\n \0") & set(url.raw_path_qs)


def frames(data: bytes) -> None:
    """Any frames give whole messages within the limit, or break the connection in our terms."""
    assembler = MessageAssembler(_LIMIT_BYTES, "permessage-deflate" if data[:1] > b"\0" else "")
    for payload, opcode, fin, rsv1 in _frames(data[1:]):
        if opcode >= 8:  # control frames are not assembled
            continue
        try:
            message = assembler.add(payload, first=opcode != 0, last=fin, deflated=rsv1)
        except (BrokenMessage, MessageTooBig):
            return
        assert assembler.unfinished_bytes <= _LIMIT_BYTES
        if message is not None:
            assert fin
            assert len(message) <= max(_LIMIT_BYTES, len(payload))


def _frames(data: bytes) -> Iterator[tuple[bytes, int, bool, bool]]:
    """Payload, opcode, FIN and RSV1 of each frame (RFC 6455 5.2)."""
    at = 0
    while len(data) >= at + 2:
        first, size = data[at], data[at + 1] & 0x7F
        at += 2
        wide = {126: 2, 127: 8}.get(size, 0)
        if wide:
            size = int.from_bytes(data[at : at + wide])
            at += wide
        yield data[at : at + size], first & 0x0F, bool(first & 0x80), bool(first & 0x40)
        at += size


def http_answer(data: bytes) -> None:
    """What a provider writes into headers, statuses and close frames is read or refused."""
    lines = data.decode("latin-1").split("\n", 4)
    extensions, location, date, status, closing = (*lines, *[""] * 5)[:5]
    with suppress(BrokenMessage):
        MessageAssembler(_LIMIT_BYTES, extensions)
    with suppress(UnreachableError):
        target = SAME_ORIGIN.target(_HERE, 302, location)
        assert target.origin() == _HERE.origin()
    _client._note_clock(date, 1_700_000_000.0)
    assert abs(_client.clock_offset_us) < 2**63
    number, _, reason = closing.partition(" ")
    for error in (
        handshake_error(_number(status), "here", "token"),
        closed_error(_number(number), reason, "here", reason or Start.OLDEST),
        source_error(ValueError(reason), location),
    ):
        assert str(error).isprintable()
        assert len(str(error)) < 1_000
    assert str(shown(location)).isprintable()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 6 else 1006


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
    "frames": frames,
    "http_answer": http_answer,
    "reader": reader,
    "discovery": discovery,
    "baseline": baseline,
    **DIDCOMM_TARGETS,
    **SOAP_TARGETS,
    **SDPI_TARGETS,
}
