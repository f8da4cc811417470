"""The references that are found with a look at a part of a body are those of the whole body."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from instep_tapi.facts.places import read_places

NAMES = st.sampled_from(
    ["node-uuid", "-uuid", "uuid", "link", "n\u00e9-uuid", 'q"-uuid', "b\\-uuid"]
)
TEXTS = st.sampled_from(["u1", "u2", "", 'a-uuid"', "node-uuid", "with\0nul", "x" * 700])
DOCUMENTS = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=30,
)


def leaves(role: str, value: Any) -> set[tuple[str, str, str]]:
    """Every `*-uuid` leaf below, by plain recursion."""
    if isinstance(value, list):
        return set().union(*(leaves(role, one) for one in value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*(leaves(name, one) for name, one in value.items()))
    return found | {
        (role, name, one)
        for name, one in value.items()
        if name.endswith("-uuid")
        and isinstance(one, str)
        and one
        and len(role + name + one) <= 600
        and "\0" not in role + name + one
    }


@given(DOCUMENTS, st.booleans())
@example({"a": [[{"b": {"node-uuid": "u1"}}]], "node-uuid": ["u2"]}, True)
@example({"node-uuid": {"node-uuid": "u1"}}, True)
def test_no_reference_is_missed(document: Any, escaped: bool) -> None:
    body = json.dumps(document, ensure_ascii=escaped).encode()

    assert read_places("", b"{}", body)[1] == sorted(leaves("", document))


def test_a_name_that_is_there_twice_hides_no_other_one() -> None:
    body = b'{"a":{"z-uuid":"u9"},"node-uuid":"u1","node-uuid":"u2"}'

    assert read_places("", b"{}", body)[1] == [("", "node-uuid", "u2"), ("a", "z-uuid", "u9")]
