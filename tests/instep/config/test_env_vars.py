"""Variables in a configuration, and hiding again what came from them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.config.env_vars import expand, redact
from instep.errors import ConfigurationError

ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "HOST": "ctrl"}


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("${TOKEN}", "s3cret"),
        ("https://${HOST}:8443/${TOKEN}", "https://ctrl:8443/s3cret"),
        ("${MISSING:-8443}", "8443"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${HOST:-other}", "ctrl"),
        ("$${TOKEN}", "${TOKEN}"),
        ("a$b $5", "a$b $5"),
        ("$$$$", "$$"),
    ],
)
def test_a_text_is_filled_in(written: str, filled: str) -> None:
    assert expand(written, "f", ENVIRON)[0] == filled


def test_texts_are_filled_in_at_any_depth_and_nothing_else_is_touched() -> None:
    table = {"a": [{"b": "${HOST}"}, 1, True, 2.5], "${HOST}": "x"}
    filled, values = expand(table, "f", ENVIRON)
    assert filled == {"a": [{"b": "ctrl"}, 1, True, 2.5], "${HOST}": "x"}
    assert values == {"ctrl": "${HOST}"}


def test_what_a_variable_gives_is_not_filled_in_again() -> None:
    assert expand("${A}", "f", {"A": "${B}", "B": "no"})[0] == "${B}"


def test_a_variable_that_is_not_set_is_named_with_its_place() -> None:
    with pytest.raises(ConfigurationError) as caught:
        expand({"auth": [{"token": "${MISSING}"}]}, "f: source", ENVIRON)
    assert caught.value.message == "the environment variable MISSING is not set"
    assert caught.value.where == "f: source.auth[0].token"
    assert "${MISSING:-…}" in caught.value.hint


@pytest.mark.parametrize("written", ["${", "${TOKEN", "${}", "${1A}", "${A-B}", "${ TOKEN }"])
def test_what_only_looks_like_a_variable_is_refused(written: str) -> None:
    with pytest.raises(ConfigurationError, match="does not begin a variable") as caught:
        expand(written, "f.key", ENVIRON)
    assert caught.value.where == "f.key"


def test_values_are_hidden_again_as_whole_words() -> None:
    values = {"s3cret": "${TOKEN}", "1": "${N}"}
    redacted = redact("expected 10, got 's3cret' and 1, in s3crets", values)
    assert redacted == "expected 10, got '${TOKEN}' and ${N}, in s3crets"


def test_the_longer_value_is_hidden_first() -> None:
    assert redact("pa ss", {"pa": "${A}", "pa ss": "${B}"}) == "${B}"


@given(st.text(alphabet="${}:-AB_1 é") | st.text())
def test_any_text_is_filled_in_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        filled, values = expand(text, "f", {"A": "1", "B": ""})
        assert isinstance(filled, str)
        assert values in ({}, {"1": "${A}"})
