"""The comparison that decides how the demo ends."""

from instep_tapi_provider.cli.demo_compare import compare

STATED = {
    "a": ("NODE", b'{"x":1,"y":2}'),
    "b": ("NODE", b'{"x":1}'),
    "c": ("LINK", b'{"x":1}'),
    "d": ("LINK", b"{}"),
}


def test_the_same_value_in_another_order_is_equal() -> None:
    held = STATED | {"a": ("NODE", b'{"y": 2, "x": 1}')}
    found = compare(STATED, held)
    assert all(one.agrees for one in found.values())
    assert {name: (one.stated, one.held, one.equal) for name, one in found.items()} == {
        "LINK": (2, 2, 2),
        "NODE": (2, 2, 2),
    }


def test_each_way_to_differ_is_distinguished() -> None:
    held = {
        "b": ("NODE", b'{"x":2}'),
        "c": ("NODE", b'{"x":1}'),
        "d": ("LINK", b"{}"),
        "e": ("SERVICE", b"{}"),
    }
    found = compare(STATED, held)
    assert not any(one.agrees for one in found.values())
    assert (found["NODE"].missing, found["NODE"].stale, found["NODE"].phantom) == (["a"], ["b"], [])
    assert (found["LINK"].stale, found["LINK"].equal) == (["c"], 1)
    assert (found["SERVICE"].phantom, found["SERVICE"].stated) == (["e"], 0)


def test_nothing_agrees_with_nothing() -> None:
    assert compare({}, {}) == {}
