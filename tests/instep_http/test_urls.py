"""URLs: which can be sent to, and what of them is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from instep.errors import ConfigurationError, SourceError
from instep_http.urls import check_url, parse_url, read_listen, shown

BAD = ["http://[", "http://h:99999999/", "http://..a/", f"http://{'a' * 300}/"]


@pytest.mark.parametrize(
    "text", [*BAD, "", "h", "/path", "ftp://h", "http://", "http://a..b", "file:///x", "http:///x"]
)
def test_what_nothing_can_be_sent_to_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(SourceError, match="not a URL of http") as raised:
        parse_url(text)
    assert not raised.value.retriable


@pytest.mark.parametrize(
    "text", ["http://h", "https://h.example./a?b=c", "http://[::1]:8/", "http://bücher.example/"]
)
def test_others_are_read(text: str) -> None:
    assert parse_url(text) == URL(text)


@given(st.text() | st.text().map("http://{}".format))
def test_any_text_is_a_url_or_an_error_of_ours(text: str) -> None:
    try:
        assert parse_url(text).scheme in {"http", "https"}
    except SourceError as error:
        assert "?" not in error.where or "?" in text or not text.isprintable()  # noqa: PT017


@pytest.mark.parametrize(
    "text",
    [
        "https://user:pass@h/a?secret#secret",
        "https://secret@h/a",
        "https://a:b@secret@h/a",
        "//secret@h/a",
        "secret@h/a",
        "http://[secret@h/a",
    ],
)
def test_secrets_of_a_url_are_not_shown(text: str) -> None:
    assert "secret" not in shown(text)
    assert shown(text).endswith("h/a")


def test_a_url_is_shown_on_one_short_line() -> None:
    assert shown("http://h/\x1b[31m\n") == "http://h/?[31m?"
    assert len(shown("http://" + "h" * 1_000)) == 200


@pytest.mark.parametrize("text", ["https://u:hush@a", "https://hush@a", "ftp://hush@a"])
def test_a_login_in_a_configured_url_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_url(text, ("https",), "x", login_hint="use auth")
    assert "hush" not in str(raised.value)


def test_a_secret_url_may_hold_a_login_and_is_not_shown() -> None:
    assert check_url("http://u:hush@a", ("http",), "x", secret=True).password == "hush"
    with pytest.raises(ConfigurationError) as raised:
        check_url("ftp://u:hush@a", ("http",), "x", secret=True)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("text", BAD[:2])
def test_a_configured_url_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a URL"):
        check_url(text, ("http",), "x")


def test_where_to_listen() -> None:
    assert str(read_listen("127.0.0.1:9555", "x")) == "http://127.0.0.1:9555"
    assert read_listen("https://h:1/in", "x") == URL("https://h:1/in")
    for text in ("http://h/?q=1", "http://h/#a", "ftp://h"):
        with pytest.raises(ConfigurationError):
            read_listen(text, "x")
