"""Takes WebSocket messages apart into log-records, one at a time: the reference for
`frame_template`.

TR-548 leaves the framing open. Accepted: one bare log-record, a list of them, ``{"log-record":
[…]}``, ``{"stream-record": {…}}`` as the YANG notification is, and that in
``{"ietf-restconf:notification": {…}}``; every name with or without its module. Several of these in
one frame, one a line, as bridges send them, or right behind each other, and a byte order mark
before the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from instep_tapi.facts.names import strip_module

__all__ = [
    "BYTE_ORDER_MARK",
    "NO_BODY",
    "WRAPPER_DEPTH",
    "BadRecord",
    "Fields",
    "decode_fields",
    "decode_items",
    "inner_member",
    "is_list",
    "split_liberal",
]


Fields = dict[str, msgspec.Raw]
"""Members of a JSON object, values undecoded."""


NO_BODY = msgspec.Raw(b"null")


WRAPPER_DEPTH = 5
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadRecord(Exception):
    """A frame or record cannot be read; the text is the reason, as the quarantine shows it."""


_value = msgspec.json.Decoder(msgspec.Raw)
_MOST_DOCUMENTS: Final = 10_000
"""Most documents of a line: each is read twice."""
_document: Final = json.JSONDecoder().raw_decode


decode_fields = msgspec.json.Decoder(Fields).decode
decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


JSON_BLANKS = b" \t\r\n"


def split_liberal(frame: bytes, deviations: list[str]) -> Sequence[bytes | msgspec.Raw]:
    """Each record of a frame as its own JSON, in order; `bytes` where it is a whole document, and
    not in a list or a wrapper. Raises `BadRecord`.
    """
    if frame.startswith(BYTE_ORDER_MARK):
        deviations.append("byte-order-mark")
        frame = frame.removeprefix(BYTE_ORDER_MARK)
    try:
        return _split(frame, WRAPPER_DEPTH)
    except RecursionError:
        raise BadRecord("JSON nested too deeply") from None
    except ValueError as error:  # malformed JSON, or text that is not UTF-8
        items = _split_lines(frame)
        if items:
            deviations.append("several-documents")
            return items
        raise BadRecord(f"not JSON: {error}") from None


def _split_lines(frame: bytes) -> list[bytes | msgspec.Raw]:
    """The records of a frame that has a JSON document in each of several lines, or several in one
    line; none where it has not. A line that cannot be read is one record, and costs no other.
    """
    lines = [line for line in frame.splitlines() if line.strip(JSON_BLANKS)]
    if len(lines) == 1:
        lines = _joined_documents(lines[0])
    if len(lines) < 2:
        return []
    items: list[bytes | msgspec.Raw] = []
    documents = 0
    for line in lines:
        try:
            items += _split(line.removeprefix(BYTE_ORDER_MARK), WRAPPER_DEPTH)
        except (ValueError, RecursionError, BadRecord):
            items.append(line)
        else:
            documents += 1
    return items if documents else []


def _joined_documents(line: bytes) -> list[bytes]:
    """The JSON documents of a line, one right behind the other; none where they are not that."""
    found: list[bytes] = []
    at = 0
    try:
        text = line.decode().rstrip()
        while at < len(text) and len(found) <= _MOST_DOCUMENTS:
            _, end = _document(text, at)
            found.append(text[at:end].encode())
            while text[end : end + 1].isspace():
                end += 1
            at = end
    except (ValueError, RecursionError):
        return []
    return found if len(found) <= _MOST_DOCUMENTS else []


def _split(value: bytes, depth: int) -> Sequence[bytes | msgspec.Raw]:
    if depth == 0:
        raise BadRecord("no log-record within the wrappers")
    if is_list(value):
        return decode_items(value)
    if value.lstrip(JSON_BLANKS)[:1] != b"{":
        _value.decode(value)
        raise BadRecord("a JSON value that is neither an object nor a list")
    members = decode_fields(value)
    inner = inner_member(members)
    if inner is not None:
        return _split(bytes(members[inner]), depth - 1)
    return [value if depth == WRAPPER_DEPTH else msgspec.Raw(value)]


def is_list(value: bytes) -> bool:
    """Whether a JSON value is a list."""
    return value.lstrip(JSON_BLANKS)[:1] == b"["


def inner_member(members: Iterable[str]) -> str | None:
    """The member of an object that holds its log-records; None: it is a log-record, or none."""
    names = {strip_module(name): name for name in members}
    if "log-record-header" in names:
        return None
    found = (
        names[name] for name in ("log-record", "stream-record", "notification") if name in names
    )
    return next(found, None)
