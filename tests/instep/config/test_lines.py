"""The line of a table or a key in a file of TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.config.lines import find_line, with_line

TEXT = '''# a comment with source = 1
isolation = "process"

[[consumers]]
name = "east"
source = { kind = "tapi", url = "https://a" }

[consumers.sink]
kind = "sql"
note = """
url = "not this one"
[[consumers]]
"""
url = "sqlite:///a.db"

[[consumers]]
name = "west"
"source".url = "https://b"
[consumers.settings.alignment]
quiet_s = 3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("isolation", 2),
        ("consumers[0]", 4),
        ("consumers[0].name", 5),
        ("consumers[0].source", 6),
        ("consumers[0].source.url", 6),
        ("consumers[0].sink", 8),
        ("consumers[0].sink.url", 14),
        ("consumers[0].settings.quiet_s", 4),
        ("consumers[1]", 16),
        ("consumers[1].source.url", 18),
        ("consumers[1].settings.alignment.quiet_s", 20),
        ("consumers[1].settings.alignment.other", 19),
        ("consumers[2]", None),
        ("nothing", None),
    ],
)
def test_the_line_of_a_key(path: str, line: int | None) -> None:
    assert find_line(TEXT, path) == line


def test_a_place_gets_its_line(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text("\ufeff" + TEXT, encoding="utf-8")
    assert with_line(f"{file}: consumers[0].sink", "url").endswith("consumers[0].sink (line 14)")
    assert with_line(f"{file}: consumers[0].sink.url", "url").endswith("(line 14)")


@pytest.mark.parametrize("where", ["", "stream q", "no-such.toml: consumers[0]", "instep.toml"])
def test_another_place_stays_as_it_is(where: str) -> None:
    assert with_line(where) == where
