"""`instep check`."""

from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep, lines, started

GOOD = """
[[consumers]]
name = "east"
[consumers.source]
kind = "tapi"
endpoints = ["https://ctrl-a:8443"]
auth = { kind = "bearer", token = "${TOKEN}" }
[consumers.sink]
kind = "sql"
url = "sqlite:///network.db"
[consumers.settings]
alignment = { quiet_s = 2 }
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "instep.toml"
    path.write_text(GOOD)
    return path


def test_a_good_file_is_described_and_nothing_is_touched(file: Path) -> None:
    result = instep("check", "instep.toml")
    assert result.exit_code == 0, result.stderr
    assert "s3cret" not in result.stdout
    for line in (
        'endpoints = ["https://ctrl-a:8443"]',
        'auth = { kind = "bearer", token = "${TOKEN}" }',
        'url = "sqlite:///network.db"',
        "alignment.quiet_s = 2.0",
        "instep.toml: good, 1 consumer; connected to nothing",
    ):
        assert line in result.stdout
    assert list(file.parent.iterdir()) == [file]


def test_json_lines_tell_the_same(file: Path) -> None:
    file.write_text(GOOD.replace("${TOKEN}", "written-down"))
    [east] = lines(instep("check", "--format", "jsonl"))
    assert east == {
        "consumer": "east",
        "source": {
            "kind": "tapi",
            "endpoints": ["https://ctrl-a:8443"],
            "auth": {"kind": "bearer", "token": "***"},
        },
        "sink": {"kind": "sql", "url": "sqlite:///network.db"},
        "workers": 1,
        "isolation": "none",
        "memory_limit_bytes": 0,
        "conformance": False,
        "settings": {"alignment.quiet_s": 2.0},
        "warnings": [],
    }


def test_worker_processes_are_shown(file: Path) -> None:
    file.write_text(GOOD.replace('name = "east"', 'name = "east"\nworkers = 4'))
    assert "workers     4 processes" in instep("check", "instep.toml").stdout


def test_a_secret_that_stands_in_the_file_is_not_shown(file: Path) -> None:
    file.write_text(GOOD.replace("${TOKEN}", "written-down"))
    result = instep("check", "instep.toml")
    assert result.exit_code == 0
    assert "written-down" not in result.stdout
    assert "token = ***" in result.stdout


SECRETS = """
[[consumers]]
name = "east"
[consumers.source]
kind = "tapi"
endpoints = ["https://ctrl-a:8443/"]
proxy = "http://proxy.example:1"
[consumers.source.auth]
kind = "login"
path = "/login?k=S3CRET"
body = { user = "me", pwd = "S3CRET", pin = 5678 }
[consumers.source.authenticity]
kind = "hmac"
secret = "S3CRET"
algorithm = "sha256"
[consumers.sink]
kind = "tee"
[[consumers.sink.sinks]]
kind = "sql"
url = "postgresql://instep:S3CRET@db/network?password=S3CRET"
[[consumers.sink.sinks]]
kind = "delta"
url = "s3://bucket/lake"
storage_options = { AWS_REGION = "eu", azure_storage_sas = "S3CRET" }
[consumers.sink.sinks.spark]
remote = "sc://spark:15002/;token=S3CRET"
config = { "fs.azure.account.key.ACCT.dfs" = "S3CRET" }
"""


def test_no_plug_in_shows_a_secret(file: Path) -> None:
    pytest.importorskip("deltalake")
    file.write_text(SECRETS)
    result = instep("check", "instep.toml")
    assert result.exit_code == 0, result.stderr
    for secret in ("S3CRET", "5678", "proxy.example"):
        assert secret not in result.stdout + result.stderr
    for shown in (
        'endpoints = ["https://ctrl-a:8443/"]',
        'kind = "login", path = "/login',
        "body = { user = ***, pwd = ***, pin = *** }",
        'url = "s3://bucket/lake"',
        "azure_storage_sas = ***",
    ):
        assert shown in result.stdout.replace("\n", " "), result.stdout


def test_the_file_is_found_where_it_usually_is(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert instep("check").exit_code == 0
    file.rename(tmp_path / "east.toml")
    assert "there is no such file" in failed(instep("check"), 2)
    monkeypatch.setenv("INSTEP_CONFIG", "east.toml")
    assert instep("check").exit_code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("endpoints", "endpoint"), "unknown key 'endpoint'"),
        (('kind = "tapi"', 'kind = "tappi"'), "there is no source of kind 'tappi'"),
        (('kind = "sql"', 'kind = "delta"'), "it begins with none of file:"),
        (("url =", "uri ="), "unknown key 'uri'"),
        (("sqlite:///network.db", "oracle://u:pw@h/x"), "consumers[0].sink"),
        (("${TOKEN}", "${OTHER}"), "the environment variable OTHER is not set"),
        (("quiet_s", "quite_s"), "did you mean 'quiet_s'?"),
        (("[consumers.sink]", "[consumers.sink"), "line 8"),
        (('"https://ctrl-a:8443"', '"ctrl-a"'), "consumers[0].source"),
    ],
)
def test_a_mistake_ends_with_2_and_shows_where(
    file: Path, change: tuple[str, str], message: str
) -> None:
    file.write_text(GOOD.replace(*change))
    error = failed(instep("check", "instep.toml"), 2)
    assert error.startswith("error: ")
    assert "where: instep.toml" in error
    assert message in error
    assert "s3cret" not in error
    assert "pw" not in error


def test_the_real_command_ends_with_2(file: Path) -> None:
    file.write_text(GOOD.replace("name =", "nmae ="))
    with started("check", str(file)) as process:
        shown, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert shown == b""
    assert errors.decode() == (
        "error: unknown key 'nmae'\n"
        f"  where: {file}: consumers[0] (line 3)\n"
        "  to do: did you mean 'name'? known keys: conformance, isolation, memory_limit_bytes,"
        " name, settings, sink, source, workers\n"
    )


def test_a_class_that_no_edition_knows_is_warned_of_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(
        '[[consumers]]\nname = "a"\nsink = { kind = "sql", url = "sqlite:///a.db" }\n'
        'source = { kind = "tapi", endpoints = ["http://127.0.0.1:1"],'
        ' streams = { classes = ["NODES", "LINK"], only_classes = ["X_VENDOR"] } }\n'
        'settings = { start_order = ["node", "MEG"] }\n'
    )
    [line] = lines(instep("check", str(file), "--format", "jsonl"))
    unknown = "which the specification does not know"
    assert line["warnings"] == [
        f"source.streams.classes names NODES, {unknown}: did you mean NODE?",
        f"source.streams.only_classes names X_VENDOR, {unknown}",
        f"settings.start_order names node, {unknown}: did you mean NODE?",
    ]
    shown = " ".join(instep("check", str(file)).stdout.split())
    assert "did you mean NODE?" in shown


@pytest.mark.parametrize(
    ("below", "key", "line", "place"),
    [
        ('name = "east"', 'journal = "changes"', 4, "[consumers.sink]"),
        ('kind = "tapi"', "quiet_s = 3", 6, "[consumers.settings.alignment]"),
        ('kind = "tapi"', "lease_s = 30", 6, "[consumers.sink]"),
        ('kind = "sql"', 'roots = ["/rests"]', 10, "[consumers.source]"),
        ('kind = "sql"', "workers = 2", 10, "[[consumers]]"),
        ("[consumers.settings]", 'listen = "127.0.0.1:9464"', 12, "[operations]"),
    ],
)
def test_a_key_in_the_wrong_table_is_told_where_it_belongs(
    file: Path, below: str, key: str, line: int, place: str
) -> None:
    file.write_text(GOOD.replace(below, f"{below}\n{key}", 1))
    told = failed(instep("check", "instep.toml"), 2)
    assert f"(line {line})" in told
    assert f"to do: it belongs in {place}; known keys: " in told


def test_a_long_warning_is_not_squeezed_into_the_column_of_kinds(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file.write_text(GOOD.replace("auth =", 'streams = { classes = ["NODES"] }\nauth ='))
    told = instep("check", "instep.toml").stdout
    assert "  commits to  sql   url" in told
    assert "  warning     source.streams.classes names NODES, which the specification" in told
