"""Neither the core, nor a store, nor the lake knows what a protocol means: its words stand in them
only where a rule is cited.
"""

import re

import pytest

from tests.test_layout import REPOSITORY

WORD = re.compile(r"tapi|condition[-_]?detector|TR-548", re.IGNORECASE)
CITED = re.compile(r"TR-548\s+(?:ST-)?\d")
"""A rule, by its clause: TR-548 3.8.2.2, TR-548 ST-2.2."""
FOLDERS = ("sdk", "store", "spark_sink")


def foreign_words(source: str) -> list[str]:
    """The words of a protocol in a source, but for citations."""
    return [
        found[0] for found in WORD.finditer(source) if not CITED.match(source, pos=found.start())
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_protocol_is_known_in(folder: str) -> None:
    sources = sorted((REPOSITORY / folder).rglob("*.py"))
    assert len(sources) > 50
    found = {
        str(path.relative_to(REPOSITORY)): words
        for path in sources
        if (words := foreign_words(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('"""Of a part (TR-548 3.8.2.2, 4.9)."""', []),
        ('"""A sweep (TR-548\nST-2.2 step 7)."""', []),
        ('"""As TR-548 has it."""', ["TR-548"]),
        ('DETECTOR = "CONDITION_DETECTOR"', ["CONDITION_DETECTOR"]),
        ('name = "condition-detector-type"', ["condition-detector"]),
        ("from instep_tapi.facts import times", ["tapi"]),
        ('"tapi-streaming:log-record"', ["tapi"]),
    ],
)
def test_the_law_sees(source: str, words: list[str]) -> None:
    assert foreign_words(source) == words
