"""The page of a report: it needs nothing else, shows what a peer sent as text, and reads on phones
and on paper.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from instep.cli.conformance.page import page
from instep.conformance import ConformanceReport, Evidence, RuleLevel, RuleResult, RuleStatus

BEGAN_US = 1_800_000_000_000_000
S = 1_000_000
HELD, BROKEN, NOT_SEEN = RuleStatus.HELD, RuleStatus.BROKEN, RuleStatus.NOT_SEEN
HOSTILE = '<script>alert(1)</script><img src="http://elsewhere/x">'


def result(
    status: RuleStatus, rule: str = "tapi-order", *times_s: float, content: bytes = b"{}"
) -> RuleResult:
    evidence = [Evidence(BEGAN_US + round(one * S), f"at {one}", content) for one in times_s]
    return RuleResult(
        rule=rule,
        chapter="The log",
        clause="TR-548 3.11.2",
        level=RuleLevel.MUST,
        text="Records come in their order.",
        status=status,
        held=1_234 * (status is HELD),
        broken=len(times_s),
        reason="offset 4 came behind 5" if status is BROKEN else "",
        evidence=evidence,
        provoke="Run it longer." if status is NOT_SEEN else "",
    )


def report(*results: RuleResult, subject: str = "http://provider") -> ConformanceReport:
    return ConformanceReport(
        protocol="tapi",
        title="TAPI streaming",
        subject=subject,
        edition="2.6",
        began_at_us=BEGAN_US,
        ended_at_us=BEGAN_US + 100 * S,
        connections=2,
        messages=7,
        results=results,
    )


class Elements(HTMLParser):
    """The elements of a page, and whether each one that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "br", "line", "circle"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def css(media: str = "") -> str:
    """The rules for a medium; without one, those for all."""
    (style,) = re.findall(r"<style>(.*)</style>", page(report()), re.DOTALL)
    if not media:
        return str(style).partition("@media (max-width")[0]
    return str(style).partition(f"@media {media}{{")[2].partition("\n@media")[0]


def test_it_needs_nothing_else() -> None:
    text = page(report(result(BROKEN, "tapi-order", 1, 2), result(HELD), result(NOT_SEEN)))
    elements = Elements(text)
    names = {name for name, _ in elements.found}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    assert not re.search(r"url\(|@import|https?://(?!provider)", text)
    assert [one["href"] for one in elements.all("a")] == ["#tapi-order"]
    assert {"id": "tapi-order", "class": "broken"} in elements.all("article")


def test_what_a_peer_sent_is_text() -> None:
    hostile = result(BROKEN, "tapi-order", 1, content=HOSTILE.encode())
    hostile = msgspec.structs.replace(hostile, reason=HOSTILE)
    text = page(report(hostile, subject=HOSTILE))
    assert not Elements(text).all("script")
    assert not Elements(text).all("img")
    assert text.count("&lt;script&gt;") >= 3


@pytest.mark.parametrize("pieces", [1, 2, 3, 6])
def test_each_break_has_a_timeline_whose_words_are_not_cut(pieces: int) -> None:
    times = [10.0 * number for number in range(1, pieces + 1)]
    text = page(report(result(BROKEN, "tapi-order", *times)))
    (picture,) = re.findall(r"<svg.*?</svg>", text)
    (width,) = re.findall(r'viewBox="0 0 (\d+) ', picture)
    places = {
        word: (int(x), len(word) * 7)
        for x, word in re.findall(r'<text x="(\d+)"[^>]*>([^<]+)<', picture)
    }
    # In the middle of its place, each letter about seven wide.
    assert all(x - wide / 2 >= 0 and x + wide / 2 <= int(width) for x, wide in places.values())
    assert {str(one) for one in range(1, pieces + 1)} <= places.keys()
    assert picture.count("<circle") == pieces
    assert "aria-label=" in picture


def test_a_single_piece_of_evidence_stands_between_beginning_and_end() -> None:
    text = page(report(result(BROKEN, "tapi-order", 40)))
    (picture,) = re.findall(r"<svg.*?</svg>", text)
    words = re.findall(r"<text[^>]*>([^<]+)<", picture)
    assert words == ["beginning", "+0 ms", "1", "+40 s", "end", "+100 s"]


def test_a_break_without_evidence_has_no_timeline() -> None:
    assert "<svg" not in page(report(result(BROKEN)))


def test_long_words_are_broken_and_no_line_is_cut() -> None:
    rules = css()
    assert "p,li,td,h3{overflow-wrap:anywhere}" in rules
    assert "pre{white-space:pre-wrap;overflow-wrap:anywhere" in rules


def test_a_phone_shows_level_and_times_below_the_rule() -> None:
    text = page(report(result(HELD), result(NOT_SEEN, "tapi-token")))
    assert '<span class="soft narrow"><br>must, 1,234×</span>' in text
    assert '<span class="soft narrow"><br>must</span>' in text
    narrow = css("(max-width:36rem)")
    hidden = {"td.level", "th.level", "td.count", "th.count"}
    assert all(f"{one}{{display:none}}" in narrow for one in hidden)
    assert ".narrow{display:inline}" in narrow
    assert ".narrow{display:none}" in css()


def test_paper_shows_all_of_the_evidence_in_dark_ink() -> None:
    paper = css("print")
    assert "pre{max-height:none;overflow:visible" in paper
    assert "--paper:#fff;--card:#fff;--ink:#000" in paper
    assert "break-inside:avoid" in css()


def test_dark_has_colours_of_its_own_for_each_name() -> None:
    (light,) = re.findall(r":root\{color-scheme:light dark;(.*?)\}", css(), re.DOTALL)
    (dark,) = re.findall(r"prefers-color-scheme:dark\)\{:root\{(.*?)\}", css(), re.DOTALL)
    names = re.compile(r"--\w+")
    assert names.findall(light) == names.findall(dark)


def test_no_status_is_told_by_colour_alone() -> None:
    text = page(report(result(BROKEN, "tapi-order", 1), result(HELD), result(NOT_SEEN)))
    for mark in ("✗ broken", "✓ held", "– not seen"):
        assert mark in text
