"""The places that the ready tables read are those of the YANG."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

from instep_tapi.derivations.ready_tables import READY
from instep_tapi.facts.classes import CLASSES_FILE

TYPED: dict[str, Any] = json.loads(CLASSES_FILE.read_bytes())["classes"]

BEYOND_YANG = {(name, "/administrative-state") for name in ("connection_end_point", "connection")}
"""In neither edition; controllers state it all the same."""


@pytest.mark.parametrize("name", READY)
def test_each_pointer_leads_to_a_member_of_the_class(name: str) -> None:
    table = READY[name]
    known = [tuple(column["path"]) for column in TYPED[table.entity_class]["columns"]]
    pointers = list(
        chain.from_iterable(
            source if isinstance(source, tuple) else (source,)
            for source in table.columns.values()
            if isinstance(source, str | tuple)
        )
    )
    assert pointers
    for pointer in pointers:
        if (name, pointer) in BEYOND_YANG:
            continue
        steps = tuple(step.rpartition(":")[2] for step in pointer.split("/")[1:])
        # Of a list, the table of classes has no members.
        assert any(steps[: len(path)] == path for path in known), pointer


def test_every_class_has_a_direction_in_both_editions() -> None:
    """2.1.3 has port directions where 2.4 and later have a direction."""
    assert READY["node_edge_point"].columns["direction"] == ("/direction", "/link-port-direction")
    own = READY["connection_end_point"].columns["direction"]
    assert own == ("/direction", "/connection-port-direction")
