"""What stands below an attribute is its meaning."""

import msgspec

from instep.config.attribute_docs import attribute_docs


class Base(msgspec.Struct):
    first: int
    """Of the base.

    On one line.
    """
    untold: int


class Inner(Base):
    second: int = 0
    """Of the class itself."""
    third = "x"
    """A plain value."""


def test_inherited_and_own_texts_are_found() -> None:
    assert attribute_docs(Inner) == {
        "first": "Of the base. On one line.",
        "second": "Of the class itself.",
        "third": "A plain value.",
    }


def test_a_class_without_source_has_none() -> None:
    assert attribute_docs(int) == {}
    assert attribute_docs(msgspec.defstruct("Made", [("a", int)], module="no.such")) == {}
