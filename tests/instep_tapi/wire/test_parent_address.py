"""Parent-addresses in the spellings of the field (TR-548 3.10; TR-548 v3.1 3.10.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep_tapi.wire.parent_address import ORDER, SPELLING, canonical_address
from tests.instep_tapi.wire.frames_kit import WAYS, Way, read_by

T_N = ["topology-uuid:T", "node-uuid:N"]
UUID = "4e537278-79f8-39ad-804b-f0b553cb2ffb"


@pytest.mark.parametrize(
    "stated",
    [
        [],
        T_N,
        ["device-uuid:D", "equipment-uuid:E"],
        ["connection-uuid:C", "route-local-id:4", "resilience-route-local-id:1"],
        ["node-rule-group-uuid:g", "rule-local-id:a local id, of two = words/1"],
        ["node-uuid:N"],
        None,
    ],
)
def test_the_form_of_the_specification_is_no_deviation(stated: Any) -> None:
    raw = json.dumps(stated).encode()
    assert canonical_address(raw) == (raw, ())


@pytest.mark.parametrize(
    ("stated", "read", "deviations"),
    [
        (T_N[::-1], T_N, {ORDER}),
        (
            ["node-edge-point-uuid:P", "node-uuid:N", "topology-uuid:T"],
            [*T_N, "node-edge-point-uuid:P"],
            {ORDER},
        ),
        (["topology-uuid:T", "node-uuid: N"], T_N, {SPELLING}),
        ([" topology-uuid : T ", "node-uuid:N"], T_N, {SPELLING}),
        (["topology=T", "node=N"], T_N, {SPELLING}),
        (["node=N", "topology=T"], T_N, {SPELLING, ORDER}),
        (["Topology-UUID:T", "NODE_uuid:N"], T_N, {SPELLING}),
        (["tapi-topology:topology-uuid:T", "tapi-topology:node-uuid:N"], T_N, {SPELLING}),
        (
            [
                "/tapi-common:context/tapi-topology:topology-context/topology=T/node=N",
            ],
            T_N,
            {SPELLING},
        ),
        (
            ["/context/topology-context/topology=T/node=N/owned-node-edge-point=a%20b"],
            [*T_N, "node-edge-point-uuid:a b"],
            {SPELLING},
        ),
        ([{"topology-uuid": "T"}, {"node-uuid": "N"}], T_N, {SPELLING}),
        ({"topology-uuid": "T", "node-uuid": "N"}, T_N, {SPELLING}),
        (["topology-uuid:T,node-uuid:N"], T_N, {SPELLING}),
        ("topology-uuid:T,node-uuid:N", T_N, {SPELLING}),
        ("node-uuid:N", ["node-uuid:N"], {SPELLING}),
        ([UUID], [UUID], {SPELLING}),
    ],
)
def test_another_spelling_is_read_and_counted(
    stated: Any, read: list[str], deviations: set[str]
) -> None:
    address, found = canonical_address(json.dumps(stated).encode())
    assert json.loads(address) == read
    assert set(found) == deviations


@pytest.mark.parametrize(
    "stated", [7, [7], [""], ["node-uuid:"], ["what=is this"], [["node-uuid:N", 1]], [{"a": {}}]]
)
def test_what_cannot_be_read_stays_as_it_is_and_is_counted(stated: Any) -> None:
    raw = json.dumps(stated).encode()
    assert canonical_address(raw) == (raw, (SPELLING,))


@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_decoding_reads_it(records: int, way: Way) -> None:
    frames = [
        json.dumps(
            {
                "log-record-header": {
                    "token": f"t{n}",
                    "log-append-time-stamp": "2026-11-26T10:00:00.000Z",
                    "entity-key": f"p{n}",
                    "record-type": "RECORD_TYPE_CREATE_UPDATE",
                    "full-log-record-offset-id": [
                        {"value-name": "partition", "value": "0"},
                        {"value-name": "offset", "value": f"{n}"},
                    ],
                },
                "log-record-body": {
                    "event-time-stamp": {"primary-time-stamp": "2026-11-26T10:00:00.000Z"},
                    "record-content": "NODE_EDGE_POINT",
                    "parent-address": [{"topology-uuid": "T"}, {"node-uuid": "N"}],
                    "node-edge-point": {"uuid": f"p{n}"},
                },
            },
            separators=(",", ":"),
        ).encode()
        for n in range(records)
    ]
    chunk = read_by(way, frames)
    assert not chunk.unreadable
    for record in chunk.decode().records:
        assert json.loads(bytes(record.envelope))["parent-address"] == T_N
    assert chunk.deviations[SPELLING] == records
