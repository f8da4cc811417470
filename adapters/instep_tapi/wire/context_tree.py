"""Walks a TAPI context as a tree and gives its entities, as a stream would state them. Pure.

An entity is an object with a uuid; it is stated without the entities below it, which are stated by
themselves with their place as parent-address (TR-548 3.10, 3.10.1; A13).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from instep_tapi.wire.names import MAX_TEXT_CHARS, class_of

__all__ = ["Entity", "entities"]

MAX_DEPTH = 64
_CONTEXT = "TAPI_CONTEXT"


class Entity(msgspec.Struct, frozen=True, gc=False):
    """One entity of the tree."""

    uuid: str
    entity_class: str
    parent_address: tuple[str, ...]
    """``<class>-uuid:<uuid>`` or ``<class>-local-id:<id>``, highest first, context left out."""
    content: dict[str, Any]
    """Its members, without the entities below it."""

    @property
    def address(self) -> tuple[str, ...]:
        """The parent-address of what is below it."""
        if self.entity_class == _CONTEXT:
            return ()
        return (*self.parent_address, f"{_kebab(self.entity_class)}-uuid:{self.uuid}")


def _kebab(entity_class: str) -> str:
    return entity_class.lower().replace("_", "-")


def entities(document: Any) -> Iterator[Entity]:
    """Every entity of a RESTCONF answer, parents before children.

    Raises `ValueError` for a tree deeper than `MAX_DEPTH`, or a name that no store could hold.
    """
    try:
        yield from _walk(document, "", (), MAX_DEPTH)
    except RecursionError:
        raise ValueError("an entity is nested too deeply") from None


def _walk(value: Any, member: str, address: tuple[str, ...], depth: int) -> Iterator[Entity]:
    if not isinstance(value, (dict, list)):
        return
    if depth == 0:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, member, address, depth - 1)
        return
    if _is_entity(value):
        # The root of a document in the style of the reference implementation has no name.
        entity_class = class_of(member) if member else _CONTEXT
        content = {
            name: kept for name, inner in value.items() if (kept := _own(inner)) is not _NONE
        }
        entity = Entity(_checked(value["uuid"]), entity_class, address, content)
        yield entity
        address = _within_limit(entity.address)
    elif isinstance(value.get("local-id"), str):
        local_id = _checked(value["local-id"])
        address = _within_limit((*address, f"{_kebab(class_of(member))}-local-id:{local_id}"))
    for name, inner in value.items():
        yield from _walk(inner, name, address, depth - 1)


def _checked(name: str) -> str:
    if not 0 < len(name) <= MAX_TEXT_CHARS or "\0" in name:
        raise ValueError(f"{name[:64]!r} with {len(name)} characters is no uuid or local-id")
    return name


def _within_limit(address: tuple[str, ...]) -> tuple[str, ...]:
    # Each entity below repeats the address, so a long one would be multiplied.
    if sum(map(len, address)) > MAX_TEXT_CHARS:
        raise ValueError(f"a parent-address of more than {MAX_TEXT_CHARS:,} characters")
    return address


_NONE = object()


def _is_entity(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("uuid"), str)


def _own(value: Any) -> Any:
    """`value` without the entities in it; `_NONE` where nothing else was there."""
    if isinstance(value, dict):
        if _is_entity(value):
            return _NONE
        kept = {name: own for name, inner in value.items() if (own := _own(inner)) is not _NONE}
        return kept if kept or not value else _NONE
    if isinstance(value, list):
        items = [own for inner in value if (own := _own(inner)) is not _NONE]
        return items if items or not value else _NONE
    return value
