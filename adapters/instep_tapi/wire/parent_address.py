"""Reads a parent-address in any spelling, as TR-548 3.10 has it: a list of
`<class>-uuid:<uuid>` or `<class>-local-id:<id>`, highest first (TR-548 v3.1 3.10.3). Pure.

TR-548 v1.1 leaves form and order to an example, so other spellings are met. What can be read is
brought into that form, and counted; what cannot is left as it stands, and counted as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from instep_tapi.facts.containment import address_element, contains
from instep_tapi.facts.names import OBJECT_CLASSES, class_of

__all__ = ["ORDER", "SPELLING", "canonical_address"]

SPELLING: Final = "parent-address-spelling"
ORDER: Final = "parent-address-order"

_USUAL_BYTES: Final = 1_024
"""Longest addresses that are remembered."""
_ITEM: Final = rb'"[a-z][a-z0-9-]*-(?:uuid:[^\s"\\,]+|local-id:[^"\\]+)"'
_BLANKS: Final = rb"[ \t\r\n]*"
_IN_FORM: Final = re.compile(
    rb"\[%b(?:%b%b(?:,%b%b%b)*)?\]" % (_BLANKS, _ITEM, _BLANKS, _BLANKS, _ITEM, _BLANKS)
).fullmatch
_ELEMENT_NAME: Final = re.compile(rb'"([a-z0-9-]+)-(?:uuid|local-id):').findall
_CONTEXTS: Final = frozenset({"TAPI_CONTEXT", "CONTEXT"})
_ID: Final = re.compile(r"(?P<name>.+?)[-_](?P<kind>uuid|local[-_]id)", re.IGNORECASE).fullmatch

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode

_Element = tuple[str, str]
"""An element in the form of TR-548, and its class; empty where that is not known."""


def canonical_address(raw: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The JSON text of a parent-address in the form of TR-548, and the deviations of what it was.
    The same text where it has that form, or cannot be read.
    """
    return _canonical(raw) if len(raw) <= _USUAL_BYTES else _read(raw)


def _read(raw: bytes) -> tuple[bytes, tuple[str, ...]]:
    if raw == b"null":
        # As none at all.
        return raw, ()
    if _IN_FORM(raw):
        classes = [class_of(name.decode()) for name in _ELEMENT_NAME(raw)]
        if not _is_reversed(classes):
            return raw, ()
        return _encode(_decode(raw)[::-1]), (ORDER,)
    try:
        elements = list(_elements(_decode(raw)))
    except (ValueError, RecursionError, UnicodeError):
        return raw, (SPELLING,)
    if not elements:
        return raw, (SPELLING,)
    deviations: tuple[str, ...] = (SPELLING,)
    if _is_reversed([entity_class for _, entity_class in elements]):
        elements.reverse()
        deviations += (ORDER,)
    return _encode([element for element, _ in elements]), deviations


_canonical: Final = lru_cache(maxsize=16_384)(_read)
"""The entities of one parent state one address. Bounded in bytes, too: long ones are not kept."""


def _elements(value: Any) -> Iterator[_Element]:
    """The elements of an address in any spelling. Raises `ValueError` where one cannot be read."""
    if isinstance(value, list):
        for item in value:
            yield from _elements(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield _element(name, item if isinstance(item, str) else "")
    elif isinstance(value, str) and value.strip():
        yield from _of_text(value.strip())
    else:
        raise ValueError("neither a text nor a list")


def _of_text(text: str) -> Iterator[_Element]:
    if "/" in text and "=" in text:
        # A path of RESTCONF (RFC 8040 3.5.3): what has no key is a container.
        for step in text.split("/"):
            name, equals, key = step.partition("=")
            if equals and class_of(name) not in _CONTEXTS:
                yield _element(name, unquote(key))
        return
    for part in text.split(","):
        name, mark, value = part.partition("=" if "=" in part else ":")
        if mark == ":" and name.strip().startswith("tapi-") and ":" in value:
            name, _, value = value.partition(":")
        if not mark:
            # A uuid alone, as the text of the YANG may be read: nobody knows of which class.
            name, value = "", part
        yield _element(name, value)


def _element(name: str, value: str) -> _Element:
    name, value = name.strip(), value.strip()
    if not value or "\0" in value:
        raise ValueError("an element without an id")
    if not name:
        return value, ""
    found = _ID(name)
    member = (found["name"] if found else name).lower().replace("_", "-")
    entity_class = class_of(member)
    if found is None and entity_class not in OBJECT_CLASSES:
        raise ValueError(f"{name} names no class")
    if found is not None and not found["kind"].lower().startswith("uuid"):
        return address_element(entity_class, "", value), entity_class
    return address_element(entity_class, value, ""), entity_class


def _is_reversed(classes: Sequence[str]) -> bool:
    """Whether each element contains the one before it, and not one the one after it."""
    pairs = list(pairwise(classes))
    return bool(pairs) and all(
        contains(above, below) and not contains(below, above) for below, above in pairs
    )
