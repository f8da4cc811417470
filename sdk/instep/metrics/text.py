"""The figures as text that Prometheus reads (exposition format 0.0.4).

Written here, and not by prometheus-client: of a thousand streams that takes ten times as long. A
test reads it by that library, and compares it with what the collector gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instep.metrics.figures import FIGURES, NAMES, Judged, Subject, judged, labelled
from instep.runtime.health import Health

__all__ = ["CONTENT_TYPE", "text_of"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text_of(healths: Sequence[Health]) -> bytes:
    """All figures that are known, with what they mean."""
    found = judged(healths)
    places = {subject: [_place(subject, one) for one in many] for subject, many in found.items()}
    lines: list[str] = []
    for figure in FIGURES:
        name, read = figure.name, figure.read
        lines.append(f"# HELP {name} {figure.meaning}\n# TYPE {name} {figure.kind}\n")
        for place, (_, health, faults) in zip(
            places[figure.subject], found[figure.subject], strict=True
        ):
            value = read(health, faults)
            if figure.label:
                lines += [
                    f'{name}{{{place},{figure.label}="{label}"}} {+one}\n'
                    for label, one in labelled(figure, value)
                ]
            elif value is not None:
                lines.append(f"{name}{{{place}}} {+value}\n")  # type: ignore[operator]
    return "".join(lines).replace(" inf\n", " +Inf\n").encode()


def _place(subject: Subject, one: Judged) -> str:
    return ",".join(
        f'{name}="{text.translate(_ESCAPES)}"'
        for name, text in zip(NAMES[subject], one.names, strict=True)
    )
