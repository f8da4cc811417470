"""The page of the port: what a person reads of it, and that no text of a peer makes markup."""

from html.parser import HTMLParser
from math import inf
from typing import Any

import msgspec
import pytest

from instep.metrics.figures import facts_of
from instep.metrics.page import page_of
from instep.metrics.reading_bar import reading_bar
from instep.runtime.health import Health
from tests.instep.metrics.test_readiness import STREAM, health

WELL = health(msgspec.structs.replace(STREAM, behind_s=2.0, unproven=1234))
HOSTILE = "<script>alert(1)</script>\"'&"
AWAY = health(
    msgspec.structs.replace(STREAM, stream=HOSTILE, connected=False, last_error=HOSTILE),
    consumer="west",
)


class Tags(HTMLParser):
    """Collects tags, attributes and text, and knows whether the tags match."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "path", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def told(*healths: Health, **more: Any) -> dict[str, Any]:
    consumers = [facts_of(one) for one in healths]
    ready = all(one["ready"] for one in consumers)
    return {"at": "2026-11-27T10:00:00.5Z", "ready": ready, "consumers": consumers, **more}


def test_it_says_who_is_at_fault_and_shows_each_figure_with_its_name() -> None:
    page = Tags(page_of(told(WELL, AWAY)))
    assert not page.open
    assert "not in step: 1 fault" in page.text
    assert "provider" in page.text
    assert "1,234" in page.text
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert labels == ["2 s behind, compaction after 10 min, retention after 1 h"]
    # On a phone, where the head of the table is not shown, each cell is named.
    assert ("data-of", "Unproven") in page.attributes
    assert "in step" in Tags(page_of(told(WELL))).text
    assert "not in step" not in Tags(page_of(told(WELL))).text


def test_no_text_of_a_peer_makes_markup_and_nothing_is_loaded() -> None:
    event = {"at": "2026-11-27T09:59:59Z", "event": "lost", "consumer": "west"}
    page = Tags(page_of(told(AWAY, events=[{**event, "stream": HOSTILE, "text": HOSTILE}])))
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) == 5
    assert not {"src", "onload", "onerror"} & {name for name, _ in page.attributes}


def test_of_many_streams_those_in_trouble_are_shown() -> None:
    replace = msgspec.structs.replace
    streams = [replace(STREAM, stream=f"s{n:04}") for n in range(1_000)]
    streams[777] = replace(streams[777], connected=False, last_error="gone")
    page = page_of(told(replace(WELL, streams=tuple(streams))))
    assert b"s0777" in page
    assert b"800 more" in page
    assert len(page) < 300_000


@pytest.mark.parametrize(
    ("behind_s", "compaction_s", "retention_s", "shares"),
    [
        (0, 600, 86400, (0.0, 0.4, 0.8)),
        (600, 600, 86400, (0.4, 0.4, 0.8)),
        (86400, 600, 86400, (0.8, 0.4, 0.8)),
        (10**9, 600, 86400, (1.0, 0.4, 0.8)),
        (300, 600, inf, (0.4, 0.8, None)),
        (600, 600, 600, (0.8, 0.8, 0.8)),
        # A provider that keeps ends for less time than states.
        (300, 600, 300, (0.4, 0.8, 0.4)),
        (300, None, 600, (0.4, None, 0.8)),
        (300, None, None, None),
        (None, 600, None, None),
    ],
)
def test_the_bar_stands_between_now_and_what_is_lost(
    behind_s: float | None,
    compaction_s: float | None,
    retention_s: float | None,
    shares: tuple[float, float | None, float | None] | None,
) -> None:
    limits = {"compaction": compaction_s, "retention": retention_s}
    bar = reading_bar({"behind_s": behind_s, "limit_s": limits})
    found = None if bar is None else (bar.behind, bar.compaction, bar.retention)
    assert found == (pytest.approx(shares) if shares else None)
