"""Ready tables for TAPI: the columns that an operator asks for first, by table name. Where 2.6 has
a member otherwise than 2.1.3, both are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from instep.ports.derivation import (
    ProjectedEntity,
    ReadyTable,
    Source,
    key_of_entity,
    uuid_of_entity,
)

__all__ = ["READY", "NameOf", "ParentOf"]


class NameOf(msgspec.Struct, frozen=True):
    """The value of a `name` (a list of value-name and value, TAPI global-class): that of the first
    of these value-names that the entity has, else its first value.
    """

    value_names: tuple[str, ...] = ()

    def __call__(self, entity: ProjectedEntity) -> str | None:
        """Read it. None where the entity has no name."""
        stated = entity.body.get("name") if isinstance(entity.body, dict) else None
        names = {
            one.get("value-name"): one.get("value")
            for one in (stated if isinstance(stated, list) else ())
            if isinstance(one, dict)
        }
        wanted = [names[name] for name in self.value_names if name in names]
        return next(iter([*wanted, *names.values()]), None)


class ParentOf(msgspec.Struct, frozen=True):
    """The uuid of the nearest element with this name in the parent-address (TR-548 3.10.1)."""

    name: str

    def __call__(self, entity: ProjectedEntity) -> str | None:
        """Read it. None where the address has none."""
        address = entity.envelope.get("parent-address") if entity.envelope else None
        for element in reversed(address if isinstance(address, list) else []):
            name, colon, uuid = element.partition(":")
            if colon and name == self.name:
                return str(uuid)
        return None


_ALARM: Final = "/alarm-condition-detector-detail"
_DETECTED: Final = ("/tapi-fm:detected-condition", "/detected-condition")
"""Where TAPI 2.4 to 2.6 state what `_ALARM` and the condition's name do in 2.1.3."""
_STATES: Final[dict[str, Source]] = {
    "administrative_state": "/administrative-state",
    "operational_state": "/operational-state",
    "lifecycle_state": "/lifecycle-state",
}


def _either(pointer: str, detected: str) -> tuple[str, ...]:
    """A place in 2.1.3, and one below the detected-condition of 2.4 to 2.6."""
    return (pointer, *(f"{container}{detected}" for container in _DETECTED))


def _table(
    name: str,
    entity_class: str,
    columns: Mapping[str, Source],
    *,
    flags: tuple[str, ...] = (),
    indexed: tuple[str, ...] = ("uuid",),
) -> ReadyTable:
    return ReadyTable(
        name=name,
        entity_class=entity_class,
        columns=columns,
        flags=frozenset(flags),
        indexed=indexed,
    )


READY: Final[Mapping[str, ReadyTable]] = {
    one.name: one
    for one in (
        _table("node", "NODE", {"uuid": uuid_of_entity, "name": NameOf(), **_STATES}),
        _table(
            "node_edge_point",
            "NODE_EDGE_POINT",
            {
                "uuid": uuid_of_entity,
                "name": NameOf(),
                "node_uuid": ParentOf("node-uuid"),
                "layer": "/layer-protocol-name",
                "direction": ("/direction", "/link-port-direction"),
                **_STATES,
            },
            indexed=("uuid", "node_uuid"),
        ),
        _table(
            "link",
            "LINK",
            {
                "uuid": uuid_of_entity,
                "name": NameOf(),
                "layer": "/layer-protocol-name/0",
                "direction": "/direction",
                "a_node_uuid": "/node-edge-point/0/node-uuid",
                "a_node_edge_point_uuid": "/node-edge-point/0/node-edge-point-uuid",
                "z_node_uuid": "/node-edge-point/1/node-uuid",
                "z_node_edge_point_uuid": "/node-edge-point/1/node-edge-point-uuid",
                **_STATES,
            },
            indexed=("uuid", "a_node_uuid", "z_node_uuid"),
        ),
        _table(
            "connection_end_point",
            "CONNECTION_END_POINT",
            {
                "uuid": uuid_of_entity,
                "name": NameOf(),
                "node_edge_point_uuid": ParentOf("node-edge-point-uuid"),
                "layer": "/layer-protocol-name",
                "layer_qualifier": "/layer-protocol-qualifier",
                "direction": ("/direction", "/connection-port-direction"),
                **_STATES,
            },
            indexed=("uuid", "node_edge_point_uuid"),
        ),
        _table(
            "connection",
            "CONNECTION",
            {
                "uuid": uuid_of_entity,
                "name": NameOf(),
                "layer": "/layer-protocol-name",
                "layer_qualifier": "/layer-protocol-qualifier",
                "direction": "/direction",
                **_STATES,
            },
        ),
        _table(
            "connectivity_service",
            "CONNECTIVITY_SERVICE",
            {
                "uuid": uuid_of_entity,
                "name": NameOf(("SERVICE_NAME",)),
                "layer": ("/layer-protocol-name", "/service-layer"),
                "layer_qualifier": "/layer-protocol-qualifier",
                "direction": ("/direction", "/connectivity-direction"),
                **_STATES,
            },
        ),
        _table(
            "equipment",
            "EQUIPMENT",
            {
                "uuid": uuid_of_entity,
                "name": NameOf(),
                "device_uuid": ParentOf("device-uuid"),
                "category": "/category",
                "is_expected_actual_mismatch": "/is-expected-actual-mismatch",
            },
            flags=("is_expected_actual_mismatch",),
            indexed=("uuid", "device_uuid"),
        ),
        _table(
            "alarm",
            "CONDITION_DETECTOR",
            {
                "detector": key_of_entity,
                "condition": _either("/condition-native-name", "/detected-condition-native-name"),
                "measured_entity_uuid": "/measured-entity-uuid",
                "measured_entity": "/measured-entity-native-id",
                "state": _either(
                    f"{_ALARM}/alarm-detector-state", "/simple-detector/simple-detector-state"
                ),
                "severity": _either(
                    f"{_ALARM}/legacy-properties/perceived-severity",
                    "/detector-info/perceived-severity",
                ),
                "is_acknowledged": _either(
                    f"{_ALARM}/legacy-properties/is-acknowledged", "/detector-info/is-acknowledge"
                ),
            },
            flags=("is_acknowledged",),
            indexed=("measured_entity_uuid",),
        ),
    )
}
