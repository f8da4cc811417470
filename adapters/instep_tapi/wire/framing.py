"""Takes WebSocket messages apart into log-records, one at a time: the reference for
`fast_decode`.

TR-548 leaves the framing open. Accepted: one bare log-record, a list of them, ``{"log-record":
[…]}``, ``{"stream-record": {…}}`` as the YANG notification is, and that in
``{"ietf-restconf:notification": {…}}``; every name with or without its module.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from instep_tapi.wire.names import strip_module

__all__ = ["NO_BODY", "BadRecord", "Fields", "decode_fields", "split_liberal"]


Fields = dict[str, msgspec.Raw]
"""Members of a JSON object, values undecoded."""


NO_BODY = msgspec.Raw(b"null")


_WRAPPER_DEPTH = 5


class BadRecord(Exception):
    """A frame or record cannot be read; the text is the reason, as the quarantine shows it."""


_items = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)


decode_fields = msgspec.json.Decoder(Fields).decode


JSON_BLANKS = b" \t\r\n"


def split_liberal(frame: bytes) -> Sequence[bytes | msgspec.Raw]:
    """Each record of a frame as its own JSON, in order. Raises `BadRecord`."""
    try:
        return _split(frame, _WRAPPER_DEPTH)
    except RecursionError:
        raise BadRecord("JSON nested too deeply") from None
    except ValueError as error:  # malformed JSON, or text that is not UTF-8
        raise BadRecord(f"not JSON: {error}") from None


def _split(value: bytes, depth: int) -> Sequence[bytes | msgspec.Raw]:
    if depth == 0:
        raise BadRecord("no log-record within the wrappers")
    opening = value.lstrip(JSON_BLANKS)[:1]
    if opening == b"[":
        return _items.decode(value)
    if opening != b"{":
        _value.decode(value)
        raise BadRecord("a JSON value that is neither an object nor a list")
    members = {strip_module(name): raw for name, raw in decode_fields(value).items()}
    if "log-record-header" in members:
        return [value]
    for name in ("log-record", "stream-record", "notification"):
        if name in members:
            return _split(bytes(members[name]), depth - 1)
    return [value]
