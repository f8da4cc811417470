"""A JSON Patch makes the new value of the old one (RFC 6902), whatever the values."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ConfigurationError
from instep.model.entities import Change, ChangeKind
from instep.model.json_patch import json_patch
from instep.model.records import RecordType

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 1) | st.sampled_from(["", "a"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "~1", "a/b", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


def applied(patch: list[dict[str, Any]], document: Any) -> Any:
    """The document after the operations, by RFC 6902 4 and RFC 6901 4."""
    root = {"": copy.deepcopy(document)}
    for operation in patch:
        steps = ["", *(s.replace("~1", "/").replace("~0", "~") for s in _steps(operation["path"]))]
        target: Any = root
        for step in steps[:-1]:
            target = target[int(step)] if isinstance(target, list) else target[step]
        last: Any = int(steps[-1]) if isinstance(target, list) else steps[-1]
        match operation["op"]:
            case "add" if isinstance(target, list):
                assert 0 <= last <= len(target)
                target.insert(last, operation["value"])
            case "add":
                target[last] = operation["value"]
            case "replace":
                target[last]  # it must exist
                target[last] = operation["value"]
            case "remove":
                del target[last]
    return root.get("")


def _steps(path: str) -> list[str]:
    return path.split("/")[1:]


def text(value: Any) -> str:
    """The value as JSON: True is not 1, and 1 not 1.0."""
    return json.dumps(value, sort_keys=True)


@given(VALUES, VALUES)
def test_the_patch_makes_the_new_value_of_the_old(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    assert text(applied(json_patch(old, new), old)) == text(new)
    assert text(old) == text(before)


@given(VALUES)
def test_equal_values_need_no_operation(value: Any) -> None:
    assert json_patch(value, copy.deepcopy(value)) == []


def test_one_member_of_many_is_one_operation() -> None:
    old = {"uuid": "n", "state": {"oper": "ENABLED", "x/y~z": [1, 2, 3, 4]}}
    new = {"uuid": "n", "state": {"oper": "DISABLED", "x/y~z": [1, 3, 4]}}
    assert json_patch(old, new) == [
        {"op": "replace", "path": "/state/oper", "value": "DISABLED"},
        {"op": "remove", "path": "/state/x~1y~0z/1"},
    ]


def test_what_is_too_deep_to_compare_is_replaced() -> None:
    old: Any = []
    new: Any = [1]
    for _ in range(100_000):
        old, new = [old], [new]
    (operation,) = json_patch(old, new)
    assert (operation["op"], operation["path"]) == ("replace", "")
    while old:  # a value this deep cannot be freed by recursion
        old = old[0]
    while isinstance(new, list):
        new = new[0]


def change(kind: ChangeKind, **bodies: Any) -> Change:
    return Change(
        cursor=7,
        stream="s",
        key="k",
        entity_class="NODE",
        change=kind,
        kind=RecordType.CREATE_UPDATE,
        token="t",
        appended_at_us=0,
        committed_at_us=0,
        **bodies,
    )


def test_a_change_of_each_kind() -> None:
    updated = change(ChangeKind.UPDATED, body=b'{"a":1}', previous=b'{"a":0}')
    assert updated.patch() == [{"op": "replace", "path": "/a", "value": 1}]
    created = change(ChangeKind.CREATED, body=b'{"a":1}')
    assert created.patch() == [{"op": "add", "path": "", "value": {"a": 1}}]
    for kind in (ChangeKind.DELETED, ChangeKind.SWEPT):
        assert change(kind).patch() == [{"op": "remove", "path": ""}]


@pytest.mark.parametrize("bodies", [{}, {"body": b"{}"}])
def test_a_journal_without_previous_bodies_has_no_patch(bodies: dict[str, bytes]) -> None:
    with pytest.raises(ConfigurationError, match="change 7: the journal keeps no bodies") as caught:
        change(ChangeKind.UPDATED, **bodies).patch()
    assert caught.value.hint == 'set journal = "previous" in the sink\'s options'
