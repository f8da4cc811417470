"""Which entities are within which: what ends together with a descriptor."""

from __future__ import annotations

from instep_sdpi.wire.entities import Entity, descriptor_key
from instep_sdpi.wire.names import MdibPart

__all__ = ["Containment"]


class Containment:
    """The descriptors of an MDIB with their children and states, by handle."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._children: dict[str, set[str]] = {}
        self._states: dict[str, set[str]] = {}

    def __repr__(self) -> str:
        return f"<Containment {len(self)} descriptors>"

    def __len__(self) -> int:
        return len(self._parents)

    def parent_of(self, handle: str) -> str:
        """The handle of the descriptor that contains this one; empty for an Mds, or unknown."""
        return self._parents.get(handle, "")

    def stated(self, entity: Entity) -> None:
        """Note where an entity is."""
        handle = entity.descriptor
        if entity.part is not MdibPart.DESCRIPTION:
            states = self._states.get(handle)
            if states is None:
                self._states[handle] = {entity.key}
            else:
                states.add(entity.key)
            return
        before = self._parents.get(handle)
        if before is not None and not entity.parent:
            return
        if before is not None and before != entity.parent:
            self._children.get(before, set()).discard(handle)
        self._parents[handle] = entity.parent
        self._children.setdefault(entity.parent, set()).add(handle)

    def within(self, handle: str) -> list[str]:
        """The keys of a descriptor, of all that it contains, and of the states of all of it. What
        has ended stays known here: its report may be refused, and come again.
        """
        keys: dict[str, None] = {}
        below = [handle]
        while below:
            one = below.pop()
            if descriptor_key(one) not in keys:
                keys[descriptor_key(one)] = None
                keys.update(dict.fromkeys(sorted(self._states.get(one, ()))))
                below += self._children.get(one, ())
        return list(keys)
