"""Which statements are about one entity (A13), row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep_spark.identity import Identities, names_in, resolve


def row(ordinal: int, key: str, node: str = "", **facts: Any) -> dict[str, Any]:
    parents = ["topology-uuid:t", f"node-uuid:{node}"] if node else []
    further = facts.pop("further", [])
    stated = {"further-parent-addresses": [["topology-uuid:t", f"node-uuid:{n}"] for n in further]}
    usual = {"uuid": "u", "class": "NODE_EDGE_POINT", "token": f"t{ordinal}", "ends": False}
    addresses = {
        "parent_address": json.dumps(parents),
        "envelope": json.dumps(stated) if further else None,
    }
    return {"ordinal": ordinal, "key": key, **usual, **addresses, **facts}


def end(ordinal: int, key: str) -> dict[str, Any]:
    return row(ordinal, key, uuid="", ends=True, **{"class": ""})


def shown(ordinal: int, key: str, node: str, **facts: Any) -> dict[str, Any]:
    return row(ordinal, key, node, token="", **facts)


AT_N1, AT_N2 = (f"topology-uuid:t+node-uuid:{n}+node-edge-point-uuid:u" for n in ("n1", "n2"))
TWINS = [row(1, "k1", "n1"), row(2, "k2", "n2")]


@pytest.mark.parametrize(
    ("rows", "ids"),
    [
        pytest.param([*TWINS, end(3, "k1"), end(4, "k2")], ["u", "k2", "u", "k2"], id="ends"),
        pytest.param(
            [row(1, "k1", "n1"), row(2, "k9", "n1"), end(3, "k1"), end(4, "k9")],
            ["u", "u", "k1", "u"],
            id="the end of a key that the entity no longer has",
        ),
        pytest.param(
            [shown(1, "u", "n1"), end(2, AT_N2), end(3, AT_N1), end(4, "u")],
            ["u", AT_N2, "u", "u"],
            id="ends by address and by uuid",
        ),
        pytest.param(
            [shown(1, "u", "n1"), shown(2, "u", "n2"), row(3, "k3", "n3")],
            ["u", "u", "u"],
            id="the only one has moved",
        ),
        pytest.param(
            [*TWINS, row(3, "k1", "n3"), end(4, "k1")], ["u", "k2", "u", "u"], id="a key is one"
        ),
        pytest.param(
            [row(1, "k1", "n1"), row(2, "k2", **{"class": "LINK"}), end(3, "k2")],
            ["u", "k2", "k2"],
            id="classes",
        ),
    ],
)
def test_a13_ids(rows: list[dict[str, Any]], ids: list[str]) -> None:
    known = Identities()
    assert [known.apply(one)[0] for one in rows] == [[one] for one in ids]


def test_a13_what_is_alike_in_several_places_is_stated_for_each() -> None:
    alike = shown(3, AT_N1, "n1", further=["n2"])
    found, _ = resolve(Identities(), [*TWINS, alike])
    parents = [json.loads(one.parent_address)[-1] for one in found if one.parent_address]
    assert [(one.ordinal, one.id) for one in found] == [(2, "k2"), (3, "u"), (3, "k2")]
    assert parents == ["node-uuid:n1", "node-uuid:n2"]


@pytest.mark.parametrize("cut", range(1, 6))
def test_l1_ids_do_not_depend_on_cuts(cut: int) -> None:
    rows = [*TWINS, shown(3, "u", "n1", further=["n2"]), row(4, "k5", "n1"), end(5, "k5")]
    rows += [end(6, "k2")]
    whole, told = resolve(Identities(), rows)
    first, before = resolve(Identities(), rows[:cut])
    loaded = Identities()
    for entity in before:
        loaded.load(entity)
    second, after = resolve(loaded, rows[cut:])
    assert (first + second, before + after) == (whole, told)
    assert names_in(rows) == {"u", "k1", "k2", "k5"}
