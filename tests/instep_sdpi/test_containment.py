"""What ends with a descriptor: all that it contains, and the states of all of it."""

from __future__ import annotations

from instep_sdpi.containment import Containment
from instep_sdpi.wire.entities import Entity
from instep_sdpi.wire.names import MdibPart


def descriptor(handle: str, parent: str = "") -> Entity:
    return Entity(f"descriptor/{handle}", MdibPart.DESCRIPTION, "X", b"{}", handle, parent)


def state(key: str, handle: str) -> Entity:
    return Entity(f"state/{key}", MdibPart.COMPONENT, "X", b"{}", handle)


def known() -> Containment:
    found = Containment()
    for handle, parent in (("mds", ""), ("vmd", "mds"), ("ch", "vmd"), ("m", "ch"), ("v2", "mds")):
        found.stated(descriptor(handle, parent))
        found.stated(state(handle, handle))
    found.stated(state("patient", "m"))
    return found


def test_a_descriptor_ends_with_all_below_it() -> None:
    found = known()
    for _ in range(2):
        assert sorted(found.within("ch")) == [
            "descriptor/ch",
            "descriptor/m",
            "state/ch",
            "state/m",
            "state/patient",
        ]
    assert sorted(found.within("v2")) == ["descriptor/v2", "state/v2"]


def test_what_is_not_known_ends_by_itself() -> None:
    assert Containment().within("x") == ["descriptor/x"]


def test_an_update_that_names_no_parent_leaves_it_where_it_is() -> None:
    found = known()
    found.stated(descriptor("m"))
    assert found.parent_of("m") == "ch"
    assert "descriptor/m" in found.within("ch")


def test_what_moves_ends_with_its_new_place() -> None:
    found = known()
    found.stated(descriptor("ch", "v2"))
    assert "descriptor/ch" not in found.within("vmd")
    assert {"descriptor/ch", "descriptor/m"} <= set(found.within("v2"))


def test_what_contains_itself_ends_once() -> None:
    found = Containment()
    found.stated(descriptor("a", "b"))
    found.stated(descriptor("b", "a"))
    assert sorted(found.within("a")) == ["descriptor/a", "descriptor/b"]
