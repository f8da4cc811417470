"""Options: every mistake is reported with its key, where it is and what would be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep.model.streams import Mode, StreamInfo
from instep_tapi.options import Bearer, NoAuth, StreamOptions, read_options
from instep_tapi.plugin import source as plugin
from instep_tapi.source import TapiSource
from tests.instep_tapi.log_record_kit import log_record

WHERE = "consumers[0].source"
GOOD = {"endpoints": ["https://a:8443"]}


def test_everything_but_the_endpoint_has_a_default() -> None:
    options = read_options({"kind": "tapi", "endpoints": "https://a:8443"}, WHERE)
    assert options.endpoints == ("https://a:8443",)
    assert options.auth == NoAuth()
    assert options.streams == StreamOptions()
    assert options.tls.verifies
    assert (options.max_frame_bytes, options.pong_interval_s) == (4 * 1024 * 1024, 15)


def test_secrets_are_not_shown() -> None:
    table: dict[str, Any] = {
        **GOOD,
        "auth": {"kind": "bearer", "token": "s3cret"},
        "proxy": "http://u:s3cret@p:1",
        "headers": {"X-Key": "s3cret"},
    }
    options = read_options(table, WHERE)
    assert isinstance(options.auth, Bearer)
    assert options.auth.token is not None
    assert options.auth.token.reveal() == "s3cret"
    login = {"kind": "login", "path": "/l", "body": {"password": "s3cret"}}
    assert "s3cret" not in repr(options) + repr(read_options({**GOOD, "auth": login}, WHERE))


@pytest.mark.parametrize(
    ("table", "where", "message"),
    [
        ({}, "", "the key 'endpoints' is missing"),
        ({"endpoints": []}, "", "the key 'endpoints' has no endpoint"),
        ({"endpoints": ["ftp://a"]}, ".endpoints", "not a URL of http:// or https://"),
        ({"endpoints": ["http://"]}, ".endpoints", "not a URL"),
        ({"endpoints": ["http://a:99999"]}, ".endpoints", "a port is at most 65535"),
        ({"endpoints": ["http://a/?x=s3cret"]}, ".endpoints", "ends with a query or a fragment"),
        ({"endpoints": ["http://a/#s3cret"]}, ".endpoints", "ends with a query or a fragment"),
        ({"endpoints": ["https://u:p@a"]}, ".endpoints", "a URL with a login"),
        ({"endpoints": ["https://token@a"]}, ".endpoints", "a URL with a login"),
        (
            {**GOOD, "stream_hosts": ["https://a"]},
            ".stream_hosts",
            "not the name or address of a host",
        ),
        ({**GOOD, "stream_hosts": ["a:1"]}, ".stream_hosts", "not the name or address of a host"),
        ({**GOOD, "stream_hosts": [""]}, ".stream_hosts", "not the name or address of a host"),
        (
            {**GOOD, "auth": {"kind": "login", "path": "http://[", "body": {}}},
            ".auth.path",
            "is not a URL",
        ),
        ({**GOOD, "stream": {}}, "", "unknown key 'stream' — did you mean 'streams'?"),
        ({**GOOD, "streams": {"class": ["NODE"]}}, ".streams", "did you mean 'classes'?"),
        ({**GOOD, "streams": {"classes": "NODE"}}, ".streams", "Expected a list"),
        ({**GOOD, "streams": 1}, ".streams", "Expected a table"),
        ({**GOOD, "auth": {"kind": "basic"}}, ".auth", "there is no login of kind 'basic'"),
        ({**GOOD, "auth": {"kind": "bearer"}}, ".auth", "0 tokens given"),
        (
            {**GOOD, "auth": {"kind": "bearer", "token": "s3cret", "token_env": "X"}},
            ".auth",
            "2 tokens given: token, token_env",
        ),
        ({**GOOD, "auth": {"kind": "bearer", "token": 12}}, ".auth", "Expected text"),
        (
            {**GOOD, "auth": {"kind": "bearer", "token": "s3cret\nX: y"}},
            ".auth.token",
            "the token has a line break",
        ),
        ({**GOOD, "auth": {"kind": "bearer", "token": " "}}, ".auth.token", "the token is empty"),
        (
            {**GOOD, "auth": {"kind": "bearer", "tokn": "s3cret"}},
            ".auth",
            "did you mean 'token'?",
        ),
        (
            {**GOOD, "auth": {"kind": "oauth2", "token_url": "/t", "client_id": "a"}},
            ".auth",
            "client_secret is missing",
        ),
        (
            {**GOOD, "auth": {"kind": "oauth2", "token_url": "/t", "grant": "password"}},
            ".auth",
            "username is missing",
        ),
        ({**GOOD, "auth": {"kind": "login", "path": "/l"}}, ".auth", "the key 'body' is missing"),
        ({**GOOD, "tls": {"ca": "/no/such.pem"}}, ".tls.ca", "no such file: /no/such.pem"),
        ({**GOOD, "tls": {"verify": "no"}}, ".tls", "'no' is none of its values"),
        ({**GOOD, "pong_interval_s": 0}, ".pong_interval_s", "must be above 0"),
        ({**GOOD, "max_frame_bytes": "4 MB"}, "", "Expected a whole number"),
        ({**GOOD, "headers": {"X Tenant": "s3cret"}}, ".headers", "'X Tenant' is not the name"),
        ({**GOOD, "headers": {"authorization": "s3cret"}}, ".headers", "for a login use auth"),
        ({**GOOD, "headers": {"Sec-WebSocket-Key": "s3cret"}}, ".headers", "set by the source"),
        ({**GOOD, "headers": {"X-A": "s3cret\r\nX-B: c"}}, ".headers.X-A", "control character"),
        ({**GOOD, "headers": {"X-A": 1}}, "", "Expected text"),
        ({**GOOD, "proxy": "s3cret"}, ".proxy", "*** is not a URL"),
    ],
)
def test_mistakes(table: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        plugin.check(table, WHERE)
    assert raised.value.where == WHERE + where
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_certificate_file_without_certificates(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("nothing")
    with pytest.raises(ConfigurationError, match="the file has no usable certificates") as raised:
        plugin.check({**GOOD, "tls": {"ca": str(ca)}}, WHERE)
    assert raised.value.where == f"{WHERE}.tls.ca"
    with pytest.raises(ConfigurationError, match="certificate and key do not fit"):
        plugin.check({**GOOD, "tls": {"cert": str(ca)}}, WHERE)


def test_a_quarantined_frame_is_read_again_as_its_stream_declares() -> None:
    by_log = StreamInfo(id="s", origin="o", kind="tapi")
    assert plugin.decode(b"[]", by_log).records == []
    [unreadable] = plugin.decode(b'{"token"', by_log).unreadable
    assert unreadable.stream == "s"
    node = {"record-content": "NODE", "node": {"uuid": "u"}}
    raw = json.dumps(log_record(body=node)).encode()
    by_change = StreamInfo(id="s", origin="o", kind="tapi", partial_updates=True)
    by_baseline = StreamInfo(id="s", origin="o", kind="tapi", mode=Mode.BASELINE)
    for info, whole, uuid in (
        (by_log, True, ""),
        (by_change, False, "u"),
        (by_baseline, True, "u"),
    ):
        [record] = plugin.decode(raw, info).decode().records
        assert (record.whole, record.uuid) == (whole, uuid)


def test_a_table_that_was_not_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"TapiSource\(read_options\(table\)\)"):
        TapiSource(GOOD)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^read_options: "):
        read_options({})
