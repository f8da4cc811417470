"""What of a configuration may be shown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from instep.config.secret import Secret
from instep.config.shown import masked, shown_table, shown_text


class Inner(msgspec.Struct, tag_field="kind", tag="inner"):
    pin: Secret | None = None
    name: str = ""


class Other(msgspec.Struct, tag_field="kind", tag="other"):
    pin: str = ""


class Outer(msgspec.Struct):
    part: Inner | Other
    parts: tuple[Other, ...] = ()
    free: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    number: int | None = None


def test_only_what_the_options_state_as_no_secret_is_shown() -> None:
    shown = shown_table(
        Outer,
        {
            "part": {"kind": "inner", "pin": "1", "name": "n", "unknown": "u"},
            "parts": [{"kind": "other", "pin": "p"}],
            "free": {"a": "x", "b": {"c": 1}},
            "names": ["a", "http://h/?k=v"],
            "secrets": ["s"],
            "number": 5,
            "unknown": {"k": [1]},
        },
    )
    assert shown == {
        "part": {"kind": "inner", "pin": Secret("1"), "name": "n", "unknown": Secret("u")},
        "parts": [{"kind": "other", "pin": "p"}],
        "free": {"a": Secret("x"), "b": {"c": Secret("1")}},
        "names": ["a", "http://h/?***"],
        "secrets": [Secret("s")],
        "number": 5,
        "unknown": {"k": Secret("[1]")},
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain:text?x=1", "plain:text?x=1"),
        ("/login?k=v", "/login?***"),
        ("sqlite:///network.db", "sqlite:///network.db"),
        ("postgresql://u:p@h:5/db?sslmode=x", "postgresql://***@h:5/db?***"),
        ("postgresql://u:p/@w@h/db", "postgresql://***@h/db"),
        ("postgresql://user@h/db", "postgresql://user@h/db"),
        ("sc://h:15002/;token=abc", "sc://h:15002/;***"),
        ("https://h/x#fragment", "https://h/x#***"),
        ("https://h/?q=a@b", "https://***@b"),
    ],
)
def test_of_a_url_only_its_place_is_shown(text: str, shown: str) -> None:
    assert shown_text(text) == shown


def test_a_variable_alone_shows_no_value() -> None:
    assert masked("${TOKEN}") == "${TOKEN}"
    assert masked({"a": "${TOKEN:-s3cret}", "b": "x${TOKEN}"}) == {
        "a": Secret("${TOKEN:-s3cret}"),
        "b": Secret("x${TOKEN}"),
    }
