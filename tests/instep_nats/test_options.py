"""The table of a source is checked by name, and nothing secret is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_nats import read_options
from instep_nats.plugin import source
from tests.instep.cli.cli_kit import failed, instep

GOOD: dict[str, Any] = {
    "kind": "nats", "servers": "nats://127.0.0.1:4222", "stream": "ORDERS", "number": "subject:3",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"servers": []}, "the key 'servers' has no server"),
        ({"servers": "http://127.0.0.1"}, "not a URL of nats://"),
        ({"servers": "nats://me:secret@127.0.0.1"}, "URL with a login"),
        ({"servers": "nats://127.0.0.1/x"}, "has no path"),
        ({"servers": "nats://10.0.0.7:4222"}, "is not loopback"),
        ({"servers": ["nats://127.0.0.1", "tls://127.0.0.1"]}, "some servers have TLS"),
        ({"tls": {"verify": "off"}}, "no server begins with tls://"),
        ({"servers": "tls://h", "tls": {"ca": "none.pem"}}, "no such file"),
        ({"stream": "a.b"}, "not a name that JetStream accepts"),
        ({"consumer": ""}, "not a name that JetStream accepts"),
        ({"subjects": [""]}, "the key 'subjects' has an empty one"),
        ({"number": "body"}, "names no field"),
        ({"number": "subject:0"}, "names no field"),
        ({"scope": "member:"}, "names no field"),
        ({"id": "header:"}, "names no field"),
        ({"user": "me"}, "belong together"),
        ({"user": "me", "password": "p", "token": "t"}, "a user and a token are both given"),
        ({"sequence": {"gap_policy": "resend"}}, "a broker cannot be asked"),
        ({"sequence": {"gap_last_resort": "realign"}}, "a broker cannot be asked"),
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


def test_check_reads_the_table_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NATS_PASSWORD", "p4ss-word")
    config = tmp_path / "instep.toml"
    text = """[[consumers]]
name = "one"
sink = {{ kind = "sql", url = "sqlite:///one.db" }}
[consumers.source]
kind = "nats"
servers = "{server}"
stream = "ORDERS"
number = "member:number"
user = "me"
password = "${{NATS_PASSWORD}}"
"""
    config.write_text(text.format(server="nats://127.0.0.1:4222"))
    done = instep("check", "instep.toml")
    assert done.exit_code == 0
    assert 'stream = "ORDERS"' in done.stdout
    assert "p4ss" not in done.output
    config.write_text(text.format(server="nats://10.0.0.7:4222"))
    said = failed(instep("check", "instep.toml"), 2)
    assert "consumers[0].source.servers[0]" in said
    assert "tls://10.0.0.7" in said
