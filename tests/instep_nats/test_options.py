"""The table of a source is checked by name, and nothing secret is shown."""

from __future__ import annotations

from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_nats import read_options
from instep_nats.plugin import source

GOOD: dict[str, Any] = {
    "kind": "nats", "servers": "nats://127.0.0.1:4222", "stream": "ORDERS", "number": "subject:3",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"servers": []}, "no server"),
        ({"servers": "http://127.0.0.1"}, "no URL of nats://"),
        ({"servers": "nats://me:secret@127.0.0.1"}, "login in a URL"),
        ({"servers": "nats://127.0.0.1/x"}, "has no path"),
        ({"servers": "nats://10.0.0.7:4222"}, "is not loopback"),
        ({"servers": ["nats://127.0.0.1", "tls://127.0.0.1"]}, "some servers with TLS"),
        ({"tls": {"verify": "off"}}, "without a server of tls://"),
        ({"servers": "tls://h", "tls": {"ca": "none.pem"}}, "no such file"),
        ({"stream": "a.b"}, "no name of JetStream"),
        ({"consumer": ""}, "no name of JetStream"),
        ({"subjects": [""]}, "no subject"),
        ({"number": "body"}, "names no field"),
        ({"number": "subject:0"}, "names no field"),
        ({"scope": "member:"}, "names no field"),
        ({"id": "header:"}, "names no field"),
        ({"user": "me"}, "belong together"),
        ({"user": "me", "password": "p", "token": "t"}, "two logins"),
        ({"sequence": {"gap_policy": "resend"}}, "nobody can be asked"),
        ({"sequence": {"gap_last_resort": "realign"}}, "nobody can be asked"),
        ({"sequence": {"gap_deadline_s": 10.0}}, "delivers again"),
        ({"sequense": {}}, "did you mean 'sequence'"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source.check({**GOOD, **changes}, "source")
    assert told in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("missing", ["servers", "stream", "number"])
def test_what_is_needed_is_named(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{missing!r} is missing"):
        source.check({key: value for key, value in GOOD.items() if key != missing}, "source")


def test_secrets_are_not_shown() -> None:
    table = {**GOOD, "user": "me", "password": "p4ss"}
    assert "p4ss" not in f"{read_options(table, 'source')!r} {source.shown(table)!r}"
    assert source.shown(table)["user"] == "me"


def test_a_gap_has_an_hour() -> None:
    sequence = read_options(GOOD, "source").sequence
    assert sequence.gap_attempts * sequence.gap_repeat_s == 3600
