"""A listener of any kind beyond loopback proves who sends, or is allowed by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep, lines
from tests.instep_http.certificates_kit import Certificates

KINDS = {
    "wsrm": {},
    "wsr": {},
    "didcomm": {},
    "sdpi": {"provider": '"http://127.0.0.1:1/device"', "notify_to": '"http://127.0.0.1:2/sdpi"'},
}
NAMED = "allow_unauthenticated = true"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path


def write(kind: str, listen: str, *more: str) -> None:
    options: Mapping[str, str] = KINDS[kind]
    table = [f"{name} = {value}" for name, value in options.items()]
    text = "\n".join([f'kind = "{kind}"', f'listen = "{listen}"', *table, *more])
    Path("instep.toml").write_text(
        f'[[consumers]]\nname = "one"\n[consumers.source]\n{text}\n'
        '[consumers.sink]\nkind = "sql"\nurl = "sqlite:///one.db"\n'
    )


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_loopback_it_is_refused_unless_named(kind: str) -> None:
    listen = "http://0.0.0.0:18111/in"
    write(kind, listen)
    for command in ("check", "run"):
        said = failed(instep(command, "instep.toml"), 2)
        assert "is not loopback" in said
        assert "consumers[0].source.listen" in said
        assert "tls.client_ca" in said
        assert NAMED in said
    write(kind, listen, NAMED)
    assert instep("check", "instep.toml").exit_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_https_alone_proves_nothing_about_who_sends(kind: str, folder: Path) -> None:
    made = Certificates(folder)
    cert, ca = made.tls["cert"], made.tls["client_ca"]
    listen = "https://0.0.0.0:18111/in"
    if kind != "sdpi":  # which always asks for a certificate
        write(kind, listen, f'tls = {{ cert = "{cert}" }}')
        assert "is not loopback" in failed(instep("check", "instep.toml"), 2)
        # Who has signed the certificates of those that we send to says nothing about senders.
        write(kind, listen, f'tls = {{ cert = "{cert}", ca = "{ca}" }}')
        assert "is not loopback" in failed(instep("check", "instep.toml"), 2)
    write(kind, listen, f'tls = {{ cert = "{cert}", ca = "{ca}", client_ca = "{ca}" }}')
    assert instep("check", "instep.toml").exit_code == 0
    write(kind, listen, f'tls = {{ cert = "{cert}", ca = "{ca}", client_ca = "none.pem" }}')
    said = failed(instep("check", "instep.toml"), 2)
    assert "no such file: none.pem" in said
    assert "tls.client_ca" in said


@pytest.mark.parametrize("kind", ["wsrm", "wsr", "didcomm"])
def test_over_http_no_certificate_can_be_asked_for(kind: str, folder: Path) -> None:
    ca = Certificates(folder).tls["client_ca"]
    write(kind, "http://127.0.0.1:18111/in", f'tls = {{ client_ca = "{ca}" }}')
    assert "over https only" in failed(instep("check", "instep.toml"), 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_address_is_shown_and_no_secret(kind: str) -> None:
    write(kind, "http://127.0.0.1:18111/in")
    shown = instep("check", "instep.toml").stdout
    assert 'listen = "http://127.0.0.1:18111/in"' in shown
    [one] = lines(instep("check", "instep.toml", "--format", "jsonl"))
    assert one["source"]["listen"] == "http://127.0.0.1:18111/in"
    if kind in ("wsrm", "wsr"):
        write(
            kind,
            "http://127.0.0.1:18111/in",
            'allow_endpoints = ["https://a.example.org:8443"]',
            "sequence = { limit_messages = 7 }",
            'tls = { ca = "${AUTHORITY}" }',
        )
        said = failed(instep("check", "instep.toml"), 2)
        assert "AUTHORITY" in said
        write(kind, "http://127.0.0.1:18111/in", 'allow_endpoints = ["https://a.example:8443"]')
        assert 'allow_endpoints = ["https://a.example:8443"]' in instep("check").stdout


@pytest.mark.parametrize(
    ("kind", "sequence", "warned"),
    [
        ("didcomm", "", "no sender can be told"),
        ("didcomm", "did = 'did:example:us'", ""),
        ("didcomm", "did = 'did:example:us'\nsequence = { gap_policy = 'skip' }", "is given up"),
        ("wsrm", "", ""),
        ("wsrm", "delivery_assurance = 'AtMostOnce'", "is given up"),
        ("wsrm", "sequence = { gap_attempts = 3 }", "waits for an operator"),
        ("wsr", "", ""),
    ],
)
def test_what_may_be_lost_is_said(kind: str, sequence: str, warned: str) -> None:
    write(kind, "http://127.0.0.1:18111/in", sequence)
    [one] = lines(instep("check", "instep.toml", "--format", "jsonl"))
    assert [warned in warning for warning in one["warnings"]] == [True] * bool(warned)
    shown = instep("check", "instep.toml").stdout
    assert (warned in shown) if warned else ("warning" not in shown)
