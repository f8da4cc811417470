"""A report of conformance as one HTML page that needs nothing else: no script, no request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from instep.cli.output import plain_lines, stamp
from instep.conformance import ConformanceReport, Evidence, RuleLevel, RuleResult, RuleStatus
from instep.model.durations import duration

__all__ = ["page"]

_MARKS: Final = {RuleStatus.HELD: "✓", RuleStatus.BROKEN: "✗", RuleStatus.NOT_SEEN: "–"}
_CLASSES: Final = {
    RuleStatus.HELD: "held",
    RuleStatus.BROKEN: "broken",
    RuleStatus.NOT_SEEN: "unseen",
}
_SHOWN_BYTES: Final = 8_000
_WIDTH: Final = 440
_MARGIN: Final = 34
_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2329;--soft:#5b6770;--line:#d5dbe0;--paper:#fff;
--card:#f6f8f9;--bad:#a3201d;--good:#1d6b3c;--accent:#2563a8}
@media (prefers-color-scheme:dark){:root{--ink:#e7ebee;--soft:#a2adb6;--line:#37424b;
--paper:#14191d;--card:#1c2329;--bad:#ff8d85;--good:#7fd6a0;--accent:#8abaf0}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:56rem;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2.25rem 0 .5rem}
h3{font-size:1rem;margin:0 0 .25rem}
a{color:var(--accent)}p{margin:.25rem 0 .5rem}.soft{color:var(--soft)}
p,li,td,h3{overflow-wrap:anywhere}.narrow{display:none}
.verdict{border-left:.4rem solid;padding:.6rem .9rem;background:var(--card);margin:1rem 0;
font-size:1.1rem}
.verdict.broken{border-color:var(--bad)}.verdict.held{border-color:var(--good)}
.mark{display:inline-block;min-width:6.2rem;font-weight:600}
.broken>.mark,.mark.broken{color:var(--bad)}.held>.mark,.mark.held{color:var(--good)}
.mark.unseen{color:var(--soft)}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem .35rem 0;
border-top:1px solid var(--line)}
td.mark{display:table-cell;width:6.5rem;white-space:nowrap}td.level{width:4rem}
td.count,th.count{width:4.5rem;text-align:right;padding-right:0}
article{background:var(--card);border-left:.4rem solid var(--bad);padding:.8rem 1rem;
margin:.8rem 0;break-inside:avoid}
article.should{border-left-style:double}
.timeline{overflow-x:auto;margin:.5rem 0}
svg{width:100%;height:auto;min-width:21rem;max-width:34rem;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
svg line{stroke:var(--soft)}svg circle{fill:var(--paper);stroke:var(--bad);stroke-width:2}
svg circle.last{fill:var(--bad)}
ol{padding-left:1.4rem;margin:.4rem 0}li{margin:.4rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--paper);
border:1px solid var(--line);padding:.5rem;margin:.25rem 0;font:13px/1.4 ui-monospace,monospace;
max-height:18rem;overflow:auto;user-select:all}
code{font:13px ui-monospace,monospace}
@media (max-width:36rem){td.level{display:none}th.level{display:none}td.count{display:none}
th.count{display:none}td.mark{width:5.6rem}.narrow{display:inline}}
@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--soft:#444;--bad:#8a0000;--good:#004d20;
--line:#999}body{max-width:none;font-size:11px}pre{max-height:none;overflow:visible;font-size:9px}
.timeline{overflow:visible}svg{min-width:0}
h2{break-after:avoid}tr{break-inside:avoid}}
"""


def page(report: ConformanceReport) -> str:
    """The report as HTML. What a peer sent is shown as text, and never as markup."""
    status = RuleStatus.HELD if report.conforms else RuleStatus.BROKEN
    status = status if report.judged else RuleStatus.NOT_SEEN
    kind, mark = _CLASSES[status], _MARKS[status]
    seen = sum(one.status is not RuleStatus.NOT_SEEN for one in report.results)
    chapters = dict.fromkeys(one.chapter for one in report.results)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{_text(report.title)}: {_text(report.subject)}</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{_text(report.title)}</h1><p>{_text(report.subject)}</p>",
        f'<p class="soft">{_text(_seen(report))}</p>',
        (
            f'<p class="verdict {kind}"><strong>{mark} {report.verdict.capitalize()}.</strong>'
            f" Of {len(report.results)} rules {seen} were seen, {len(report.broken)} of"
            " them broken.</p>"
        ),
        _broken_list(report),
        *(f"<p>Note: {_text(note)}</p>" for note in report.notes),
        (
            '<p class="soft">This is what was seen on this connection. A proxy on the way can lose,'
            " repeat and refuse as well.</p>"
        ),
    ]
    for chapter in chapters:
        parts += _chapter(chapter, report)
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def _broken_list(report: ConformanceReport) -> str:
    """What is broken, each with the way to its evidence."""
    items = "".join(
        f'<li><a href="#{_text(one.rule)}">{_text(one.text)}</a> <span class=soft>({one.level},'
        f" {_text(one.clause)})</span></li>"
        for one in report.broken
    )
    return f"<p>Broken:</p><ol>{items}</ol>" if items else ""


def _seen(report: ConformanceReport) -> str:
    edition = f"edition {report.edition}; " if report.edition else ""
    seconds = duration((report.ended_at_us - report.began_at_us) / 1e6)
    part = "; not all of them were judged" if report.skipped else ""
    return (
        f"{edition}{report.messages:,} messages over {report.connections:,} connections in"
        f" {seconds}, from {stamp(report.began_at_us)}{part}"
    )


def _chapter(name: str, report: ConformanceReport) -> list[str]:
    results = [one for one in report.results if one.chapter == name]
    counts = [
        f"{sum(one.status is status for one in results)} {status}"
        for status in (RuleStatus.BROKEN, RuleStatus.HELD, RuleStatus.NOT_SEEN)
    ]
    broken = any(one.status is RuleStatus.BROKEN for one in results)
    seen = any(one.status is RuleStatus.HELD for one in results)
    worst = RuleStatus.BROKEN if broken else RuleStatus.HELD if seen else RuleStatus.NOT_SEEN
    parts = [
        (
            f'<section><h2><span class="mark {_CLASSES[worst]}">{_MARKS[worst]} {worst}</span>'
            f' {_text(name)}</h2><p class="soft">{", ".join(counts)}</p>'
        )
    ]
    parts += [_break(one, report) for one in results if one.status is RuleStatus.BROKEN]
    others = [one for one in results if one.status is not RuleStatus.BROKEN]
    if others:
        parts.append(
            '<table><thead><tr><th>Status</th><th class="level">Level</th><th>Rule</th>'
            '<th class="count">Times</th></tr></thead><tbody>'
        )
        parts += [_row(one) for one in others]
        parts.append("</tbody></table>")
    parts.append("</section>")
    return parts


def _row(result: RuleResult) -> str:
    times = f"{result.held:,}" if result.held else ""
    more = f'<span class="soft narrow"><br>{result.level}{times and f", {times}×"}</span>'
    if result.status is RuleStatus.NOT_SEEN:
        more += f'<br><span class="soft">To see it: {_text(result.provoke)}</span>'
    return (
        f'<tr id="{_text(result.rule)}"><td class="mark {_CLASSES[result.status]}">'
        f'{_MARKS[result.status]} {result.status}</td><td class="level">{result.level}</td>'
        f"<td>{_text(result.text)} <span class=soft>({_text(result.clause)})</span>{more}</td>"
        f'<td class="count">{times}</td></tr>'
    )


def _break(result: RuleResult, report: ConformanceReport) -> str:
    timeline = _timeline(result.evidence, report.began_at_us, report.ended_at_us)
    should = "" if result.level is RuleLevel.MUST else " should"
    items = "".join(
        f"<li>{stamp(one.at_us)}<br>{_text(one.what)}{_bytes(one)}</li>" for one in result.evidence
    )
    return (
        f'<article class="broken{should}" id="{_text(result.rule)}"><h3><span class="mark broken">'
        f"✗ broken</span> {_text(result.text)}</h3>"
        f'<p class="soft"><code>{_text(result.rule)}</code>, {_text(result.clause)}:'
        f" {result.level}. Broken {result.broken:,}, held {result.held:,} times.</p>"
        f"<p>{_text(result.reason)}</p>{timeline}<ol>{items}</ol></article>"
    )


def _bytes(one: Evidence) -> str:
    if not one.content:
        return ""
    shown = one.content[:_SHOWN_BYTES]
    cut = "" if len(shown) == len(one.content) else f"<p class=soft>{len(one.content):,} bytes</p>"
    return f"<pre tabindex=0>{_text(shown.decode(errors='replace'))}</pre>{cut}"


def _timeline(found: Sequence[Evidence], began_us: int, ended_us: int) -> str:
    """When each piece of evidence came, by its number in the list below; a single one between the
    beginning and the end of what was seen.
    """
    marks = sorted(
        (one.at_us, str(number), number == len(found)) for number, one in enumerate(found, 1)
    )
    if not marks:
        return ""
    told = f"{len(found)} pieces of evidence within {duration((marks[-1][0] - marks[0][0]) / 1e6)}"
    if len(marks) == 1:
        told = "one piece of evidence, between the beginning and the end of what was seen"
        marks = [(began_us, "beginning", False), *marks, (ended_us, "end", False)]
    first = marks[0][0]
    step = (_WIDTH - 2 * _MARGIN) / (len(marks) - 1)
    parts = []
    for place, (at_us, name, last) in enumerate(marks):
        # To scale the ends would lie on each other: the marks are evenly apart, the times beside.
        x = _MARGIN + place * step
        mark = f'<circle{" class=last" * last} cx="{x:.0f}" cy="26" r="7"/>'
        if not name.isdecimal():
            mark = f'<line x1="{x:.0f}" y1="20" x2="{x:.0f}" y2="32"/>'
        parts.append(
            f'{mark}<text x="{x:.0f}" y="13" text-anchor="middle">{name}</text>'
            f'<text x="{x:.0f}" y="52" text-anchor="middle">'
            f"+{duration(max(0, at_us - first) / 1e6)}</text>"
        )
    return (
        f'<div class="timeline" tabindex="0"><svg viewBox="0 0 {_WIDTH} 60" role="img"'
        f' aria-label="{told}"><line x1="{_MARGIN}" y1="26" x2="{_WIDTH - _MARGIN}" y2="26"/>'
        f"{''.join(parts)}</svg></div>"
    )


def _text(text: str) -> str:
    return escape(plain_lines(text))
