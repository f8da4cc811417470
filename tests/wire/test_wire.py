"""The table of the wire is whole, and a few of its cells, played again, are as recorded; all of
them by `make wire`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from instep.testing.relay import RULES
from tests.wire.__main__ import play, read_results
from tests.wire.listeners import LISTENERS, Sender, compare
from tests.wire.matrix import CELLS, KINDS, REFUSED_BY_DESIGN, ROWS

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_rule_and_every_kind_has_its_line() -> None:
    assert {rule for rule, _ in CELLS} == {rule.name for rule in ROWS}
    assert {kind for _, kind in CELLS} == KINDS.keys()
    results = read_results()
    recorded = {(rule, kind) for rule, by_kind in results.items() for kind in by_kind}
    assert recorded == CELLS.keys()
    assert len(RULES) >= 25


def test_every_source_and_sink_of_the_project_is_tried() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    sections = re.findall(r'entry-points."instep\.(?:sources|sinks)"\]\n((?:\w+ = .*\n)+)', text)
    named = {line.partition(" ")[0] for section in sections for line in section.splitlines()}
    tried = {kind.partition("-")[0] for kind in KINDS} | {"sql"} - {"postgresql"}
    assert named - {"tee"} <= tried
    assert LISTENERS.keys() <= KINDS.keys()


def test_every_result_is_a_judgement_with_its_reason() -> None:
    for rule, by_kind in read_results().items():
        for kind, outcome in by_kind.items():
            assert outcome.result != "not played", (rule, kind)
            assert outcome.reason or outcome.result == "ok", (rule, kind)
    assert REFUSED_BY_DESIGN.keys() <= {rule.name for rule in ROWS}


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("cut-every", "didcomm"),
        ("duplicate-request", "wsrm"),
        ("chunked", "wsr"),
        ("jitter", "sdpi-events"),
        ("fragmented-messages", "tapi-websocket"),
        ("buffered", "tapi-sse"),
    ],
)
@pytest.mark.asyncio
async def test_a_cell_played_again_is_as_recorded(rule: str, kind: str) -> None:
    outcome = await play(rule, kind, seed=2)
    assert outcome.result == read_results()[rule][kind].result, outcome.reason


def test_the_comparison_would_notice() -> None:
    def body(number: int, word: str = "Größe") -> bytes:
        return f'<m sender="0" number="{number}" word="{word}"/>'.encode()

    sender = Sender(0, "", None)  # type: ignore[arg-type]
    sender.acknowledged = {1, 2}
    assert compare([sender], [body(1), body(2), body(3)]) == ""
    assert "[2] are acknowledged" in compare([sender], [body(1)])
    assert "[1, 2, 2] were delivered" in compare([sender], [body(1), body(2), body(2)])
    assert "[2, 1] were delivered" in compare([sender], [body(2), body(1)])
    assert "instead of Größe" in compare([sender], [body(1), body(2, "Gr??e")])
