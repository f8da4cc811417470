"""The bounds of a document, looked at in its bytes before a tree is made of it.

A tree takes some hundred bytes for each element and each attribute, and what reads it looks for a
namespace among all that are declared around an element: a small document may cost a lot of both.

Each check counts first what may be too many, which takes no time worth mention, and looks closer
only if it is. A document is in UTF-8 here, so a `<` is a `<`, and none is within a value: whoever
looks from one to the next sees one tag and the text after it. All of it takes linear time.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from instep_soap.errors import XmlError

__all__ = ["XmlLimits", "check_bytes"]

_TAG: Final = re.compile(rb"""<[^<>"']*+(?:(?:"[^"<]*+"|'[^'<]*+')[^<>"']*+)*+>""")
_VALUE: Final = re.compile(rb"""=\s*+(?:"[^"<]*+"|'[^'<]*+')""")
_ENDS: Final = {b"<!--": b"-->", b"<![C": b"]]>", b"<?": b"?>"}
"""How what hides a `<` begins, and how it ends."""
_HIDES: Final = re.compile(rb"<!--|<!\[C|<\?")
_OTHERS: Final = bytes(set(range(256)) - set(b"<="))
_PER_ELEMENT: Final = 4


class XmlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a document. Its bytes are bounded before it is read."""

    max_depth: int = 64
    """Most elements within each other."""
    max_elements: int = 100_000
    """Most elements in all; four times as many attributes."""
    max_attributes: int = 256
    """Most attributes of an element, declarations of namespaces among them."""
    max_namespaces: int = 1_024
    """Most declarations of namespaces that apply to an element: its own and those around it."""


def check_bytes(raw: bytes, limits: XmlLimits) -> None:
    """Check the number of elements in a document, and of attributes. Raises `XmlError`."""
    tags, values = raw.count(b"<"), raw.count(b"=")
    most = _PER_ELEMENT * limits.max_elements
    if (
        _elements(raw, tags) <= limits.max_elements
        and values <= most
        and b"=" * (limits.max_attributes + 1) not in raw.translate(None, _OTHERS)
    ):
        return
    shown = _without_hidden(raw)
    if _elements(shown, shown.count(b"<")) > limits.max_elements:
        raise XmlError(f"more than {limits.max_elements:,} elements")
    for part in shown.split(b"<"):
        if part.count(b"=") > limits.max_attributes < _attributes(part):
            raise XmlError(f"more than {limits.max_attributes:,} attributes on an element")
    if shown.count(b"=") > most and sum(map(_count, _TAG.findall(shown))) > most:
        raise XmlError(f"more than {most:,} attributes")


def _elements(raw: bytes, tags: int) -> int:
    """How many elements begin in a document that hides no `<`; else, how many at most."""
    return tags - raw.count(b"</") - raw.count(b"<!") - raw.count(b"<?")


def _attributes(part: bytes) -> int:
    """How many attributes a tag has, after its `<` and up to the next one; of a start tag that has
    no end, how many at most.
    """
    if part.startswith(b"/"):
        return 0
    tag = _TAG.match(b"<" + part)
    return part.count(b"=") if tag is None else _count(tag[0])


def _count(tag: bytes) -> int:
    return sum(1 for _ in _VALUE.finditer(tag))


def _without_hidden(raw: bytes) -> bytes:
    """A document without comments, CDATA sections and processing instructions. One without an end
    stays, with all that follows: it is no XML.
    """
    parts: list[bytes] = []
    at = 0
    while (begin := _HIDES.search(raw, at)) is not None:
        closing = _ENDS[begin[0]]
        end = raw.find(closing, begin.end())
        if end < 0:
            break
        parts.append(raw[at : begin.start()])
        at = end + len(closing)
    parts.append(raw[at:])
    return b"".join(parts)
