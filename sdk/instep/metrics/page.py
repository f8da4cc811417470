"""The figures of a process as a page for people: `/` of its port. Pure.

It needs no script and nothing from elsewhere, and renews itself. No meaning stands in a color
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from instep.metrics.reading_bar import reading_bar
from instep.model.durations import duration

__all__ = ["CONTENT_SECURITY_POLICY", "page_of"]

CONTENT_SECURITY_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is run, and nothing is loaded: texts of peers stand on the page."""
_RENEW_S: Final = 5
_MOST_STREAMS: Final = 200
"""Streams shown of one consumer, those in trouble first; a browser is slow with more."""
_PAGES: Final = ("livez", "readyz", "startupz", "metrics", "status.json")

_STYLE: Final = """
:root{color-scheme:light dark;--line:#8886;--weak:#666;--bad:#a40000;--good:#0a5c1e;
--card:#00000008}
@media(prefers-color-scheme:dark){:root{--weak:#aaa;--bad:#ff9d94;--good:#8fdc9f;--card:#ffffff0d}}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:76rem;padding:1rem}
h1{font-size:1.3rem;margin:0}h2{font-size:1.1rem;margin:1.6rem 0 .2rem}
p{margin:.3rem 0}.weak{color:var(--weak)}.bad{color:var(--bad);font-weight:600}
.good{color:var(--good);font-weight:600}ul{margin:.4rem 0;padding-left:1.2rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);
vertical-align:top;overflow-wrap:anywhere}th{overflow-wrap:normal;font-weight:600;color:var(--weak)}
svg{display:block;width:100%;min-width:9rem;height:1.1rem}
svg .way{fill:none;stroke:var(--line);stroke-width:2}svg .mark{stroke:currentColor;stroke-width:2;
vector-effect:non-scaling-stroke}
svg .at{fill:currentColor}
footer{margin-top:2rem;color:var(--weak)}a{color:inherit}
@media(max-width:50rem){thead{display:none}table,tbody,tr,td{display:block}
tr{background:var(--card);margin:.6rem 0;padding:.5rem .7rem;border-radius:.4rem}
td{border:0;padding:.1rem 0;text-align:left}
td[data-of]::before{content:attr(data-of) ": ";color:var(--weak)}}
"""


def page_of(told: Mapping[str, Any]) -> bytes:
    """The page of what `/status.json` tells."""
    consumers: Sequence[Mapping[str, Any]] = told["consumers"]
    faults = sum(len(one["faults"]) for one in consumers)
    verdict = (
        '<p class="good">in step</p>'
        if told["ready"]
        else f'<p class="bad">not in step: {faults:,} {"fault" if faults == 1 else "faults"}</p>'
    )
    renewed = f"{told['at'][:19]}Z, renewed every {_RENEW_S} s"
    body = [f'<h1>instep</h1>{verdict}<p class="weak">{escape(renewed)}</p>']
    body += (part for one in consumers for part in _consumer(one))
    body += _events(told.get("events") or ())
    links = " · ".join(f'<a href="/{one}">/{one}</a>' for one in _PAGES)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="refresh" content="{_RENEW_S}">'
        f"<title>{'in step' if told['ready'] else 'not in step'} – instep</title>"
        f"<style>{_STYLE}</style></head><body><main>{''.join(body)}</main>"
        f"<footer>{links}</footer></body></html>\n"
    ).encode()


def _consumer(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{escape(one['consumer'])}</h2>"
    said = [f"it is {one['state']}"]
    if one["store_answer_age_s"] is not None:
        said.append(f"the store answered {duration(one['store_answer_age_s'])} ago")
    if one["lease_held"] is not None:
        said.append(
            f"{'active' if one['lease_held'] else 'stands by'}, epoch {one['lease_epoch']:,}"
        )
    yield f'<p class="weak">{escape("; ".join(said))}</p>'
    if one["faults"]:
        yield "<ul>"
        for fault in one["faults"]:
            place = f"{fault['stream']}: " if fault["stream"] else ""
            yield (
                f'<li><span class="bad">{escape(fault["part"])}</span>:'
                f" {escape(place + fault['text'])}</li>"
            )
        yield "</ul>"
    if one.get("intake"):
        yield from _intake(one["intake"])
    if one["streams"]:
        yield from _streams(one["streams"])


def _streams(streams: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    shown = sorted(streams, key=lambda one: (bool(one["ready"]), one["stream"]))
    heads = ("Stream", "State", "Heard", "Last record", "Behind", "Unproven", "Quarantine")
    yield from _table(heads, (_stream_cells(heads, one) for one in shown[:_MOST_STREAMS]))
    if (left := len(shown) - _MOST_STREAMS) > 0:
        yield f'<p class="weak">{left:,} more, none of them in more trouble</p>'


def _stream_cells(heads: Sequence[str], one: Mapping[str, Any]) -> str:
    verdict = "" if one["ready"] else '<span class="bad">not in step</span><br>'
    behind = escape(duration(one["behind_s"])) + _bar(one)
    cells = (
        escape(one["stream"]),
        f"{verdict}{escape(one['state'])}, attempt {one['attempt']:,}",
        escape(duration(one["heard_age_s"])),
        escape(duration(one["record_age_s"])),
        behind,
        f"{one['unproven']:,}",
        f"{one['quarantined']:,}",
    )
    return _row(heads, cells)


def _bar(one: Mapping[str, Any]) -> str:
    """Now at the left, the past at the right: what may be missing should end far from the marks."""
    bar = reading_bar(one)
    if bar is None:
        return ""
    limits, marks = one["limit_s"], []
    told = [f"{duration(one['behind_s'])} behind"]
    for name, at in (("compaction", bar.compaction), ("retention", bar.retention)):
        if at is not None:
            marks.append(f'<path class="mark" d="M{at * 100:.1f} 2v14"/>')
            told.append(f"{name} after {duration(limits[name])}")
    return (
        f'<svg viewBox="0 0 100 18" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(", ".join(told))}"><path class="way" d="M0 9h100"/>'
        f'{"".join(marks)}<path class="at" d="M0 6h{max(bar.behind * 100, 1):.1f}v6H0z"/></svg>'
        f'<span class="weak">{escape(", ".join(told[1:]))}</span>'
    )


def _intake(one: Mapping[str, Any]) -> Iterator[str]:
    heads = ("Listens", "Sequences", "Held", "Oldest gap", "Blocked", "Dead letter", "Delivered")
    cells = (
        "yes" if one["listening"] else "no",
        f"{one['sequences']:,}",
        f"{one['held']:,}",
        duration(one["gap_age_s"]),
        f"{one['blocked_sequences']:,}",
        f"{one['dead']:,}",
        f"{one['delivered']:,}",
    )
    yield from _table(heads, [_row(heads, cells)])


def _events(events: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if not events:
        return
    yield "<h2>Events</h2>"
    heads = ("At", "Event", "Of", "Text")
    rows = (
        _row(
            heads,
            (
                escape(one["at"][:19].replace("T", " ")),
                escape(one["event"]),
                escape(" / ".join(filter(None, (one["consumer"], one["stream"])))),
                escape(one["text"]),
            ),
        )
        for one in reversed(events)
    )
    yield from _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[str]) -> Iterator[str]:
    yield f"<table><thead><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table>"


def _row(heads: Sequence[str], cells: Sequence[str]) -> str:
    """On a phone each cell says itself what it is of."""
    told = (f'<td data-of="{head}">{cell}</td>' for head, cell in zip(heads, cells, strict=True))
    return f"<tr>{''.join(told)}</tr>"
