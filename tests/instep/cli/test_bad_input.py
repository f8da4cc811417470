"""What a user is told who has given something wrong: what, where, and what to do."""

import json
import sqlite3
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from instep.errors import SourceError
from instep_http import ClientSettings, GuardedClient
from tests.instep.cli.cli_kit import failed, fill, instep, statement

CONSUMER = """
[[consumers]]
name = "east"
source = { kind = "tapi", endpoints = ["%(endpoint)s"] }
sink = { kind = "%(kind)s", url = "%(url)s"%(more)s }
%(settings)s
"""
GOOD = {
    "endpoint": "http://127.0.0.1:1",
    "kind": "sql",
    "url": "sqlite:///network.db",
    "more": "",
    "settings": "",
}


@pytest.mark.parametrize(
    ("wrong", "where", "what", "to_do"),
    [
        (
            {"url": "sqlite://network.db"},
            "consumers[0].sink",
            "the key 'url' has the file in the place of a host",
            'write three slashes: url = "sqlite:///network.db"',
        ),
        (
            {"endpoint": "127.0.0.1:8548"},
            "consumers[0].source.endpoints",
            "'127.0.0.1:8548' is not a URL of http:// or https://",
            "write http://127.0.0.1:8548 or https://127.0.0.1:8548",
        ),
        (
            {"more": ', journal = "all"'},
            "consumers[0].sink",
            "the key 'journal' is not usable: 'all' is none of its values",
            '"off", "changes", "bodies" or "previous"',
        ),
        (
            {"more": ', synchronous = "off"'},
            "consumers[0].sink",
            "the key 'synchronous' is not usable: 'off' is none of its values",
            '"full" or "normal"',
        ),
        (
            {"more": ', cache_bytes = "4 MB"'},
            "consumers[0].sink",
            "the key 'cache_bytes' is not usable: Expected a whole number, got a text",
            "write the bytes as a number, without quotation marks",
        ),
        (
            {"settings": '[consumers.settings]\nbatch_records = "many"'},
            "consumers[0].settings",
            "the key 'batch_records' is not usable: Expected a whole number, got a text",
            "write a whole number",
        ),
        (
            {"kind": "postgres"},
            "consumers[0].sink.kind",
            "there is no sink of kind 'postgres'",
            'write kind = "sql" and url = "postgresql://user@host/database"',
        ),
    ],
)
def test_a_wrong_configuration(
    tmp_path: Path, wrong: dict[str, str], where: str, what: str, to_do: str
) -> None:
    path = tmp_path / "instep.toml"
    path.write_text(CONSUMER % (GOOD | wrong))
    error = failed(instep("check", str(path)), 2)
    assert f"error: {what}" in error
    assert f"where: {path}: {where}" in error
    assert to_do in error.partition("to do: ")[2]
    # What `check` refuses, `run` refuses in the same words, before it connects to anything.
    assert failed(instep("run", str(path), "--format", "table"), 2) == error


@pytest.mark.parametrize(
    ("content", "what", "to_do"),
    [
        pytest.param(
            (CONSUMER % GOOD).replace("endpoints", "enpoints"),
            "unknown key 'enpoints'",
            "did you mean 'endpoints'? known keys: ",
            id="misspelled key of a source",
        ),
        pytest.param(
            CONSUMER % (GOOD | {"more": ', jurnal = "off"'}),
            "unknown key 'jurnal'",
            "did you mean 'journal'? known keys: ",
            id="misspelled key of a sink",
        ),
        pytest.param(
            CONSUMER % (GOOD | {"endpoint": "${NOPE}"}),
            "the environment variable NOPE is not set",
            "set it, or give a default: ${NOPE:-…}",
            id="missing environment variable",
        ),
        pytest.param(
            CONSUMER % (GOOD | {"url": "mysql://user@host/database"}),
            "databases of kind 'mysql' are not supported",
            'use a URL such as "sqlite:///network.db"',
            id="database of another kind",
        ),
        pytest.param(
            "\nx = [1\ny = 2\n",
            "the file is not TOML: Unclosed array (at line 3, column 1)",
            "correct that line",
            id="broken TOML",
        ),
        pytest.param(
            "", "no consumer is configured", "begin one with a line [[consumers]]", id="empty"
        ),
        pytest.param(
            '[consumers]\nname = "east"\n',
            "'consumers' is a single table",
            "write [[consumers]], in two brackets",
            id="one bracket",
        ),
        pytest.param(
            None,
            "there is no such file",
            "name the configuration file, or set INSTEP_CONFIG",
            id="no file",
        ),
    ],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path,
    content: str | None,
    what: str,
    to_do: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    path = tmp_path / "instep.toml"
    if content is not None:
        path.write_text(content)
    error = failed(instep("check", str(path)), 2)
    assert f"error: {what}" in error
    assert f"where: {path}" in error
    assert to_do in error.partition("to do: ")[2]


@pytest.mark.parametrize("command", ["discover", "follow", "init"])
def test_an_address_without_a_scheme(command: str) -> None:
    error = failed(instep(command, "127.0.0.1:8548"), 2)
    assert "error: '127.0.0.1:8548' is not a URL of http:// or https://" in error
    assert "where: URL" in error
    assert "to do: write http://127.0.0.1:8548 or https://127.0.0.1:8548" in error


def test_a_provider_that_does_not_run() -> None:
    error = failed(instep("discover", "http://127.0.0.1:1"), 1)
    assert "error: the connection is refused" in error
    assert "to do: check that the server runs, and that the port is right" in error


def test_a_stream_that_is_not_there(tmp_path: Path) -> None:
    store = fill(tmp_path, statement(1, b"{}"))
    error = failed(instep("entities", "--store", store, "--stream", "none"), 2)
    assert "'none'" in error
    assert "it has: network, quiet" in error


@asynccontextmanager
async def served(tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    """A web server; yields its host and port."""
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def refusal(url: str, tls_hint: str) -> SourceError:
    context = ssl.create_default_context()
    async with GuardedClient(ClientSettings(tls_hint=tls_hint), context) as client:
        with pytest.raises(SourceError) as caught:
            await client.send("GET", url)
    return caught.value


@pytest.mark.asyncio
async def test_a_server_with_tls_asked_without() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with served(tls) as place:
        error = await refusal(f"http://{place}/", "")
    assert "https://" in error.hint


@pytest.mark.asyncio
async def test_a_server_without_tls_asked_with_it() -> None:
    async with served(None) as place:
        error = await refusal(f"https://{place}/", "the certificate")
    assert "http://" in error.hint
    assert "the certificate" not in error.hint


def test_a_certificate_of_an_unknown_issuer_names_both_ways() -> None:
    from instep_tapi.restconf.client import TLS_HINT

    assert "tls.ca" in TLS_HINT
    assert 'tls.verify = "off"' in TLS_HINT


def test_a_class_that_no_entity_has(tmp_path: Path) -> None:
    error = failed(
        instep("entities", "--store", fill(tmp_path, statement(1, b"{}")), "--class", "NODEX"), 2
    )
    assert "the store has no entity of class 'NODEX'" in error
    assert "it has: NODE" in error


def test_what_is_named_and_not_there_ends_with_2(tmp_path: Path) -> None:
    store = fill(tmp_path, statement(1, b"{}"))
    missing = f"sqlite:///{tmp_path / 'none.db'}"
    with sqlite3.connect(tmp_path / "foreign.db") as foreign:
        foreign.execute("CREATE TABLE customers (id int)")
    for arguments in (
        ("status", "--store", missing),
        ("status", "--store", f"sqlite:///{tmp_path / 'foreign.db'}"),
        ("quarantine", "show", "77", "--store", store),
        ("entities", "--store", store, "--stream", "none"),
    ):
        failed(instep(*arguments), 2)


def test_errors_are_json_lines_where_output_is(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path / 'none.db'}"
    (line,) = failed(instep("status", "--store", missing, "--format", "jsonl"), 2).splitlines()
    told = json.loads(line)
    assert told.pop("at")
    assert told == {
        "log": "error",
        "logger": "instep.cli",
        "code": "no-store",
        "text": "there is no such store",
        "where": str(tmp_path / "none.db"),
        "to_do": "look at the path in the URL",
    }


def test_a_database_of_another_program_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sqlite3.connect(tmp_path / "network.db") as foreign:
        foreign.execute("CREATE TABLE customers (id int)")
    store = fill(tmp_path, statement(1, b"{}"))
    (warning,) = [text for one in caplog.records if "customers" in (text := one.getMessage())]
    assert "instep_" in warning
    caplog.clear()
    instep("quarantine", "drop", "1", "--store", store)
    assert not [one for one in caplog.records if "customers" in one.getMessage()]
