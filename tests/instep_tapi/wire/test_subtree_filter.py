"""What is kept of a stream where only some subtrees are asked for (TR-548 3.12, 3.10.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep.model.records import Record, RecordType
from instep_tapi.wire.subtree_filter import is_below


def record(body: dict[str, Any], envelope: bytes, *, ends: bool = False) -> Record:
    kind = RecordType.DELETE if ends else RecordType.CREATE_UPDATE
    stated = json.dumps(body).encode()
    return Record("all", "k", kind, "t", 0, body=stated, envelope=envelope, ends=ends)


def address(*elements: Any) -> bytes:
    return json.dumps({"parent-address": elements}).encode()


OF_N1 = address("topology-uuid:t", "node-uuid:n1")


@pytest.mark.parametrize(
    ("body", "envelope", "kept"),
    [
        ({"uuid": "p"}, OF_N1, True),
        ({"uuid": "n1"}, address("topology-uuid:t"), True),
        ({"uuid": "n2"}, address("topology-uuid:t"), False),
        ({"uuid": "p"}, address("topology-uuid:t", "node-uuid:n11"), False),
        ({"local-id": "1"}, address("topology-uuid:t", "node-uuid:n2"), False),
        ({"uuid": "t"}, b"", True),
        ({"uuid": "t"}, b"{}", True),
        ({"uuid": "t"}, address(), True),
        ({"uuid": "p"}, address(7), True),
        ({"uuid": "p"}, b"{", True),
    ],
)
def test_3_12_an_entity_is_judged_by_its_parent_address(
    body: dict[str, Any], envelope: bytes, kept: bool
) -> None:
    assert is_below(record(body, envelope), {"n1"}) is kept


def test_3_12_an_end_is_kept_wherever_it_stands() -> None:
    assert is_below(record({"uuid": "p"}, address("node-uuid:n2"), ends=True), {"n1"})
