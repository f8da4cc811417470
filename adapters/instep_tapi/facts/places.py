"""What one entity states about its place and about others: pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from instep.model.entities import folded_uuid
from instep.model.storable import LONGEST_UUID_CHARS
from instep_tapi.facts.members import UNREADABLE, read_json

__all__ = ["Place", "Reference", "read_places"]

Place: TypeAlias = tuple[int, int, str, str]
"""One entity on the way up from another: place, distance, name, uuid. `place` is 0 for the
parent-address, and counts the further ones of an entity that stands in several places; `distance`
is 0 for the entity itself, 1 for its parent, and so on."""
Reference: TypeAlias = tuple[str, str, str]
"""A `*-uuid` leaf: the member that contains it (role), its name, and the uuid."""


class _Envelope(msgspec.Struct, rename="kebab", gc=False):
    parent_address: msgspec.Raw = msgspec.Raw()
    further_parent_addresses: msgspec.Raw = msgspec.Raw()


_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_USUAL_BYTES: Final = 4_096
"""Longest addresses that are remembered."""


def read_places(uuid: str, envelope: bytes, body: bytes) -> tuple[list[Place], list[Reference]]:
    """The places and references of an entity, sorted; none where it cannot be read. Their uuids are
    in lower case: they are compared, and providers spell one uuid in both (RFC 4122 3).
    """
    places = list(_places(*_addresses(envelope)))
    refers, has_id = b'-uuid"' in body, not uuid and b'"local-id"' in body
    document = read_json(body) if refers or has_id else None
    if has_id and isinstance(document, dict):
        uuid = _local_uuid(document.get("local-id"), places)
    if uuid and len(uuid) <= LONGEST_UUID_CHARS:
        places.insert(0, (0, 0, "", _folded(uuid)))
    return places, _references(document, _named(body)) if refers else []


def _named(body: bytes) -> int:
    """At least so many names as end in "-uuid"; -1 where they cannot be counted."""
    return -1 if b"\\" in body else body.count(b'-uuid"')


def _addresses(envelope: bytes) -> tuple[bytes, bytes]:
    """The parent-address and the further ones, as JSON."""
    try:
        read = _envelope(envelope)
    except UNREADABLE:
        return b"", b""
    return bytes(read.parent_address), bytes(read.further_parent_addresses)


def _places(address: bytes, further: bytes) -> tuple[Place, ...]:
    known = len(address) + len(further) <= _USUAL_BYTES
    return _known_places(address, further) if known else _read_places(address, further)


def _read_places(address: bytes, further: bytes) -> tuple[Place, ...]:
    others = read_json(further) if further else None
    addresses = [read_json(address), *(others if isinstance(others, list) else ())]
    return tuple(
        (place, distance, *element)
        for place, one in enumerate(addresses)
        for distance, element in enumerate(_upwards(one), 1)
    )


_known_places: Final = lru_cache(maxsize=8_192)(_read_places)
"""The entities of one parent state one address. Bounded in bytes, too: long ones are not kept."""


def _upwards(address: Any) -> list[tuple[str, str]]:
    """Name and uuid of each element of an address, from the parent up."""
    upwards: list[tuple[str, str]] = []
    above = ""
    for element in address if isinstance(address, list) else ():
        if not isinstance(element, str) or not element or "\0" in element:
            continue
        name, colon, value = element.partition(":")
        if not colon:
            name, value = "", element
        if name.endswith("local-id") and above:
            # Identified by its ids from the nearest uuid down.
            value = f"{above}/{value}"
        if len(value) > LONGEST_UUID_CHARS:
            continue
        above = _folded(value)
        upwards.append((name, above))
    return upwards[::-1]


def _folded(place: str) -> str:
    """A uuid, or the place of what has none, as it is compared."""
    if "/" not in place:
        return folded_uuid(place)
    uuid, slash, local = place.partition("/")
    return f"{folded_uuid(uuid)}{slash}{local}"


def _local_uuid(local_id: Any, places: list[Place]) -> str:
    if not isinstance(local_id, str) or not places or "\0" in local_id:
        return ""
    place, _, _, parent = places[0]
    return f"{parent}/{local_id}" if place == 0 else ""


def _references(document: Any, named: int) -> list[Reference]:
    """The references of a document in which `named` names end in "-uuid": what follows the last of
    them is not looked at. -1 if they were not counted.
    """
    escaped = named < 0
    found: set[Reference] = set()
    left: list[tuple[str, Any]] = [("", document)]
    while left and named:
        role, value = left.pop()
        if type(value) is list:
            left += [(role, inner) for inner in value if type(inner) is not str]
            continue
        if type(value) is not dict:
            continue
        for name, inner in value.items():
            kind = type(inner)
            if name[-5:] == "-uuid":
                named -= 1
                if kind is str and 0 < len(inner) <= LONGEST_UUID_CHARS - len(role) - len(name):
                    found.add((role, name, folded_uuid(inner)))
            if kind is dict or kind is list:
                left.append((name, inner))
    # A database of the field stores no NUL, and JSON has it only escaped.
    return sorted(one for one in found if "\0" not in "".join(one)) if escaped else sorted(found)
