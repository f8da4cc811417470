"""The network of a country: a hundred entities of thirty classes for each node, over 20 streams."""

from __future__ import annotations

from typing import Any

from instep_tapi.facts.names import CONDITION_DETECTOR
from instep_tapi_provider import Context, StreamSettings

__all__ = ["ALARMS", "STREAMS", "country"]

_PORTS = 40
ALARMS = "alarms"
STREAMS = {
    **{name.lower().replace("_", "-"): (name,) for name in (
        *("NODE", "NODE_EDGE_POINT", "CONNECTION_END_POINT", "LINK", "CONNECTION"),
        *("CONNECTIVITY_SERVICE", "SERVICE_INTERFACE_POINT", "DEVICE", "EQUIPMENT"),
        *("ACCESS_PORT", "HOLDER", "ROUTE", "SWITCH_CONTROL", "SWITCH"),
    )},
    ALARMS: (CONDITION_DETECTOR,),
    "measurements": ("OAM_JOB", "PM_CURRENT_DATA", "OAM_SERVICE", "OAM_PROFILE"),
    "maintenance": ("MAINTENANCE_ENTITY_GROUP", "MEG_END_POINT", "MEG_INTERMEDIATE_POINT"),
    "paths": ("PATH", "PATH_COMPUTATION_SERVICE", "VIRTUAL_NETWORK_SERVICE"),
    "rules": ("NODE_RULE_GROUP", "INTER_RULE_GROUP", "RULE"),
    "rest": ("TAPI_CONTEXT", "TOPOLOGY", "PHYSICAL_SPAN", "ABSTRACT_STRAND"),
}  # fmt: skip
"""Stream → the classes that it carries."""


def stream_settings() -> tuple[StreamSettings, ...]:
    return tuple(StreamSettings(name, classes=frozenset(of)) for name, of in STREAMS.items())


def country(nodes: int) -> Context:
    """A ring of nodes. Connection k goes from node k to the next one, service k uses it."""
    each = range(nodes)
    return Context(
        {
            "uuid": "country",
            "service-interface-point": [{"uuid": f"sip{k}-{n}"} for k in each for n in range(4)],
            "tapi-topology:topology-context": {
                "topology": [
                    {
                        "uuid": "topology",
                        "node": [_node(k) for k in each],
                        "link": [_link(k, (k + 1) % nodes) for k in each],
                    }
                ]
            },
            "tapi-connectivity:connectivity-context": {
                "connectivity-service": [_service(k) for k in each],
                "connection": [_connection(k, (k + 1) % nodes) for k in each],
            },
            "tapi-equipment:physical-context": {
                "device": [_device(k) for k in each],
                "physical-span": [
                    {"uuid": f"span{k}", "abstract-strand": [{"uuid": f"strand{k}"}]} for k in each
                ],
            },
            "tapi-oam:oam-context": {
                "oam-job": [
                    {"uuid": f"job{k}", "pm-current-data": [{"uuid": f"pm{k}"}]} for k in each
                ],
                "oam-service": [{"uuid": f"oam{k}"} for k in each],
                "oam-profile": [{"uuid": f"profile{k}"} for k in range(0, nodes, 10)],
                "meg": [
                    {
                        "uuid": f"meg{k}",
                        "mep": [{"uuid": f"mep{k}-a"}, {"uuid": f"mep{k}-z"}],
                        "mip": [{"uuid": f"mip{k}"}],
                    }
                    for k in each
                ],
            },
            "tapi-path-computation:path-computation-context": {
                "path-comp-service": [{"uuid": f"computation{k}"} for k in each],
                "path": [{"uuid": f"path{k}"} for k in each],
            },
            "tapi-virtual-network:virtual-network-context": {
                "virtual-nw-service": [{"uuid": f"virtual{k}"} for k in range(0, nodes, 5)]
            },
        }
    )


def _node(k: int) -> dict[str, Any]:
    return {
        "uuid": f"node{k}",
        "name": [{"value-name": "site", "value": f"Site {k}"}],
        "operational-state": "ENABLED",
        "owned-node-edge-point": [_port(k, p) for p in range(_PORTS)],
        "node-rule-group": [
            {"uuid": f"group{k}", "rule": [{"uuid": f"rule{k}"}]},
        ],
        "inter-rule-group": [{"uuid": f"inter{k}"}],
    }


def _port(k: int, p: int) -> dict[str, Any]:
    port: dict[str, Any] = {"uuid": f"port{k}-{p}", "operational-state": "ENABLED"}
    if p % 2 == 0:
        points = [{"uuid": f"cep{k}-{p}", "operational-state": "ENABLED"}]
        port["tapi-connectivity:cep-list"] = {"connection-end-point": points}
    return port


def _end(k: int, p: int) -> dict[str, str]:
    at = {"topology-uuid": "topology", "node-uuid": f"node{k}"}
    return at | {"node-edge-point-uuid": f"port{k}-{p}"}


def _link(k: int, to: int) -> dict[str, Any]:
    return {"uuid": f"link{k}", "node-edge-point": [_end(k, 1), _end(to, 3)]}


def _connection(k: int, to: int) -> dict[str, Any]:
    ends = [_end(k, 0) | {"connection-end-point-uuid": f"cep{k}-0"}]
    ends += [_end(to, 2) | {"connection-end-point-uuid": f"cep{to}-2"}]
    return {
        "uuid": f"connection{k}",
        "operational-state": "ENABLED",
        "connection-end-point": ends,
        "route": [{"uuid": f"route{k}", "connection-end-point": ends}],
        "switch-control": [{"uuid": f"control{k}", "switch": [{"uuid": f"switch{k}"}]}],
    }


def _service(k: int) -> dict[str, Any]:
    return {
        "uuid": f"service{k}",
        "operational-state": "ENABLED",
        "end-point": [
            {
                "local-id": "a",
                "service-interface-point": {"service-interface-point-uuid": f"sip{k}-0"},
            }
        ],
        "connection": [{"connection-uuid": f"connection{k}"}],
    }


def _device(k: int) -> dict[str, Any]:
    return {
        "uuid": f"device{k}",
        "equipment": [
            {"uuid": f"card{k}-{n}", "contained-holder": [{"uuid": f"slot{k}-{n}"}]}
            for n in range(4)
        ],
        "access-port": [{"uuid": f"socket{k}-{n}"} for n in range(8)],
    }
