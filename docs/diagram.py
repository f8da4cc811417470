"""Draws a state machine from its transition table, as SVG.

The states stand in a column, in the order of the table. Each state has one lane beside the column,
which leads to it and to nothing else; a transition leaves its state on a line of its own, under the
event's name, and joins the lane of its target. So no label meets another, however the table grows.
"""

from collections.abc import Mapping
from html import escape
from itertools import cycle
from typing import TypeVar

State = TypeVar("State", bound=str)
Event = TypeVar("Event", bound=str)

CHARACTER = 7.3  # the width of a character, in px, of the 12 px font
ROW = 24
GAP = 26
LANE = 18
MARGIN = 16
COLOURS = ("#2563a8", "#b4541a", "#2f7d4f", "#8a3f9e", "#a8323e", "#4d6370", "#7a6a12", "#0f7480")
STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1c2329}"
    ".state{font-weight:bold;text-anchor:middle}.stays{fill:#5b6670;text-anchor:middle}"
    "path{fill:none;stroke-width:1.6}"
)


def draw(table: Mapping[State, Mapping[Event, State]], title: str) -> str:
    """The SVG of `{state: {event: next state}}`; an event that changes nothing stays in its box.

    A state that nothing leaves may be missing from the table's own keys.
    """
    targets = (to for events in table.values() for to in events.values())
    states = list(dict.fromkeys([*table, *targets]))
    stays = {
        state: [event for event, to in table.get(state, {}).items() if to == state]
        for state in states
    }
    leaves = {
        state: {event: to for event, to in table.get(state, {}).items() if to != state}
        for state in states
    }
    entered = [state for state in states if any(state in to.values() for to in leaves.values())]
    inside = [*map(str, states), *(f"stays: {event}" for e in stays.values() for event in e)]
    box = MARGIN * 2 + CHARACTER * max(map(len, inside))
    lanes_from = (
        MARGIN
        + box
        + MARGIN * 2
        + CHARACTER * max((len(e) for to in leaves.values() for e in to), default=0)
    )
    lane = {state: lanes_from + LANE * number for number, state in enumerate(entered)}
    colour = dict(zip(states, cycle(COLOURS), strict=False))
    right = MARGIN + box

    boxes: list[str] = []
    exits: list[tuple[Event, float, State]] = []
    entry: dict[State, float] = {}
    top = float(MARGIN)
    for state in states:
        height = ROW * max(1 + len(stays[state]), len(leaves[state]) + (state in lane)) + ROW / 2
        boxes.append(
            f'<rect x="{MARGIN}" y="{top}" width="{box:g}" height="{height}" rx="6"'
            f' fill="#f6f8fa" stroke="{colour[state]}" stroke-width="1.6"/>'
        )
        middle = MARGIN + box / 2
        boxes.append(f'<text class="state" x="{middle:g}" y="{top + ROW}">{escape(state)}</text>')
        boxes.extend(
            f'<text class="stays" x="{middle:g}" y="{top + ROW * (2 + number)}">'
            f"stays: {escape(event)}</text>"
            for number, event in enumerate(stays[state])
        )
        row = top + ROW * 0.75
        if state in lane:
            entry[state] = row
            row += ROW
        for event, to in leaves[state].items():
            exits.append((event, row, to))
            row += ROW
        top += height + GAP
    lines: list[str] = []
    for event, row, to in exits:
        stroke = colour[to]
        lines.append(f'<path d="M{right:g} {row}H{lane[to]:g}V{entry[to]}" stroke="{stroke}"/>')
        lines.append(f'<circle cx="{lane[to]:g}" cy="{row}" r="2.6" fill="{stroke}"/>')
        lines.append(f'<text x="{right + 10:g}" y="{row - 5}">{escape(event)}</text>')
    for state, row in entry.items():
        stroke = colour[state]
        lines.append(f'<path d="M{lane[state]:g} {row}H{right + 8:g}" stroke="{stroke}"/>')
        lines.append(f'<path d="M{right:g} {row}l9 -4.5v9z" style="fill:{stroke}"/>')

    size = f"{lanes_from + LANE * len(lane) + MARGIN:g}", f"{top - GAP + MARGIN:g}"
    told = "\n".join(
        f"{state}: on {event} to {to}"
        for state, events in table.items()
        for event, to in events.items()
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {" ".join(size)}" width="{size[0]}" role="img">
<title>{escape(title)}</title>
<desc>{escape(told)}</desc>
<style>{STYLE}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
{"".join(lines)}
{"".join(boxes)}
</svg>
"""
