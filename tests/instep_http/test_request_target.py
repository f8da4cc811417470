"""Which path of which host a request means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from instep_http.request_target import RequestTarget, ServedPaths, read_target


@pytest.mark.parametrize(
    ("raw", "path", "authority"),
    [
        ("/in", "/in", None),
        ("/in?a=1", "/in", None),
        ("//in", "//in", None),
        ("/i%6e", "/in", None),
        ("/in%2fa", "/in%2Fa", None),
        ("/%25", "/%25", None),
        ("/%", "/%", None),
        ("/ü", "/%C3%BC", None),
        ("/\udcfc", "/%FC", None),
        ("/./in/../in", "/./in/../in", None),
        ("http://evil.example/in", "/in", "evil.example"),
        ("HTTPS://h:8/in?b", "/in", "h:8"),
        ("http://h", "/", "h"),
        ("http://h?q", "/", "h"),
        ("http://a@h/in", "/in", "a@h"),
        ("http:///in", "/in", ""),
        ("http://h//in", "//in", "h"),
    ],
)
def test_both_forms_that_mean_a_resource_are_read(
    raw: str, path: str, authority: str | None
) -> None:
    assert read_target(raw) == RequestTarget(path, authority)


@pytest.mark.parametrize(
    "raw",
    ["*", "", "?", "in", "host:80", "ftp://h/in", "/in#x", "http:/in", "http://h#x", "ws://h"],
)
def test_other_forms_mean_nothing_of_ours(raw: str) -> None:
    assert read_target(raw) is None


@pytest.mark.parametrize(
    ("listen", "below", "served", "not_served"),
    [
        (
            "http://h/in",
            False,
            ["/in", "/%69n", "/in?q", "http://h/in"],
            ["//in", "/in/", "/", "/IN", "/in%2F", "/./in", "/in;a", "/in%00"],
        ),
        ("http://h", False, ["/", "http://h", "/?a"], ["//", "/a"]),
        ("http://h/in", True, ["/in", "/in/", "/in/a", "/in/a%2Fb"], ["/ina", "/in%2Fa", "//in/a"]),
        ("http://h/gr%C3%B6%C3%9Fe", False, ["/größe", "/gr%c3%b6%c3%9fe"], ["/grosse"]),
        ("http://h/größe", False, ["/größe", "/gr%C3%B6%C3%9Fe"], []),
    ],
)
def test_exactly_its_path_is_served(
    listen: str, below: bool, served: list[str], not_served: list[str]
) -> None:
    paths = ServedPaths(URL(listen), below=below)
    for raw in [*served, *not_served]:
        target = read_target(raw)
        assert target is not None
        assert paths.serves(target.path) == (raw in served), raw


@given(st.text(st.characters(codec="utf-8", exclude_characters="?#"), max_size=20))
def test_to_normalize_again_changes_nothing(text: str) -> None:
    once = read_target(f"/{text}")
    assert once is None or read_target(once.path) == once
