"""Which entities stand below which in the YANG of TAPI 2.1.3 (TR-548 3.10.1). Pure data.

A global class is identified by its uuid, a local class by a local-id within what contains it.
Whatever else has the name of a class is a reference to an entity, or a copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from instep_tapi.facts.names import ANY_CLASS, CONDITION_DETECTOR, OBJECT_CLASSES, strip_module

__all__ = [
    "CONTAINED_CLASSES",
    "CONTEXT",
    "GLOBAL_CLASSES",
    "LOCAL_CLASSES",
    "SERIES_CLASSES",
    "address_element",
    "carried_classes",
    "carried_events",
    "contained_class",
    "contained_members",
    "contains",
    "local_identity",
]

CONTEXT: Final = "TAPI_CONTEXT"

_GLOBAL: Final[dict[str, dict[str, str]]] = {
    CONTEXT: {
        "service-interface-point": "SERVICE_INTERFACE_POINT",
        "topology": "TOPOLOGY",
        "nw-topology-service": "NETWORK_TOPOLOGY_SERVICE",
        "connectivity-service": "CONNECTIVITY_SERVICE",
        "connection": "CONNECTION",
        "device": "DEVICE",
        "physical-span": "PHYSICAL_SPAN",
        "path-comp-service": "PATH_COMPUTATION_SERVICE",
        "path": "PATH",
        "virtual-nw-service": "VIRTUAL_NETWORK_SERVICE",
        "oam-service": "OAM_SERVICE",
        "oam-job": "OAM_JOB",
        "oam-profile": "OAM_PROFILE",
        "meg": "MAINTENANCE_ENTITY_GROUP",
        "available-stream": "AVAILABLE_STREAM",
        "supported-stream-type": "SUPPORTED_STREAM_TYPE",
        "stream-monitor": "STREAM_MONITOR",
    },
    "TOPOLOGY": {"node": "NODE", "link": "LINK"},
    "NODE": {
        "owned-node-edge-point": "NODE_EDGE_POINT",
        "node-rule-group": "NODE_RULE_GROUP",
        # From TAPI 2.4 on.
        "inter-rule-group": "INTER_RULE_GROUP",
    },
    "NODE_EDGE_POINT": {"connection-end-point": "CONNECTION_END_POINT"},
    "NODE_RULE_GROUP": {"inter-rule-group": "INTER_RULE_GROUP"},
    "CONNECTION": {"switch-control": "SWITCH_CONTROL"},
    "DEVICE": {"equipment": "EQUIPMENT", "access-port": "ACCESS_PORT"},
    "EQUIPMENT": {"contained-holder": "HOLDER"},
}
"""Class → the members of an entity of it that hold entities of a global class."""
_LOCAL: Final[dict[str, dict[str, str]]] = {
    "CONNECTION": {"route": "ROUTE"},
    "CONNECTIVITY_SERVICE": {"end-point": "CONNECTIVITY_SERVICE_END_POINT"},
    "SWITCH_CONTROL": {"switch": "SWITCH"},
    "NODE_RULE_GROUP": {"rule": "RULE"},
    "INTER_RULE_GROUP": {"rule": "RULE"},
    "PHYSICAL_SPAN": {"abstract-strand": "ABSTRACT_STRAND"},
    "MAINTENANCE_ENTITY_GROUP": {"mep": "MEG_END_POINT", "mip": "MEG_INTERMEDIATE_POINT"},
    "OAM_SERVICE": {"end-point": "OAM_SERVICE_END_POINT"},
    "OAM_JOB": {"pm-current-data": "PM_CURRENT_DATA"},
    "PM_CURRENT_DATA": {"pm-history-data": "PM_HISTORY_DATA"},
    "OAM_PROFILE": {
        "pm-threshold-data": "PM_THRESHOLD_DATA",
        "pm-bin-data": "PM_BIN_DATA",
    },
    "PATH_COMPUTATION_SERVICE": {
        "end-point": "PATH_SERVICE_END_POINT",
        "objective-function": "PATH_OBJECTIVE_FUNCTION",
        "optimization-constraint": "PATH_OPTIMIZATION_CONSTRAINT",
    },
    "VIRTUAL_NETWORK_SERVICE": {
        "end-point": "VIRTUAL_NETWORK_SERVICE_END_POINT",
        "vnw-constraint": "VIRTUAL_NETWORK_CONSTRAINT",
    },
}
"""The same for local classes."""

GLOBAL_CLASSES: Final = frozenset(cls for members in _GLOBAL.values() for cls in members.values())
LOCAL_CLASSES: Final = frozenset(cls for members in _LOCAL.values() for cls in members.values())

_BELOW: Final = {
    parent: _GLOBAL.get(parent, {}) | _LOCAL.get(parent, {}) for parent in _GLOBAL.keys() | _LOCAL
}
CONTAINED_CLASSES: Final = frozenset(
    cls for parent, members in _BELOW.items() if parent != CONTEXT for cls in members.values()
)
"""The classes whose entities stand below another entity, which their parent-address names."""
SERIES_CLASSES: Final = frozenset({"PM_CURRENT_DATA", "PM_HISTORY_DATA"})
"""The classes whose records are periods of measurement: each counts, and not only the last one of
an entity (TR-548 3.9.2.6).
"""
_KNOWN: Final = frozenset(OBJECT_CLASSES)
_ANYWHERE: Final = {member: cls for members in _GLOBAL.values() for member, cls in members.items()}
_UUID: Final = re.compile(r"(?:.*-)?uuid")


def contained_class(member: str, parent: str) -> str | None:
    """The class of the entities that this member of an entity of class `parent` contains.

    None where it contains none: what has a uuid there is a reference or a copy. `parent` is empty
    at the root of a resource, where any global class may stand; so it is for a class that 2.1.3
    does not know.
    """
    plain = strip_module(member)
    if parent in _KNOWN:
        return _BELOW.get(parent, {}).get(plain)
    return _ANYWHERE.get(plain)


def contains(above: str, below: str) -> bool:
    """Whether entities of the class `below` stand right below those of the class `above`."""
    return below in _BELOW.get(above, {}).values()


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
