"""Mistakes of whoever writes `instep.toml` for the first time: `instep check` says what, where, and
what to do.
"""

from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep

TAPI = """[[consumers]]
name = "east"
[consumers.source]
kind = "tapi"
endpoints = ["http://127.0.0.1:8080"]
[consumers.sink]
kind = "sql"
url = "sqlite:///network.db"
"""
DELTA = TAPI.replace(
    'kind = "sql"\nurl = "sqlite:///network.db"', 'kind = "delta"\nurl = "file:///lake"'
)
SDPI = TAPI.replace(
    'kind = "tapi"\nendpoints = ["http://127.0.0.1:8080"]',
    'kind = "sdpi"\nprovider = "http://127.0.0.1:1/device"\nlisten = "127.0.0.1:0"',
)
PUBLISHER = """[[publishers]]
name = "hook"
store = "sqlite:///network.db"
[publishers.target]
kind = "http"
url = "http://127.0.0.1:9/changes"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("instep.toml")


def told(file: Path, text: str) -> str:
    file.write_bytes(text.encode())
    return failed(instep("check", "instep.toml"), 2)


@pytest.mark.parametrize(
    ("text", "old", "new", "where", "to_do"),
    [
        (DELTA, "url =", "path =", "sink (line 8)", "did you mean 'url'?"),
        (DELTA, "file:///lake", "/lake", "sink (line 8)", 'write url = "file:///lake"'),
        (
            DELTA,
            "url =",
            'spark = "local"\nurl =',
            "sink (line 8)",
            "write a table; its keys: conf",
        ),
        (
            DELTA,
            "url =",
            "spark = { nodes = 2 }\nurl =",
            "sink.spark (line 8)",
            "known keys: config",
        ),
        (TAPI, "url =", "path =", "sink (line 8)", "did you mean 'url'?"),
        (
            TAPI,
            "sqlite:///network.db",
            "postgres://h/db",
            "sink (line 8)",
            "write postgresql:// in",
        ),
        (TAPI, "endpoints = [", "url = [", "source (line 5)", "did you mean 'endpoints'?"),
        (TAPI, 'kind = "tapi"', 'type = "tapi"', "source (line 3)", 'write kind = "tapi" in place'),
        (
            TAPI,
            'kind = "sql"',
            'Kind = "sql"',
            "sink (line 6)",
            'write kind = "sql" in place of Kind',
        ),
        (TAPI, 'kind = "tapi"\n', "", "source (line 3)", "add kind = …, one of didcomm, nats, "),
        (
            TAPI,
            '"tapi"',
            '"tappi"',
            "source.kind (line 4)",
            "did you mean 'tapi'? sources installed",
        ),
        (
            TAPI,
            "[consumers.sink]",
            "auth = 3\n[consumers.sink]",
            "source.auth (line 6)",
            "for example",
        ),
        (
            *(TAPI, "[consumers.sink]", 'auth = { type = "bearer" }\n[consumers.sink]'),
            *("source.auth (line 6)", 'write kind = "bearer" in place of type'),
        ),
        (
            *(
                TAPI,
                "[consumers.sink]",
                'auth = { kind = "bearer", token = "$TOKEN" }\n[consumers.sink]',
            ),
            *("source.auth.token (line 6)", "a variable is written ${NAME}"),
        ),
        (
            *(TAPI, "[consumers.sink]", 'tls = { ca = "none.pem" }\n[consumers.sink]'),
            *("source.tls.ca (line 6)", "it is looked for as /"),
        ),
        (
            *(TAPI, "[consumers.sink]", 'streams = ["NODE"]\n[consumers.sink]'),
            *("source.streams (line 6)", "write a table; its keys: classes, "),
        ),
        (
            *(TAPI, "[consumers.sink]", 'streams = { classes = "NODE" }\n[consumers.sink]'),
            *("source.streams (line 6)", "write a list, in brackets: classes = [ … ]"),
        ),
        (TAPI, "[consumers.sink]", "[sink]", "instep.toml (line 6)", "write [consumers.sink]"),
        (
            TAPI,
            "[[consumers]]\n",
            "[[consumer]]\n",
            "instep.toml (line 1)",
            "did you mean 'consumers'?",
        ),
        (TAPI, "[[consumers]]\n", "[consumers]\n", "instep.toml (line 1)", "write [[consumers]]"),
        (TAPI, 'name = "east"', "", "consumers[0] (line 1)", 'for example name = "optical-east"'),
        (
            TAPI,
            'name = "east"',
            'name = "e"\nworkers = 0',
            "(line 3)",
            "write a number of at least 1",
        ),
        (
            *(TAPI, 'name = "east"', 'name = "e"\nsettings = { alignment = { quiet_s = "3s" } }'),
            *("settings (line 3)", "write the seconds as a number, without quotation marks"),
        ),
        (
            *(TAPI, 'name = "east"', 'name = "e"\nmemory_limit_bytes = "1GB"'),
            *(
                "(line 3)",
                "write the bytes as a number, without quotation marks and without a unit",
            ),
        ),
        (SDPI, "provider =", "endpoints =", "source (line 5)", "did you mean 'provider'?"),
        (SDPI, '"127.0.0.1:0"', '"8080"', "source.listen (line 6)", 'write "127.0.0.1:8080"'),
        (SDPI, '"127.0.0.1:0"', "8080", "source (line 6)", "write a text, in quotation marks"),
        (
            PUBLISHER,
            "[publishers.target]",
            "[publishers.sink]",
            "(line 4)",
            "did you mean 'target'?",
        ),
        (
            *(PUBLISHER, '[publishers.target]\nkind = "http"\nurl =', "target ="),
            *("target (line 4)", "write target = { kind = …, … }; kinds: http, nats"),
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_to_write(
    file: Path, text: str, old: str, new: str, where: str, to_do: str
) -> None:
    assert old in text
    error = told(file, text.replace(old, new))
    assert where in error
    assert f"to do: {to_do}" in error


@pytest.mark.parametrize(
    ("old", "new", "line", "to_do"),
    [
        ('name = "east"', 'name = "east"\nname = "west"', 3, "a key stands there a second time"),
        (
            "url =",
            "[consumers.sink]\nurl =",
            8,
            "keep one table [consumers.sink]; another consumer",
        ),
        ('"tapi"', "tapi", 4, 'write a text in quotation marks: "tapi"'),
        ('"tapi"', "“tapi”", 4, 'write straight quotation marks: "'),
        ('"tapi"', '"tapi', 4, "close each text by a quotation mark on the line where it begins"),
        ("url =", "alarms = True\nurl =", 8, "write true or false, in small letters"),
        ("name =", "name:", 2, "write key = value, with an equals sign"),
        ("[[consumers]]", '{"consumers": []}', 1, "this is JSON"),
        (
            "[consumers.sink]",
            'streams = {\n  ids = ["a"]\n}\n[consumers.sink]',
            6,
            "write a table in",
        ),
        ("sqlite:///network.db", "C:\\Users\\x.db", 8, "write a text with backslashes in single"),
    ],
)
def test_what_is_not_toml_is_told_in_words(
    file: Path, old: str, new: str, line: int, to_do: str
) -> None:
    error = told(file, TAPI.replace(old, new))
    assert f"line {line}, column" in error
    assert f"to do: {to_do}" in error


@pytest.mark.parametrize(
    "change", [("\n", "\r\n"), ("[[", "\ufeff[["), ("endpoints", "\tendpoints")]
)
def test_what_an_editor_adds_is_no_mistake(file: Path, change: tuple[str, str]) -> None:
    file.write_bytes(TAPI.replace(*change).encode())
    assert instep("check", "instep.toml").exit_code == 0
