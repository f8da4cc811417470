"""Reads XML of peers that may be hostile: no DTD, no entities, no network, bounded in every way."""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from lxml import etree
from lxml.etree import _Element

from instep_soap.charset import as_utf8
from instep_soap.errors import XmlError
from instep_soap.vocabulary import Vocabulary, parse_apart
from instep_soap.xml_bounds import XmlLimits, check_bytes

__all__ = ["XmlError", "XmlLimits", "first_children", "read_qname", "read_xml", "tags_known"]

_PROLOG_WITH_DTD: Final = re.compile(rb"(?:\s|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE", re.DOTALL)
_QUOTED_CHARS: Final = 200
_ATTRIBUTE_BYTES: Final = len(' a=""')
"""The shortest attribute."""
_SMALL_BYTES: Final = 65_536
"""Up to this size a parser is used again: it keeps tables as large as its largest document."""

_log = logging.getLogger("instep.soap")


def read_xml(
    raw: bytes, limits: XmlLimits, *, known_bytes: int = 0, apart: bool = False
) -> _Element:
    """Parse a document; returns its root. Comments and processing instructions are left out.

    Args:
        raw: The document, in an encoding that it states itself; see `as_utf8`.
        limits: Its bounds.
        known_bytes: How many of the first bytes are those of a document that `tags_known` knows,
            but for texts in ASCII; they end within the name of a tag. The document is in UTF-8.
        apart: Whether this is a thread of which others than the caller's get the tree: see
            `instep_soap.vocabulary`.

    Raises `XmlError`.
    """
    if not known_bytes:
        raw = as_utf8(raw)
    # At least as many as there are; to count in what is known takes longer than to bound it.
    tags = raw.count(b"<")
    values = raw.count(b"=", known_bytes) + known_bytes // _ATTRIBUTE_BYTES
    if tags > limits.max_elements or values > limits.max_attributes:
        check_bytes(raw, limits)
    may_have_dtd = not known_bytes and b"<!DOCTYPE" in raw
    if may_have_dtd and _PROLOG_WITH_DTD.match(raw):
        raise XmlError("a document type declaration is not accepted")
    try:
        root = parse_apart(raw, _parse) if apart else _parsed_here(raw, known_bytes)
    except (etree.XMLSyntaxError, ValueError) as error:
        # The words of the parser are for us, not for the peer.
        _log.debug("no XML: %s", str(error)[:_QUOTED_CHARS])
        raise XmlError("no XML: it is not well-formed") from None
    if may_have_dtd and root.getroottree().docinfo.internalDTD is not None:
        raise XmlError("a document type declaration is not accepted")
    if tags > limits.max_depth and _is_deeper(root, limits.max_depth):
        raise XmlError(f"more than {limits.max_depth} elements within each other")
    if values > limits.max_namespaces < raw.count(b"xmlns"):
        _check_namespaces(root, limits.max_namespaces)
    return root


def tags_known(raw: bytes) -> bool:
    """Whether a document in UTF-8 is parsed in this thread, whose names are kept then."""
    return _LOCAL.vocabulary.learns(raw)


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
    """What is kept in this thread: what libxml2 has interned, a parser, and paths."""

    def __init__(self) -> None:
        self.vocabulary = Vocabulary()
        self.parser = _new_parser()
        self.deeper: dict[int, etree.XPath] = {}
        """Depth → whether a document is deeper."""


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


def _parsed_here(raw: bytes, known_bytes: int) -> _Element:
    return _LOCAL.vocabulary.parse(raw, _parse, known_bytes=known_bytes)


def _parse(raw: bytes) -> _Element:
    return etree.fromstring(raw, _LOCAL.parser if len(raw) <= _SMALL_BYTES else _new_parser())


def _is_deeper(root: _Element, depth: int) -> bool:
    """Whether there are more than so many elements within each other."""
    path = _LOCAL.deeper.get(depth)
    if path is None:
        path = _LOCAL.deeper[depth] = etree.XPath(f"boolean({'/*' * (depth + 1)})")
    return bool(path(root))


def _check_namespaces(root: _Element, most: int) -> None:
    """Check how many declarations of namespaces apply to an element at most. Raises `XmlError`."""
    declared = 0
    for event, _ in etree.iterwalk(root, events=("start-ns", "end-ns")):
        declared += 1 if event == "start-ns" else -1
        if declared > most:
            raise XmlError(f"more than {most:,} declarations of namespaces apply to an element")
