"""Writes what is deployed beside instep from its tables: `python -m docs.operations`.

The alert rules for Prometheus from `instep.metrics.alerts`, and a dashboard for Grafana from
`instep.metrics.figures`. A test compares what is committed with what the code says.
"""

import json
from pathlib import Path
from typing import Any

from instep.metrics.alerts import ALERTS
from instep.metrics.figures import FIGURES, Figure, FigureKind, Subject

__all__ = ["FILES", "alert_pages", "dashboard", "rules", "write_files"]

DEPLOY = Path(__file__).parents[1] / "deploy"


def rules() -> str:
    """The rules file of Prometheus."""
    lines = [
        "# Made by `python -m docs.operations`. The run book: docs/how-to/run-book.md",
        "groups:",
        "  - name: instep",
        "    rules:",
    ]
    for one in ALERTS:
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {json.dumps(one.expression)}",
            *([f"        for: {one.for_s}s"] if one.for_s else []),
            f"        labels: {{ severity: {one.severity} }}",
            "        annotations:",
            f"          summary: {json.dumps(one.meaning)}",
            f"          runbook: docs/how-to/run-book.md#{one.name.lower()}",
        ]
    return "\n".join(lines) + "\n"


def alert_pages() -> str:
    """The run book: what each alert means, what to look at, what to do."""
    parts = []
    for one in ALERTS:
        after = f" for {one.for_s:,} s" if one.for_s else ""
        parts.append(
            f"## {one.name}\n\n{one.meaning}\n\n"
            f"- **Fires** ({one.severity}): `{one.expression}`{after}.\n"
            f"- **Look at**: {one.look_at}\n"
            f"- **Do**: {one.to_do}"
        )
    return "\n\n".join(parts)


def dashboard() -> str:
    """The dashboard of Grafana: a panel for each figure, with the question that it answers."""
    panels: list[dict[str, Any]] = []
    for subject in Subject:
        panels.append(_row(str(subject), len(panels)))
        for place, one in enumerate(each for each in FIGURES if each.subject is subject):
            panels.append(_panel(one, len(panels), place))
    told = {
        "title": "instep operations",
        "uid": "instep-operations",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "consumer",
                    "type": "query",
                    "query": "label_values(instep_consumer_ready, consumer)",
                    "multi": True,
                    "includeAll": True,
                    "current": {"text": "All", "value": "$__all"},
                }
            ]
        },
        "panels": panels,
    }
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def _row(title: str, number: int) -> dict[str, Any]:
    place = {"h": 1, "w": 24, "x": 0, "y": number * 8}
    return {"type": "row", "id": number + 1, "title": title, "gridPos": place}


def _panel(figure: Figure, number: int, place: int) -> dict[str, Any]:
    chosen = f'{figure.name}{{consumer=~"$consumer"}}'
    counts = figure.kind is FigureKind.COUNTER
    legend = " ".join(f"{{{{{label}}}}}" for label in figure.labels)
    return {
        "type": "timeseries",
        "id": number + 1,
        "title": figure.question,
        "description": f"`{figure.name}`: {figure.meaning}",
        "gridPos": {"h": 8, "w": 8, "x": place % 3 * 8, "y": number * 8},
        "fieldConfig": {"defaults": {"unit": "s" if figure.unit else "short"}, "overrides": []},
        "targets": [{"expr": f"rate({chosen}[5m])" if counts else chosen, "legendFormat": legend}],
    }


FILES = {
    "prometheus/instep.rules.yaml": rules,
    "grafana/instep-operations.json": dashboard,
}
"""Path below `deploy` → what writes it."""


def write_files() -> None:
    """Write all of them; they are committed."""
    for name, write in FILES.items():
        path = DEPLOY / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    write_files()
