"""Reads XML of peers that may be hostile: no DTD, no entities, no network, bounded in every way."""

from __future__ import annotations

import re
import threading
from functools import cache
from typing import Final

import msgspec
from lxml import etree
from lxml.etree import _Element

from instep.errors import InstepError
from instep_soap.vocabulary import Vocabulary, is_plain

__all__ = ["XmlError", "XmlLimits", "first_children", "read_qname", "read_xml", "tags_known"]

_PROLOG_WITH_DTD: Final = re.compile(
    rb"(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?(?:\s|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL
)
_QUOTED_CHARS: Final = 200
_SMALL_BYTES: Final = 65_536
"""Up to this size a parser is used again: it keeps tables as large as its largest document."""


class XmlError(InstepError):
    """The bytes are no XML, or XML that is not accepted."""

    code = "xml"


class XmlLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a document. Its bytes are bounded before it is read."""

    max_depth: int = 64
    """Most elements within each other."""
    max_elements: int = 100_000
    """Most elements in all."""


def read_xml(raw: bytes, limits: XmlLimits, *, known_bytes: int = 0) -> _Element:
    """Parse a document; returns its root. Comments and processing instructions are left out.

    `known_bytes`: how many of the first bytes are those of a document that `tags_known` knows, but
    for texts in ASCII; they end within the name of a tag.

    Raises `XmlError`.
    """
    plain = known_bytes > 0 or is_plain(raw)
    may_have_dtd = not plain or (not known_bytes and b"<!DOCTYPE" in raw)
    if may_have_dtd:
        prolog = raw.replace(b"\0", b"") if b"\0" in raw[:4] else raw
        if _PROLOG_WITH_DTD.match(prolog):
            raise XmlError("a document type declaration is not accepted")
    try:
        root = _LOCAL.vocabulary.parse(raw, _parse, plain=plain, known_bytes=known_bytes)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise XmlError(f"no XML: {str(error)[:_QUOTED_CHARS]}") from None
    if may_have_dtd and root.getroottree().docinfo.internalDTD is not None:
        raise XmlError("a document type declaration is not accepted")
    if not plain or raw.count(b"<") > min(limits.max_depth, limits.max_elements):
        # Otherwise there are too few tags to exceed a limit.
        _check_bounds(root, limits)
    return root


def tags_known(raw: bytes) -> bool:
    """Whether a document is parsed in this thread, whose names are kept then."""
    return is_plain(raw) and _LOCAL.vocabulary.learns(raw)


def first_children(element: _Element) -> dict[str, _Element]:
    """The children of an element by their names; of those with one name, the first."""
    return {str(one.tag): one for one in reversed(element)}


def read_qname(element: _Element) -> str:
    """The name that the text of an element states, as lxml writes it: ``{namespace}local``.

    Raises `XmlError`: no name, or a prefix that is not declared.
    """
    text = (element.text or "").strip()
    prefix, colon, local = text.rpartition(":")
    namespace = element.nsmap.get(prefix or None, "" if not colon else None)
    if not local or namespace is None or not local.isprintable() or " " in local:
        raise XmlError(f"{text[:_QUOTED_CHARS]!r} is no qualified name")
    return f"{{{namespace}}}{local}" if namespace else local


class _Local(threading.local):
    """What is kept in this thread: what libxml2 has interned, and a parser."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.parser = _new_parser()


def _new_parser() -> etree.XMLParser:
    return etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )


_LOCAL: Final = _Local()


def _parse(raw: bytes) -> _Element:
    return etree.fromstring(raw, _LOCAL.parser if len(raw) <= _SMALL_BYTES else _new_parser())


def _check_bounds(root: _Element, limits: XmlLimits) -> None:
    """Raises `XmlError` for more levels, or more elements, than the limits allow."""
    too_deep, too_many = _bounds(limits)
    if too_deep(root):
        raise XmlError(f"more than {limits.max_depth} elements within each other")
    if too_many(root):
        raise XmlError(f"more than {limits.max_elements:,} elements")


@cache
def _bounds(limits: XmlLimits) -> tuple[etree.XPath, etree.XPath]:
    """Whether a document has more levels, or more elements, than the limits allow."""
    return (
        etree.XPath(f"boolean({'/*' * (limits.max_depth + 1)})"),
        etree.XPath(f"boolean((//*)[{limits.max_elements + 1}])"),
    )
