"""Deep merge and removal of sub-trees."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.model.json_merge import is_same, is_under, merge, prefixes, without

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "uuid", "list"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("base", "change", "merged"),
    [
        ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"c": 3}}, {"a": 1, "b": {"c": 3, "d": 2}}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        (
            [{"uuid": "1", "x": 1}, {"uuid": "2"}],
            [{"uuid": "1", "y": 2}, {"uuid": "3"}],
            [{"uuid": "1", "x": 1, "y": 2}, {"uuid": "2"}, {"uuid": "3"}],
        ),
        ([{"local-id": "1", "x": 1}], [{"local-id": "1", "x": 2}], [{"local-id": "1", "x": 2}]),
        ([{"value-name": "n", "value": 1}], [], []),
        ([{"x": 1}], [{"uuid": "1"}], [{"uuid": "1"}]),
        ([{"uuid": "1"}, {"uuid": "1"}], [{"uuid": "1", "x": 1}], [{"uuid": "1", "x": 1}]),
    ],
)
def test_merge(base: Any, change: Any, merged: Any) -> None:
    assert merge(base, change) == merged


@given(JSON, JSON)
def test_a_change_merged_twice_is_merged_once(base: Any, change: Any) -> None:
    once = merge(base, change)
    assert merge(once, change) == once


TREE = {
    "uuid": "n",
    "tapi-topology:owned-port": [
        {"uuid": "p/1", "name": [{"value-name": "x", "value": "y"}]},
        {"uuid": "p/2"},
    ],
    "state": {"oper": 1, "oper-time": 2},
}


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("/state/oper", {"state": {"oper-time": 2}}),
        ("/state/oper-time", {"state": {"oper": 1}}),
        ("/owned-port/p/2", {"tapi-topology:owned-port": TREE["tapi-topology:owned-port"][:1]}),  # type: ignore[index]
        ("/p/2", {"tapi-topology:owned-port": TREE["tapi-topology:owned-port"][:1]}),  # type: ignore[index]
        (
            "/tapi-topology:owned-port=p/1/name",
            {"tapi-topology:owned-port": [{"uuid": "p/1"}, {"uuid": "p/2"}]},
        ),
    ],
)
def test_a_sub_tree_is_removed(path: str, gone: dict[str, Any]) -> None:
    assert without(TREE, path) == TREE | gone


@pytest.mark.parametrize("path", ["", "/", "/other", "/state/oper/x", "/p/3", "/state/op", "/n/x"])
def test_a_path_that_names_nothing(path: str) -> None:
    assert without(TREE, path) is None


def test_prefixes_are_the_longest_first_and_bounded() -> None:
    assert list(prefixes("u1/port:2#a")) == ["u1/port:2", "u1/port", "u1"]
    assert list(prefixes("plain")) == list(prefixes("/x")) == []
    assert len(list(prefixes("a" + "/" * 1_000_000))) == 64


def test_what_lies_under_a_key() -> None:
    assert is_under("u1/a", "u1")
    assert not is_under("u12", "u1")
    assert not is_under("u1", "u1")


def test_identified_elements_are_the_same_in_any_order() -> None:
    one = {"port": [{"local-id": "1", "tags": [1, 2]}, {"local-id": "2"}], "x": None}
    other = {"x": None, "port": [{"local-id": "2"}, {"tags": [1, 2], "local-id": "1"}]}
    assert is_same(one, other)
    assert not is_same(one, {**other, "y": 1})
    assert not is_same(one, {**other, "port": other["port"][:1]})  # type: ignore[index]
    assert not is_same([1, 2], [2, 1])
    assert is_same([], [])
    assert not is_same([], [{"local-id": "1"}])
