"""`instep entities`."""

import json
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import T0, failed, fill, instep, lines, started, statement

KEYS = [
    "consumer",
    "stream",
    "key",
    "class",
    "token",
    "appended_at",
    "attempt",
    "body",
    "proven_at",
    "proven_by",
]


def test_a_line_has_exactly_the_members_that_are_promised(tmp_path: Path) -> None:
    url = fill(tmp_path)
    (line,) = lines(instep("entities", "--store", url, "--format", "jsonl"))
    assert list(line) == KEYS
    assert line["stream"] == "network"
    assert (line["key"], line["class"], line["token"]) == ("k50", "NODE", "t50")
    assert line["appended_at"] == T0.replace("456Z", "506Z")
    assert line["attempt"] == 2
    assert line["body"] == {"uuid": "u50"}


@pytest.mark.parametrize(
    ("body", "spliced"),
    [
        (b'{"b":1.0,"a" : 1e400,"b":12345678901234567890}', None),
        ('{"name":"Köln \\u00e4 ✓"}'.encode(), None),
        (b'{\r\n  "a": "x\\ny"\n}', b'{    "a": "x\\ny" }'),
    ],
)
def test_a_body_is_spliced_in_verbatim_on_one_line(
    tmp_path: Path, body: bytes, spliced: bytes | None
) -> None:
    url = fill(tmp_path, statement(1, body, "ODD"))
    result = instep("entities", "--store", url, "--class", "ODD", "--format", "jsonl")
    assert result.stdout_bytes.count(b"\n") == 1
    assert b'"body":' + (spliced or body) in result.stdout_bytes


def test_what_is_not_proven_is_marked(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b"{}", "CONDITION_DETECTOR"))
    by_key = {
        line["key"]: line for line in lines(instep("entities", "--store", url, "--format", "jsonl"))
    }
    assert by_key["k1"]["proven"] is False
    assert "proven" not in by_key["k50"]


def test_entities_are_chosen_by_stream_and_class(tmp_path: Path) -> None:
    url = fill(tmp_path, statement(1, b"{}", "CONDITION_DETECTOR"))

    def keys(*options: str) -> list[str]:
        found = lines(instep("entities", "--store", url, *options, "--format", "jsonl"))
        return [line["key"] for line in found]

    assert keys("--class", "CONDITION_DETECTOR") == ["k1"]
    assert keys("--stream", "network") == ["k1", "k50"]
    assert keys("--stream", "quiet") == []


def test_a_stream_that_is_not_there_is_an_error_naming_those_that_are(tmp_path: Path) -> None:
    error = failed(instep("entities", "--store", fill(tmp_path), "--stream", "netwrok"), 2)
    assert error == (
        "error: the store has no stream 'netwrok'\n"
        "  where: --stream\n"
        "  to do: it has: network, quiet\n"
    )


def test_a_table_counts_what_it_shows_and_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    url = fill(tmp_path, statement(1, b'{"name":"[red]\x1b[2J"}', "ODD"))
    result = instep("entities", "--store", url)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "[red]" in result.stdout
    assert result.stdout.rstrip().endswith("2 entities")


def test_a_table_of_several_parts_has_one_heading(tmp_path: Path) -> None:
    # All of class NODE are swept: of the other class 450 stay.
    url = fill(tmp_path, *[statement(1_000 + n, b"{}", "ODD") for n in range(450)])
    shown = instep("entities", "--store", url).stdout
    assert shown.count("Class") == 1
    assert shown.count("k1") == 450
    assert shown.rstrip().endswith("451 entities")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    url = fill(
        tmp_path, *[statement(1_000 + n, b'{"x":"%s"}' % (b"x" * 200), "ODD") for n in range(999)]
    )
    process = started("entities", "--store", url, "--format", "jsonl")
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        first = process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(30) == 0, errors
    assert json.loads(first)["key"] == "k1000"
    assert errors == b""
