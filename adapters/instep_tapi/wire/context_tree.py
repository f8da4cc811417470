"""Walks a TAPI context as a tree and gives its entities, as a stream of the context would state
them (TR-548 3.9.1). Pure.

An entity is what stands where the YANG contains entities of its class (`containment`). Anything
else with a uuid is a reference or a copy, and states nothing (A13). An entity is stated without the
entities below it that have records of their own; their identifiers stay, and whatever no stream
carries stays as it is. Its place is its parent-address (TR-548 3.10, 3.10.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from instep_tapi.facts.containment import (
    CONTEXT,
    GLOBAL_CLASSES,
    LOCAL_CLASSES,
    address_element,
    contained_class,
    local_identity,
)
from instep_tapi.facts.names import (
    CONDITION_DETECTOR,
    MAX_TEXT_CHARS,
    OBJECT_CLASSES,
    class_of,
    strip_module,
)

__all__ = ["Entity", "UnidentifiedElement", "entities", "entity_content"]

MAX_DEPTH = 64
_CONTEXT_MEMBERS = ("", "context")
"""The root of a document in the style of the reference implementation has no name."""
_OF_STREAMING = ("stream-context", "stream-admin-context")
"""They are about the streams, not about what these state: how far each client has read, too."""
_ACTIVE_CONDITION = "active-condition"
"""A standing alarm in tapi-fm of 2.4.1 and later, which a stream states as its detector."""


class Entity(msgspec.Struct, frozen=True, gc=False):
    """One entity of the tree."""

    uuid: str
    """Empty for a local class."""
    local_id: str
    entity_class: str
    parent_address: tuple[str, ...]
    """``<class>-uuid:<uuid>`` or ``<class>-local-id:<id>``, highest first, context left out."""
    content: dict[str, Any]
    """Its members; of the entities below it that are cut, the identifiers."""

    @property
    def identity(self) -> str:
        """What identifies it in its class: its uuid, or its place from the nearest uuid down."""
        if self.uuid:
            return self.uuid
        return local_identity(self.parent_address, self.local_id) or "+".join(self.address)

    @property
    def address(self) -> tuple[str, ...]:
        """The parent-address of what is below it."""
        if self.entity_class == CONTEXT:
            return ()
        return (
            *self.parent_address,
            address_element(self.entity_class, self.uuid, self.local_id),
        )

    @property
    def is_identifier(self) -> bool:
        """Whether nothing but its identifier is stated: it exists."""
        return len(self.content) == 1


class UnidentifiedElement(NamedTuple):
    """What stands where entities of a class are contained, without an identifier that can be read:
    any of them may be meant (A17).
    """

    entity_class: str
    """Empty where it is none of a class, but entities may stand below it."""
    content: Any


def entities(
    document: Any,
    cut: frozenset[str] = GLOBAL_CLASSES,
    unidentified: list[UnidentifiedElement] | None = None,
) -> Iterator[Entity]:
    """Every entity of a RESTCONF answer, parents before children; those of the classes in `cut` are
    cut out of what contains them. What should be one and is not is added to `unidentified`.

    Raises `ValueError` for a tree deeper than `MAX_DEPTH`, or an address that no store could hold.
    """
    try:
        for one in _walk(document, "", "", (), MAX_DEPTH, cut):
            if isinstance(one, Entity):
                yield one
            elif unidentified is not None:
                unidentified.append(one)
    except RecursionError:
        raise ValueError("an entity is nested too deeply") from None


def entity_content(value: dict[str, Any], entity_class: str, cut: frozenset[str]) -> dict[str, Any]:
    """The content of one entity that stands alone; see `Entity.content`. Raises `ValueError` where
    it is nested too deeply.
    """
    try:
        return _without(value, entity_class, cut)
    except RecursionError:
        raise ValueError("an entity is nested too deeply") from None


def _walk(
    value: Any, member: str, parent: str, address: tuple[str, ...], depth: int, cut: frozenset[str]
) -> Iterator[Entity | UnidentifiedElement]:
    if not isinstance(value, (dict, list)):
        contained = contained_class(member, parent) if parent and value is not None else None
        if contained is not None:
            yield UnidentifiedElement(contained, value)
        return
    if depth == 0:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        contained = contained_class(member, parent)
        for item in value:
            if contained is not None and _lacks_identity(item, contained):
                yield UnidentifiedElement(contained, item)
            else:
                yield from _walk(item, member, parent, address, depth - 1, cut)
        return
    found = _entity_class(value, member, parent)
    name = _name_of(value, found)
    if name is not None and not _is_name(name):
        yield UnidentifiedElement(found or "", value)
        return
    if found is not None:
        uuid, local_id = ("", name or "") if found in LOCAL_CLASSES else (name or "", "")
        entity = Entity(uuid, local_id, found, address, _without(value, found, cut))
        yield entity
        parent, address = found, _within_limit(entity.address)
    elif isinstance(value.get("uuid"), str):
        return
    elif name is not None:
        address = _within_limit((*address, address_element(class_of(member), "", name)))
    for name, inner in value.items():
        yield from _walk(inner, name, parent, address, depth - 1, cut)


def _entity_class(value: dict[str, Any], member: str, parent: str) -> str | None:
    """The class of the entity that this object is; None where it is none: a reference is no
    statement (A13).
    """
    found = contained_class(member, parent)
    if found in LOCAL_CLASSES:
        return found if isinstance(value.get("local-id"), str) else None
    if not isinstance(value.get("uuid"), str):
        return None
    if found is None and not parent and strip_module(member) in _CONTEXT_MEMBERS:
        return CONTEXT
    if found is None and strip_module(member) == _ACTIVE_CONDITION:
        return CONDITION_DETECTOR
    if found is None:
        # A class of a later version; a known one does not stand here, and a uuid alone refers.
        later = class_of(member)
        return None if later in OBJECT_CLASSES or len(value) == 1 else later
    return found


def _without(value: dict[str, Any], entity_class: str, cut: frozenset[str]) -> dict[str, Any]:
    """The members of an entity, with identifiers in the place of what is cut."""
    return {
        name: _kept(inner, name, entity_class, cut)
        for name, inner in value.items()
        if entity_class != CONTEXT or strip_module(name) not in _OF_STREAMING
    }


def _kept(value: Any, member: str, parent: str, cut: frozenset[str]) -> Any:
    """What is stated of a member; of an entity that is cut out its identifier (A13)."""
    if isinstance(value, list):
        contained = contained_class(member, parent)
        if contained in cut:
            value = [item for item in value if not _lacks_identity(item, contained)]
        return [_kept(item, member, parent, cut) for item in value]
    if not isinstance(value, dict):
        return value
    found = _entity_class(value, member, parent)
    if found is None:
        return value if "uuid" in value else _without(value, parent, cut)
    if found in cut and contained_class(member, parent) is not None:
        name = "local-id" if found in LOCAL_CLASSES else "uuid"
        return {name: value[name]}
    return _without(value, found, cut)


def _name_of(value: dict[str, Any], entity_class: str | None) -> str | None:
    """What identifies an entity of this class, or something that is none and has a local-id; None:
    nothing, as in a reference.
    """
    if entity_class is None and isinstance(value.get("uuid"), str):
        return None
    name = value.get("uuid" if entity_class and entity_class not in LOCAL_CLASSES else "local-id")
    return name if isinstance(name, str) else None


def _lacks_identity(item: Any, entity_class: str) -> bool:
    """Whether an item of a list of such entities can be none of them, and no reference either."""
    if not isinstance(item, dict):
        return True
    name = "local-id" if entity_class in LOCAL_CLASSES else "uuid"
    if name in item:
        return not _is_name(item[name])
    # A reference has an identifier of something, such as `node-uuid`.
    return not any(
        one.endswith(("uuid", "local-id")) and isinstance(item[one], str) for one in item
    )


def _is_name(value: Any) -> bool:
    """Whether this is a uuid or local-id that a store can hold."""
    return isinstance(value, str) and 0 < len(value) <= MAX_TEXT_CHARS and "\0" not in value


def _within_limit(address: tuple[str, ...]) -> tuple[str, ...]:
    # Each entity below repeats the address, so a long one would be multiplied.
    if sum(map(len, address)) > MAX_TEXT_CHARS:
        raise ValueError(f"a parent-address of more than {MAX_TEXT_CHARS:,} characters")
    return address
