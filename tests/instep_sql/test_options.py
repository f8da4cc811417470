"""Options, and the plug-in that reads them."""

from __future__ import annotations

from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_sql import Journal, SqlStore
from instep_sql.options import options_type
from instep_sql.plugin import sink


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"url": "sqlite://", "jurnal": "off"},
            r"unknown key 'jurnal' — did you mean 'journal'. known keys: alarm_names, ",
        ),
        ({}, "the key 'url' is missing"),
        ({"url": "network.db"}, "the key 'url' is not a database URL"),
        ({"url": "mysql://u:pw@host/x"}, "databases of kind 'mysql' are not supported"),
        ({"url": "sqlite://", "journal": "all"}, "the key 'journal' is not usable: .*'all'"),
        ({"url": "sqlite://", "cache_bytes": 5}, "the key 'cache_bytes' is not usable: .*1048576"),
        ({"url": "sqlite://", "busy_timeout_s": "9"}, "the key 'busy_timeout_s' is not usable"),
        ({"url": 5}, "the key 'url' is not usable"),
        ({"url": "sqlite://", "quarantine_max_records": 0}, "'quarantine_max_records'"),
        ({"url": "postgresql://u:pw@host:port/x"}, "the key 'url' is not a database URL"),
        ({"url": "postgresql://u:pw@host:99999/x"}, "'url' is not usable: there is no port 99999"),
        ({"url": "postgresql:///x", "schema": 'a"; --'}, "the key 'schema' is not usable"),
        ({"url": "postgresql:///x?schema=a%22b"}, "the key 'url' is not usable: .*schema"),
        ({"url": "postgresql:///x", "statement_timeout_s": 0}, "'statement_timeout_s'"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        sink.check(options, "instep.toml: consumers[0].sink")
    assert caught.value.where == "instep.toml: consumers[0].sink"
    assert "pw" not in str(caught.value)


def test_what_fits_is_read() -> None:
    options = {"kind": "sql", "url": "sqlite:///x.db", "journal": "bodies", "busy_timeout_s": 3}
    sink.check(options, "here")
    store = sink.build(options, "here")
    assert store.options.journal is Journal.BODIES
    assert store.options.busy_timeout_s == 3
    assert repr(store) == "<SqlStore x.db consumer=None>"


def test_keyword_arguments_are_the_same_keys() -> None:
    assert SqlStore("sqlite://", journal=Journal.PREVIOUS).options == options_type()(
        url="sqlite://", journal=Journal.PREVIOUS
    )
    with pytest.raises(ConfigurationError, match="SqlStore: unknown key 'jurnal'"):
        SqlStore("sqlite://", jurnal="off")


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("sqlite:///x.db", True),
        ("sqlite://", True),
        ("postgresql://u@h/d", True),
        ("postgresql+asyncpg://u@h/d", True),
        ("file:///lake", False),
        ("x.db", False),
    ],
)
def test_urls_of_this_kind(url: str, ours: bool) -> None:
    assert sink.reads(url) is ours
