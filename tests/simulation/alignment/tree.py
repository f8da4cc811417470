"""A provider of a tree: nodes, and the points below them, in one stream.

As real controllers do, it states a node with the whole sub-tree below it, as that was then, and a
uuid under two nodes: one point in two places, or two points with contents of their own (TR-548
3.10, A13).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from instep_tapi_provider.records import Statement
from tests.simulation.alignment.provider import Provider

__all__ = ["TreeProvider"]

_POINT: Final = "NODE_EDGE_POINT"
_POINTS: Final = "owned-node-edge-point"
_TOPOLOGY: Final = "topology-uuid:t"
_CHANGE: Final = re.compile(rb'"change":(\d+)')


@dataclass
class _Place:
    """Where an entity stands."""

    uuid: str
    nodes: list[str]
    """The nodes that state it; none of a node. The first one contains it."""
    alone: bool = True
    """Whether no other entity has its uuid."""

    @property
    def parent_address(self) -> tuple[str, ...]:
        return (_TOPOLOGY, *(f"node-uuid:{node}" for node in self.nodes[:1]))

    @property
    def key(self) -> str:
        return self.uuid if self.alone else _address(self.parent_address, self.uuid)


def _address(parent_address: tuple[str, ...] | list[str], uuid: str) -> str:
    return "+".join((*parent_address, f"node-edge-point-uuid:{uuid}"))


class TreeProvider(Provider):
    """See the module."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._places: dict[str, _Place] = {}
        super().__init__(*given, **named)

    def create(self) -> None:
        self._keys += 1
        uuid, nodes, fate = f"k{self._keys}", self._nodes(), self._rng.random()
        if len(nodes) < 2 or fate < 0.3:
            found = [_Place(uuid, [])]
        elif fate < 0.7:
            found = [_Place(uuid, [self._rng.choice(nodes)])]
        elif fate < 0.85:
            found = [_Place(uuid, self._rng.sample(nodes, 2))]
        else:
            found = [_Place(uuid, [node], alone=False) for node in self._rng.sample(nodes, 2)]
        for place in found:
            self._places[place.key] = place
            self._state(place.key)

    def end(self) -> None:
        """One entity ends, with all below it."""
        key = self._rng.choice(list(self.bodies))
        below = [point for point in self.bodies if self._places[point].nodes[:1] == [key]]
        if len(below) + 1 >= len(self.bodies):
            return
        for place in self._places.values():
            if place.nodes[1:] == [key]:
                del place.nodes[1]
        delete = self._rng.random() < 0.5
        for gone in [*below, key]:
            del self.bodies[gone]
            for instance in self.instances:
                instance.stream.end(gone, delete=delete)

    def document(self) -> bytes:
        """The context, as a GET shows it."""
        topology = {"uuid": "t", "node": [json.loads(self._whole(n)) for n in self._nodes()]}
        return json.dumps({"tapi-topology:topology-context": {"topology": [topology]}}).encode()

    def key_of(self, key: str, envelope: bytes) -> str:
        uuid = key.rpartition(":")[2]
        if key == uuid and key not in self._places:
            # A baseline has stated the one that is left of two.
            return _address(json.loads(envelope)["parent-address"], uuid)
        return key

    def own(self, body: bytes) -> Any:
        stated = json.loads(body)
        stated.pop(_POINTS, None)
        return stated

    def states(self, data: bytes, body: bytes) -> bool:
        # The number of its own change stands before those of all below it.
        stated, stored = _CHANGE.search(data), _CHANGE.search(body)
        return bool(stated and stored and stated[1] == stored[1])

    def _gone(self) -> list[str]:
        return [
            key
            for key, place in self._places.items()
            if key not in self.bodies and all(node in self.bodies for node in place.nodes)
        ]

    def _nodes(self) -> list[str]:
        return [key for key in self.bodies if not self._places[key].nodes]

    def _state(self, key: str) -> None:
        place = self._places[key]
        self._changes += 1
        self.bodies[key] = b'{"uuid":"%s","change":%d}' % (place.uuid.encode(), self._changes)
        body = self.bodies[key] if place.nodes else self._whole(key)
        entity_class = _POINT if place.nodes else "NODE"
        for instance in self.instances:
            instance.stream.publish(Statement(key, entity_class, body, place.parent_address))

    def _whole(self, node: str) -> bytes:
        """A node with all below it."""
        points = [body for key, body in self.bodies.items() if node in self._places[key].nodes]
        return b'%s,"%s":[%s]}' % (self.bodies[node][:-1], _POINTS.encode(), b",".join(points))
