"""The members of TAPI's entities that answers are made of, as columns."""

from __future__ import annotations

from typing import Final

from instep.ports.lake import LakeList, LakeMember, LakeReading
from instep_tapi.lake.topology import TOPOLOGY_CLASSES

__all__ = ["READINGS"]

_UNIT: Final = "CAPACITY_UNIT_"
_NAME: Final = (("name", "[0]", "value"),)


def _named(entity: str) -> tuple[LakeMember, LakeMember]:
    """Columns with the uuid and the first name of an entity."""
    return LakeMember(f"{entity}_uuid", ()), LakeMember(f"{entity}_name", _NAME)


def _state(name: str) -> LakeMember:
    return LakeMember(name.replace("-", "_"), ((name,),), "identity")


def _requested(member: str) -> tuple[tuple[str, ...], ...]:
    """What a service requests: in a constraint from TAPI 2.4 on."""
    path = ("requested-capacity", "total-size", member)
    return (path, ("connectivity-constraint", *path))


def _size(capacity: str, member: str) -> tuple[tuple[str, ...], ...]:
    return ((capacity, "total-size", member),)


_LINK: Final = (
    *_named("link"),
    LakeMember("layer", (("layer-protocol-name",),), "word"),
    LakeMember("direction", (("direction",),), "identity"),
    _state("operational-state"),
)
_ENDS: Final = (LakeList("end_position", (("node-edge-point",), ("link-end",))),)
_END: Final = (
    LakeMember("node_uuid", (("node-uuid",),)),
    LakeMember("nep_uuid", (("node-edge-point-uuid",),)),
)
READINGS: Final = (
    LakeReading(
        name="links",
        meaning="Links with their states and the capacity that they state.",
        classes=("LINK",),
        members=(
            *_LINK,
            LakeMember("total", _size("total-potential-capacity", "value"), "number"),
            LakeMember("unit", _size("total-potential-capacity", "unit"), "identity", _UNIT),
            LakeMember("free", _size("available-capacity", "value"), "number"),
            LakeMember("free_unit", _size("available-capacity", "unit"), "identity", _UNIT),
        ),
    ),
    LakeReading(
        name="link_ends",
        meaning="The ends of links, in the order in which they are stated.",
        classes=("LINK",),
        members=_LINK,
        lists=_ENDS,
        listed=_END,
    ),
    LakeReading(
        name="link_end_history",
        meaning="The ends of links as they were, from `valid_from` to `valid_to`.",
        classes=("LINK",),
        members=_LINK,
        lists=_ENDS,
        listed=_END,
        history=True,
    ),
    LakeReading(
        name="place_history",
        meaning="Nodes, links and end points as they were, from `valid_from` to `valid_to`.",
        classes=TOPOLOGY_CLASSES,
        members=(
            *_named("place"),
            LakeMember("layer", (("layer-protocol-name",),), "word"),
            *map(_state, ("administrative-state", "operational-state", "lifecycle-state")),
            LakeMember("in_topology_uuid", (), parent="topology"),
            LakeMember("in_node_uuid", (), parent="node"),
            LakeMember("in_nep_uuid", (), parent="node-edge-point"),
        ),
        history=True,
    ),
    LakeReading(
        name="connections",
        meaning="Connections with their states.",
        classes=("CONNECTION",),
        members=(
            *_named("connection"),
            LakeMember("layer", (("layer-protocol-name",),), "word"),
            LakeMember("direction", (("direction",),), "identity"),
            *(_state("operational-state"), _state("lifecycle-state")),
        ),
    ),
    LakeReading(
        name="route_points",
        meaning="The end points that the routes of a connection pass, in order; `route` and "
        "`position` count from 0.",
        classes=("CONNECTION",),
        members=(LakeMember("connection_uuid", ()),),
        lists=(
            LakeList("route", (("route",),)),
            LakeList("position", (("connection-end-point",),)),
        ),
        listed=(*_END, LakeMember("cep_uuid", (("connection-end-point-uuid",),))),
    ),
    LakeReading(
        name="services",
        meaning="Connectivity services with what they request and the connections that they have.",
        classes=("CONNECTIVITY_SERVICE",),
        members=(
            *_named("service"),
            _state("operational-state"),
            LakeMember("requested_capacity", _requested("value"), "number"),
            LakeMember("capacity_unit", _requested("unit"), "identity", _UNIT),
            LakeMember("connection_uuids", (("connection", "connection-uuid"),), "texts"),
        ),
    ),
    LakeReading(
        name="service_connections",
        meaning="The connections of connectivity services: a row for each.",
        classes=("CONNECTIVITY_SERVICE",),
        members=_named("service"),
        lists=(LakeList("position", (("connection",),)),),
        listed=(LakeMember("connection_uuid", (("connection-uuid",),)),),
    ),
    LakeReading(
        name="state_history",
        meaning="The states that entities stated, from `valid_from` to `valid_to`.",
        classes=(),
        members=(
            *_named("entity"),
            *(_state("operational-state"), _state("lifecycle-state")),
        ),
        history=True,
    ),
)
