"""Ready projections for TAPI: the columns that an operator asks for first, by table name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Index, MetaData, Table, Text
from sqlalchemy.types import TypeEngine

from instep_sql.projections.projection import ENTITY_ID, ProjectedEntity, Projection, Source

__all__ = ["OF_ENTITY", "READY", "NameOf"]


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


def _uuid(entity: ProjectedEntity) -> str:
    return entity.uuid


def _key(entity: ProjectedEntity) -> str:
    return entity.key


OF_ENTITY: Final[Sequence[tuple[Source, str]]] = ((_key, "keys"), (_uuid, "uuids"))
"""The sources that are a column of the entity itself."""
_METADATA: Final = MetaData()
_ALARM: Final = "/alarm-condition-detector-detail"
_STATES: Final[dict[str, Source]] = {
    "administrative_state": "/administrative-state",
    "operational_state": "/operational-state",
    "lifecycle_state": "/lifecycle-state",
}
_TEXT: Final[TypeEngine[Any]] = Text()
_BOOLEAN: Final[TypeEngine[Any]] = Boolean()


def _projection(
    name: str,
    entity_class: str,
    sources: Mapping[str, Source],
    types: Mapping[str, TypeEngine[Any]] | None = None,
    indexed: Sequence[str] = ("uuid",),
) -> Projection:
    columns = [Column(column, (types or {}).get(column, _TEXT)) for column in sources]
    table = Table(
        name,
        _METADATA,
        Column(ENTITY_ID, BigInteger, primary_key=True, autoincrement=False),
        *columns,
        *(Index(f"{name}_{column}", column) for column in indexed),
    )
    return Projection(table, {entity_class: sources})


READY: Final[Mapping[str, Projection]] = {
    one.name: one
    for one in (
        _projection("node", "NODE", {"uuid": _uuid, "name": NameOf(), **_STATES}),
        _projection(
            "node_edge_point",
            "NODE_EDGE_POINT",
            {
                "uuid": _uuid,
                "name": NameOf(),
                "node_uuid": ParentOf("node-uuid"),
                "layer": "/layer-protocol-name",
                "direction": "/direction",
                **_STATES,
            },
            indexed=("uuid", "node_uuid"),
        ),
        _projection(
            "link",
            "LINK",
            {
                "uuid": _uuid,
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
        _projection(
            "connection_end_point",
            "CONNECTION_END_POINT",
            {
                "uuid": _uuid,
                "name": NameOf(),
                "node_edge_point_uuid": ParentOf("node-edge-point-uuid"),
                "layer": "/layer-protocol-name",
                "layer_qualifier": "/layer-protocol-qualifier",
                "direction": "/direction",
                **_STATES,
            },
            indexed=("uuid", "node_edge_point_uuid"),
        ),
        _projection(
            "connection",
            "CONNECTION",
            {
                "uuid": _uuid,
                "name": NameOf(),
                "layer": "/layer-protocol-name",
                "layer_qualifier": "/layer-protocol-qualifier",
                "direction": "/direction",
                **_STATES,
            },
        ),
        _projection(
            "connectivity_service",
            "CONNECTIVITY_SERVICE",
            {
                "uuid": _uuid,
                "name": NameOf(("SERVICE_NAME",)),
                "layer": "/layer-protocol-name",
                "layer_qualifier": "/layer-protocol-qualifier",
                "direction": "/direction",
                **_STATES,
            },
        ),
        _projection(
            "equipment",
            "EQUIPMENT",
            {
                "uuid": _uuid,
                "name": NameOf(),
                "device_uuid": ParentOf("device-uuid"),
                "category": "/category",
                "is_expected_actual_mismatch": "/is-expected-actual-mismatch",
            },
            {"is_expected_actual_mismatch": _BOOLEAN},
            indexed=("uuid", "device_uuid"),
        ),
        _projection(
            "alarm",
            "CONDITION_DETECTOR",
            {
                "detector": _key,
                "condition": "/condition-native-name",
                "measured_entity_uuid": "/measured-entity-uuid",
                "measured_entity": "/measured-entity-native-id",
                "state": f"{_ALARM}/alarm-detector-state",
                "severity": f"{_ALARM}/legacy-properties/perceived-severity",
                "is_acknowledged": f"{_ALARM}/legacy-properties/is-acknowledged",
            },
            {"is_acknowledged": _BOOLEAN},
            indexed=("measured_entity_uuid",),
        ),
    )
}
