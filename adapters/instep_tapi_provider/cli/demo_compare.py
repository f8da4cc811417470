"""Compares what a provider states with what a store holds, entity by entity. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Comparison", "compare"]

Entities = Mapping[str, tuple[str, bytes]]
"""Entity-key → class and the entity as JSON."""


@dataclass(slots=True)
class Comparison:
    """Entities of one class."""

    stated: int = 0
    held: int = 0
    equal: int = 0
    missing: list[str] = field(default_factory=list)
    """Keys that the provider states and the store does not hold."""
    stale: list[str] = field(default_factory=list)
    """Keys that both have, with different content."""
    phantom: list[str] = field(default_factory=list)
    """Keys that only the store holds."""

    @property
    def agrees(self) -> bool:
        return not (self.missing or self.stale or self.phantom)


def compare(stated: Entities, held: Entities) -> dict[str, Comparison]:
    """By class: what a store holds, against what its provider states."""
    found: dict[str, Comparison] = {}

    def of(entity_class: str) -> Comparison:
        return found.setdefault(entity_class, Comparison())

    for key, (entity_class, body) in stated.items():
        one = of(entity_class)
        one.stated += 1
        if key not in held:
            one.missing.append(key)
        elif held[key][0] == entity_class and _same(held[key][1], body):
            one.equal += 1
        else:
            one.stale.append(key)
    for key, (entity_class, _) in held.items():
        one = of(entity_class)
        one.held += 1
        if key not in stated:
            one.phantom.append(key)
    return dict(sorted(found.items()))


def _same(one: bytes, other: bytes) -> bool:
    """The same JSON value; members may stand in any order."""
    return one == other or json.loads(one) == json.loads(other)
