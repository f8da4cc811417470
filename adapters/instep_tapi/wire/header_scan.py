"""What can still be read of a record that cannot be read: its entity, and its place in the log
(A17).

The names are looked for in the bytes, wherever they stand and whatever surrounds them: a record
that is cut off, or broken in its body, still says which entity it is about.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import msgspec

from instep.model.records import Unreadable
from instep_tapi.facts.names import ANY_CLASS, MAX_NAME_CHARS, MAX_TEXT_CHARS, short_identity
from instep_tapi.wire.record_header import MAX_OFFSET

__all__ = ["is_record", "read_leniently"]

_NAMES_A_RECORD: Final = re.compile(rb"log-record|token|entity-key")
_VALUE: Final = rb'\s*:\s*("(?:[^"\\]|\\.){0,4096}"|-?[0-9][0-9.eE+-]{0,64})'
_BEFORE: Final = rb'"(?:[a-z-]+:)?'
_TOKEN: Final = re.compile(_BEFORE + rb'token"' + _VALUE)
_KEY: Final = re.compile(_BEFORE + rb'entity-key"' + _VALUE)
_CLASS: Final = re.compile(_BEFORE + rb'record-content"' + _VALUE)
_HEADERS: Final = re.compile(_BEFORE + rb'log-record-header"')
_ENTRY: Final = re.compile(
    rb'\{\s*"value-name"\s*:\s*"(partition|offset)"\s*,\s*"value"' + _VALUE + rb"\s*\}"
)
_text: Final = msgspec.json.Decoder(str).decode


def is_record(raw: bytes) -> bool:
    """Whether a text may be a log-record: it names one of what each record has, in UTF-16 too."""
    if b"\0" in raw:
        raw = raw.replace(b"\0", b"")
    return _NAMES_A_RECORD.search(raw) is not None


def read_leniently(stream: str, raw: bytes, reason: str) -> Unreadable:
    """The unreadable record, with what its bytes still say of it. Of several records in one text
    nothing is taken: they may be about several entities.
    """
    if len(_HEADERS.findall(raw)) > 1 or len(_KEY.findall(raw)) > 1:
        return Unreadable(stream, raw, reason)
    place = {name: _value(value) for name, value in _ENTRY.findall(raw)}
    offset = -1
    with suppress(ValueError):
        offset = int(place.get(b"offset") or "")
    return Unreadable(
        stream,
        raw,
        reason,
        _first(_TOKEN, raw),
        _first(_KEY, raw),
        _bounded(place.get(b"partition"), MAX_NAME_CHARS),
        offset if 0 <= offset <= MAX_OFFSET else -1,
        _class(raw),
    )


def _first(name: re.Pattern[bytes], raw: bytes) -> str | None:
    found = name.search(raw)
    return None if found is None else _bounded(_value(found[1]), MAX_TEXT_CHARS)


def _bounded(text: str | None, most_chars: int) -> str | None:
    """The text, if a store can hold it."""
    return text if text and "\0" not in text and len(text) <= most_chars else None


def _value(raw: bytes) -> str | None:
    """A text, or a number by its digits; None for what is no text."""
    try:
        return _text(raw) if raw[:1] == b'"' else raw.decode()
    except ValueError:
        return None


def _class(raw: bytes) -> str:
    found = _CLASS.search(raw)
    text = None if found is None else _bounded(_value(found[1]), MAX_NAME_CHARS)
    name = short_identity(text) if text else ""
    return "" if name == ANY_CLASS else name
