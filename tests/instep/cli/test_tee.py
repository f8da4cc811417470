"""A tee where it cannot be used, and a store that does not keep what a command wants of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep

TEE = """
[[consumers]]
name = "east"
source = {{ kind = "didcomm", listen = "http://127.0.0.1:0/didcomm" }}
sink = {{ kind = "tee", sinks = [
  {{ kind = "sql", url = "sqlite:///{folder}/a.db" }},
  {{ kind = "sql", url = "sqlite:///{folder}/b.db" }},
] }}
"""


def test_a_tee_keeps_no_messages(tmp_path: Path) -> None:
    file = tmp_path / "instep.toml"
    file.write_text(TEE.format(folder=tmp_path))
    error = failed(instep("run", str(file)), 2)
    assert "messages are kept by one sink, and a tee has several" in error


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["handover", "--consumer", "east"], "this kind of store keeps no lease"),
        (["messages"], "this kind of store keeps no messages"),
    ],
)
def test_what_a_lake_does_not_keep_is_an_error_with_its_name(
    command: list[str], missing: str, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    url = tmp_path.as_uri()
    error = failed(instep(*command, "--store", url), 2)
    assert missing in error
    assert url in error
