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

_VALUE: Final = re.compile(rb"""[^<>"']*+(?:"[^"<]*+"|'[^'<]*+')""")
"""What stands before the next value of a tag, and the value."""
_ENDS: Final = {b"<!--": b"-->", b"<![C": b"]]>", b"<?": b"?>"}
"""How what hides a `<` begins, and how it ends."""
_HIDES: Final = re.compile(rb"<!--|<!\[C|<\?")
_OTHERS: Final = bytes(set(range(256)) - set(b"<="))
_PER_ELEMENT: Final = 4
_MOST_HIDDEN: Final = 100_000
"""Of what hides markup: whoever takes it out of a document does so one by one."""
_MANY_ELEMENTS: Final = "more than {:,} elements"
_WINDOW: Final = 64 * 1024


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
    if _elements(raw, limits.max_elements) > limits.max_elements:
        raw = _without_hidden(raw)
        if _elements(raw, limits.max_elements) > limits.max_elements:
            raise XmlError(_MANY_ELEMENTS.format(limits.max_elements))
    most = _PER_ELEMENT * limits.max_elements
    signs = b"".join(raw[at : at + _WINDOW].translate(None, _OTHERS) for at in _windows(raw))
    values = signs.count(b"=")
    if values <= most and b"=" * (limits.max_attributes + 1) not in signs:
        return
    total = 0
    for part in _without_hidden(raw).split(b"<"):
        at_most = part.count(b"=")
        if at_most > limits.max_attributes or (values > most and at_most):
            count = _attributes(part, limits.max_attributes + 1)
            if count > limits.max_attributes:
                raise XmlError(f"more than {limits.max_attributes:,} attributes on an element")
            total += count
            if total > most:
                raise XmlError(f"more than {most:,} attributes")


def _windows(raw: bytes) -> range:
    """Where windows of a document begin. While one call looks at all of it no other thread runs."""
    return range(0, len(raw), _WINDOW)


def _elements(raw: bytes, most: int) -> int:
    """How many elements begin in a document that hides no `<`; else, how many at most. Raises
    `XmlError` where there are more than `most` in any case, and where too much hides.
    """
    elements = hidden = 0
    for at in _windows(raw):
        # What begins in this window may end with the first byte of the next one.
        end = at + _WINDOW + 1
        hides = raw.count(b"<!", at, end) + raw.count(b"<?", at, end)
        hidden += hides
        elements += raw.count(b"<", at, end - 1) - raw.count(b"</", at, end) - hides
        if elements > most and not hidden:
            raise XmlError(_MANY_ELEMENTS.format(most))
    if hidden > _MOST_HIDDEN:
        raise XmlError(f"more than {_MOST_HIDDEN:,} comments, CDATA sections and the like")
    return elements


def _attributes(part: bytes, most: int) -> int:
    """How many attributes a tag has, after its `<` and up to the next one. Counts up to `most`."""
    if part.startswith(b"/"):
        return 0
    count = at = 0
    while count < most and (value := _VALUE.match(part, at)) is not None:
        at = value.end()
        count += 1
    return count


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
