"""Which entities stand below which in the YANG of TAPI (TR-548 3.10.1; v3.2 3.10.3). Pure data.

A global class is identified by its uuid, a local class by a local-id within what contains it.
Whatever else has the name of a class is a reference to an entity, or a copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.names import ANY_CLASS, CONDITION_DETECTOR, strip_module

__all__ = [
    "CONTAINED_CLASSES",
    "CONTEXT",
    "GLOBAL_CLASSES",
    "HISTORY_CLASSES",
    "LOCAL_CLASSES",
    "SERIES_CLASSES",
    "address_element",
    "carried_classes",
    "carried_events",
    "classes_below",
    "contained_class",
    "contained_members",
    "contains",
    "local_identity",
]

CONTEXT: Final = "TAPI_CONTEXT"

_BELOW: Final = {name: place.contains for name, place in CLASS_MODEL.places.items()}
_HELD: Final = frozenset(cls for members in _BELOW.values() for cls in members.values())
LOCAL_CLASSES: Final = frozenset(cls for cls in _HELD if CLASS_MODEL.places[cls].local)
GLOBAL_CLASSES: Final = _HELD - LOCAL_CLASSES
CONTAINED_CLASSES: Final = _HELD.difference(_BELOW[CONTEXT].values())
"""The classes whose entities stand below another entity, which their parent-address names."""
HISTORY_CLASSES: Final = frozenset({"PM_HISTORY_DATA", "HISTORY_DATA"})
"""The classes of what was measured in one period."""
SERIES_CLASSES: Final = HISTORY_CLASSES | {
    name for name, members in _BELOW.items() if not HISTORY_CLASSES.isdisjoint(members.values())
}
"""The classes whose records are periods of measurement: each counts, and not only the last one of
an entity (TR-548 3.9.2.6).
"""
_ANYWHERE: Final = {
    member: cls
    for members in _BELOW.values()
    for member, cls in members.items()
    if cls in GLOBAL_CLASSES
}
_UUID: Final = re.compile(r"(?:.*-)?uuid")


def contained_class(member: str, parent: str) -> str | None:
    """The class of the entities that this member of an entity of class `parent` contains.

    None where it contains none: what has a uuid there is a reference or a copy. `parent` is empty
    at the root of a resource, where any global class may stand; so it is for a class that no
    edition knows.
    """
    return _BELOW.get(parent, _ANYWHERE).get(strip_module(member))


def contains(above: str, below: str) -> bool:
    """Whether entities of the class `below` stand right below those of the class `above`."""
    return below in _BELOW.get(above, {}).values()


def classes_below(above: str) -> frozenset[str]:
    """The classes of which entities may stand below one of this class, at any depth."""
    found: set[str] = set()
    wanted = {above}
    while wanted:
        wanted = {cls for one in wanted for cls in _BELOW.get(one, {}).values()} - found
        found |= wanted
    return frozenset(found)


def carried_classes(classes: Iterable[str]) -> frozenset[str]:
    """The classes of which a stream states each entity: those it declares, all global ones for
    ANY_CLASS or none declared. A local class counts only where it is declared by name: otherwise
    its entities come within what contains them.
    """
    stated = frozenset(classes)
    if not stated or ANY_CLASS in stated:
        return stated | GLOBAL_CLASSES | {CONTEXT}
    return stated


def carried_events(classes: Iterable[str]) -> frozenset[str]:
    """The classes of a stream whose entities detect events: each event time counts (3.11.1)."""
    stated = frozenset(classes)
    carries_all = not stated or ANY_CLASS in stated
    return frozenset({CONDITION_DETECTOR}) if carries_all else stated & {CONDITION_DETECTOR}


def contained_members(carried: frozenset[str]) -> frozenset[str]:
    """The members, without module, that a baseline cuts where these classes are carried."""
    return frozenset(
        member for members in _BELOW.values() for member, cls in members.items() if cls in carried
    )


def address_element(entity_class: str, uuid: str, local_id: str) -> str:
    """The element of a parent-address for an entity with a uuid or, if that is empty, a local-id
    (TR-548 3.10).
    """
    kebab = entity_class.lower().replace("_", "-")
    return f"{kebab}-uuid:{uuid}" if uuid else f"{kebab}-local-id:{local_id}"


def local_identity(parent_address: Sequence[str], local_id: str) -> str:
    """What identifies an entity of a local class as a uuid does: the ids from the nearest uuid
    above it downwards, `<uuid>/<local-id>`; empty where no uuid is stated (TR-548 3.10.1).
    """
    ids = [local_id]
    for element in reversed(parent_address):
        name, _, value = element.partition(":")
        ids.append(value)
        if _UUID.fullmatch(name):
            return "/".join(reversed(ids))
    return ""
