"""The figures as text that Prometheus reads (exposition format 0.0.4).

Written here, and not by prometheus-client: of a thousand streams that takes ten times as long. A
test reads it by that library, and compares it with what the collector gives.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from instep.metrics.figures import (
    FIGURES,
    NAMES,
    Figure,
    Judged,
    Subject,
    Unit,
    judged,
    labelled,
)
from instep.runtime.health import Health

__all__ = ["CONTENT_TYPE", "text_of"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_UNSAFE: Final = re.compile(r'[\\"\n]')
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text_of(healths: Sequence[Health]) -> bytes:
    """All figures that are known, with what they mean."""
    found = judged(healths)
    places = {subject: _places(subject, many) for subject, many in found.items()}
    # Figure by figure: the lines of all at once would be megabytes of small strings.
    return b"".join(
        _family(figure, found[figure.subject], places[figure.subject]).encode()
        for figure in FIGURES
    )


def _family(figure: Figure, subjects: Sequence[Judged], places: Sequence[str]) -> str:
    """All lines of one figure. Seconds have three places: the shortest text of a float takes more
    time than all else of its line.
    """
    name, read = figure.name, figure.read
    form = ".3f" if figure.unit is Unit.SECONDS else ""
    lines = [f"# HELP {name} {figure.meaning}\n# TYPE {name} {figure.kind}\n"]
    for place, (_, health, faults) in zip(places, subjects, strict=True):
        value = read(health, faults)
        if figure.label:
            lines += [
                f'{name}{{{place},{figure.label}="{label}"}} {+one:{form}}\n'
                for label, one in labelled(figure, value)
            ]
        elif value is not None:
            lines.append(f"{name}{{{place}}} {+value:{form}}\n")  # type: ignore[operator]
    text = "".join(lines)
    return text.replace(" inf\n", " +Inf\n") if form else text


def _places(subject: Subject, many: Sequence[Judged]) -> list[str]:
    """The labels of the names by which each is told apart."""
    heads = [f'{name}="' for name in NAMES[subject]]
    return [
        ",".join(
            [
                f'{head}{text.translate(_ESCAPES) if _UNSAFE.search(text) else text}"'
                for head, text in zip(heads, one.names, strict=True)
            ]
        )
        for one in many
    ]
