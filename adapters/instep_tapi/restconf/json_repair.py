"""Reads an answer in which single values are no JSON: NaN, half a surrogate pair, a byte of another
encoding, a comma too many. One bad value must not cost all others (A17). Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from instep_tapi.restconf.json_bounds import decode_bounded
from instep_tapi.wire.framing import BYTE_ORDER_MARK

__all__ = ["RepairedDocument", "repair"]

_MOST_VALUES: Final = 1_000
"""With more bad values, the answer as a whole is no JSON."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|,(?=\s*[\]}])|[^\s",:\[\]{}]+', re.DOTALL)
_NEEDLESS: Final = b","
"""A comma behind the last member or item. It is read as if it were not there."""
_PLAIN: Final = re.compile(rb'"[ !#-\[\]-~]*"').fullmatch
_BARE: Final = re.compile(rb"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?").fullmatch
_MARK: Final = "\ue000instep:{}\ue000"
_FOUND: Final = re.compile('"\ue000instep:(\\d+)\ue000"'.encode())
_text: Final = msgspec.json.Decoder(str).decode


class RepairedDocument(msgspec.Struct, frozen=True):
    """A document in which a mark stands for each bad value."""

    document: dict[str, Any]
    values: list[bytes]
    """The bad values as they came, by the number of their marks."""
    commas: int = 0
    """How many commas stand behind a last member or item."""

    def marks(self, content: Any) -> set[int]:
        """The numbers of the bad values in a part of the document."""
        return {int(number) for number in _FOUND.findall(msgspec.json.encode(content))}

    def original(self, content: Any) -> bytes:
        """The JSON of a part of the document, with the bad values as they came."""
        return _FOUND.sub(lambda mark: self.values[int(mark[1])], msgspec.json.encode(content))


def repair(body: bytes) -> RepairedDocument | None:
    """The document of an answer that is no JSON; None where more than single values is wrong."""
    values: list[bytes] = []
    commas = 0

    def checked(found: re.Match[bytes]) -> bytes:
        nonlocal commas
        token = found[0]
        if token == _NEEDLESS:
            commas += 1
            return b""
        if _is_value(token) or len(values) > _MOST_VALUES:
            return token
        values.append(token)
        return msgspec.json.encode(_MARK.format(len(values) - 1))

    mended = _TOKEN.sub(checked, body.removeprefix(BYTE_ORDER_MARK))
    if not (values or commas) or len(values) > _MOST_VALUES:
        return None
    try:
        document = decode_bounded(mended)
    except ValueError:
        return None
    return RepairedDocument(document, values, commas) if isinstance(document, dict) else None


def _is_value(token: bytes) -> bool:
    if token[:1] != b'"':
        return _BARE(token) is not None
    if _PLAIN(token):
        return True
    try:
        _text(token)
    except ValueError:
        return False
    return True
