"""The encoding of a document, as RFC 7303 3 says: the byte order mark counts, else the charset of
Content-Type, else what the document says itself, else it is UTF-8.

Documents are read, kept and delivered in UTF-8: whoever gets one later has no Content-Type of it.
"""

from __future__ import annotations

import codecs
import re
from encodings.aliases import aliases
from functools import lru_cache
from typing import Final

from instep_soap.errors import CharsetError, UnknownCharsetError

__all__ = ["as_utf8"]

_QUOTED_CHARS: Final = 40
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf_32_le"),
    (codecs.BOM_UTF32_BE, "utf_32_be"),
    (codecs.BOM_UTF8, "utf_8"),
    (codecs.BOM_UTF16_LE, "utf_16_le"),
    (codecs.BOM_UTF16_BE, "utf_16_be"),
)
"""A longer one that begins with a shorter one comes first."""
_BEGINNINGS: Final = (
    (b"<\0\0\0", "utf_32_le"),
    (b"\0\0\0<", "utf_32_be"),
    (b"<\0", "utf_16_le"),
    (b"\0<", "utf_16_be"),
)
"""How a document without a mark begins (XML 1.0, appendix F)."""
_DECLARATION: Final = re.compile(rb"\s*+<\?xml\s[^>]*+>")
_STATED: Final = re.compile(rb"""\sencoding\s*+=\s*+["']([^"'>]*+)["']""")

# Of the codecs of Python, those that are encodings of text and run in linear time. UTF-7 is not
# among them: it hides markup from whoever looks at the bytes.
_ASCII_PLUS: Final = frozenset(
    {"utf_8", "ascii", "latin_1", "koi8_r", "koi8_u"}
    | {f"iso8859_{n}" for n in range(2, 17) if n != 12}
    | {f"cp125{n}" for n in range(9)}
)
"""Here, bytes that are ASCII mean what they mean in ASCII."""
_OTHERS: Final = frozenset(
    {"utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be"}
    | {"cp037", "cp273", "cp500", "cp1026", "cp1140"}
    | {"gb2312", "gbk", "gb18030", "big5", "euc_kr", "euc_jp", "shift_jis", "cp932", "iso2022_jp"}
)
_CODECS: Final = {
    alias.replace("_", "-"): codec
    for codec in _ASCII_PLUS | _OTHERS
    for alias in (codec, *(alias for alias, other in aliases.items() if other == codec))
}
"""By their names in lower case, with hyphens. Python's own look-up keeps each name that it is asked
for, and strangers may ask for any.
"""
_PLAIN: Final = frozenset(name for name, codec in _CODECS.items() if codec in _ASCII_PLUS)
_UTF8: Final = frozenset(name for name, codec in _CODECS.items() if codec == "utf_8")


def as_utf8(raw: bytes, charset: str = "") -> bytes:
    """A document in UTF-8, without a mark. If it begins with an XML declaration, this states no
    other encoding that would matter. The bytes are the same where they are so already.

    Args:
        raw: A document.
        charset: What Content-Type says, in lower case; empty: nothing.

    Raises:
        UnknownCharsetError: The encoding is none that is read here.
        CharsetError: The bytes are not in it.
    """
    if _is_usual(raw, charset):
        return raw
    for mark, codec in _MARKS:
        if raw.startswith(mark):
            return _decoded(raw[len(mark) :], codec, "as its byte order mark says")
    if charset:
        return _in(raw, charset, "as Content-Type says")
    for beginning, codec in _BEGINNINGS:
        if raw.startswith(beginning):
            return _decoded(raw, codec, "as its first bytes say")
    stated = _stated(raw)
    return _in(raw, stated or "utf-8", "as it says" if stated else "and states nothing else")


def _in(raw: bytes, name: str, why: str) -> bytes:
    """A document without a mark in UTF-8. `name`: the encoding that it is said to have."""
    codec = _CODECS.get(name.strip().replace("_", "-"))
    if codec is None:
        raise UnknownCharsetError(
            f"the charset {name[:_QUOTED_CHARS]!r} is not read here: send UTF-8"
        )
    if codec in _ASCII_PLUS and raw.isascii():
        return raw if _stated(raw) in _PLAIN else _undeclared(raw)
    if codec in ("utf_16", "utf_32"):
        # Without a mark it is big-endian (RFC 2781 4.3), unless it begins otherwise.
        codec += "_le" if raw[:1] == b"<" else "_be"
    return _decoded(raw, codec, why)


def _decoded(raw: bytes, codec: str, why: str) -> bytes:
    try:
        text = raw.decode(codec)
        encoded = raw if codec == "utf_8" else text.encode()
    except UnicodeError:
        encoded = b""
    if raw and not encoded.lstrip().startswith(b"<"):
        raise CharsetError(f"the document is not in {codec.replace('_', '-')}, {why}")
    return _undeclared(encoded)


def _stated(raw: bytes) -> str:
    """The encoding that an XML declaration states, in lower case; empty: none."""
    declaration = _DECLARATION.match(raw)
    stated = _STATED.search(declaration[0]) if declaration is not None else None
    return "" if stated is None else stated[1].decode(errors="replace").lower()


def _undeclared(raw: bytes) -> bytes:
    """A document in UTF-8 that declares no other encoding."""
    stated = _stated(raw)
    if not stated or stated in _UTF8:
        return raw
    declaration = _DECLARATION.match(raw)
    return raw if declaration is None else raw[declaration.end() :]


def _is_usual(raw: bytes, charset: str) -> bool:
    """Whether a document is as nearly all are, and as `as_utf8` would return it; only for speed."""
    if raw[:1] != b"<":
        return False
    stated = ""
    if not raw[1:2].isalpha():
        # It does not begin with its root.
        if raw[1:6] != b"?xml ":
            return False
        stated = _stated_in(raw[: raw.find(b">") + 1])
    ascii_only = raw.isascii()
    usual = _PLAIN if ascii_only else _UTF8
    if (charset and charset not in usual) or (stated and stated not in usual):
        return False
    if ascii_only:
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


_stated_in: Final = lru_cache(maxsize=64)(_stated)
"""Of a declaration: nearly all are equal."""
