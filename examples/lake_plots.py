"""Three pictures of a lake: where alarms are, which detectors flap, how well it was followed.

    instep lake run instep.toml --once
    python examples/lake_plots.py /var/lib/lake pictures

The tables are read by `deltalake`: who looks at a lake needs no Spark. Draws with matplotlib.
Without a lake it makes a small one from a simulated provider first, and that needs Spark.
"""

from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from lake_simulation import simulated_lake
from simulation import described

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

SEVERITIES = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
PLACE = ("measured_entity_uuid", "measured_entity_native_id", "measured_entity_class", "node_uuid")
COLORS = {
    "full fidelity": "tab:green",
    "reduced fidelity": "gold",
    "at risk": "tab:orange",
    "lost": "tab:red",
}


MARKERS = "os^vDP*X"
LINEAR_S = 60
"""Where all delays are shorter, the axis is linear."""


def read(lake: str, table: str, columns: list[str]) -> list[dict[str, Any]]:
    """The rows of a table of the lake."""
    engine = QueryBuilder().register(table, DeltaTable(f"{lake}/{table}"))
    found = pa.table(engine.execute(f"SELECT {', '.join(columns)} FROM {table}"))
    return list(found.to_pylist())


class Names:
    """The names of the places of a lake by their uuids, as `topology` has them."""

    def __init__(self, lake: str) -> None:
        rows = read(lake, "topology", ["uuid", "name", "node_uuid"])
        self._names = {row["uuid"]: row["name"] for row in rows}
        self._nodes = {row["uuid"]: row["node_uuid"] for row in rows}

    def measured(self, alarm: dict[str, Any]) -> str:
        """What an alarm is raised at: its name, else its native id, else its class."""
        native, kind = alarm["measured_entity_native_id"], alarm["measured_entity_class"]
        name = self._names.get(alarm["measured_entity_uuid"])
        return str(name or native or f"a {kind or 'place'} without a name")

    def node(self, alarm: dict[str, Any]) -> str:
        """The node that an alarm is raised at; else what else it is at, a link told as one."""
        node = alarm["node_uuid"] or self._nodes.get(alarm["measured_entity_uuid"])
        if node in self._names:
            return str(self._names[node])
        link = "link " if alarm["measured_entity_class"] == "LINK" else ""
        return f"{link}{self.measured(alarm)}"


def save(figure: Figure, axes: Axes, path: Path, title: str, nothing: str = "") -> None:
    """Write a picture; `nothing` is said in place of axes where there is nothing to show."""
    figure.suptitle(title)
    if nothing:
        axes.set_axis_off()
        figure.text(0.5, 0.5, nothing, ha="center", va="center")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def heat_map(lake: str, path: Path, most: int = 25) -> Counter[tuple[str, str]]:
    """Episodes by node and worst severity."""
    names = Names(lake)
    counts: Counter[tuple[str, str]] = Counter()
    for alarm in read(lake, "alarms", [*PLACE, "worst_severity"]):
        counts[names.node(alarm), alarm["worst_severity"] or "WARNING"] += 1
    totals: Counter[str] = Counter()
    for (node, _), count in counts.items():
        totals[node] += count
    nodes = [node for node, _ in totals.most_common(most)]
    figure, axes = plt.subplots(figsize=(7, 1 + 0.3 * max(3, len(nodes))), layout="constrained")
    if nodes:
        cells = [[counts[node, severity] for severity in SEVERITIES] for node in nodes]
        image = axes.imshow(cells, aspect="auto", cmap="Reds", vmin=0)
        for row, line in enumerate(cells):
            for column, count in enumerate(line):
                dark = 2 * count > max(map(max, cells))
                axes.text(
                    column, row, str(count), ha="center", va="center", color="w" if dark else "k"
                )
        axes.set_xticks(range(len(SEVERITIES)), SEVERITIES)
        axes.set_yticks(range(len(nodes)), nodes)
        figure.colorbar(image, label="episodes", ticks=MaxNLocator(integer=True))
    axes.set_xlabel("worst severity")
    axes.set_ylabel("node, or what else it is at")
    title = "Alarm episodes by place and worst severity"
    save(figure, axes, path, title, "" if nodes else "no alarm was raised")
    return counts


def flapping(lake: str, path: Path, most: int = 15) -> list[tuple[str, int]]:
    """The detectors that were raised again most often within ten minutes of their last end."""
    names = Names(lake)
    worst: Counter[str] = Counter()
    columns = ["condition", "condition_normalized", "flapping_count"]
    for alarm in read(lake, "alarms", [*PLACE, *columns]):
        condition = alarm["condition_normalized"] or alarm["condition"] or "an alarm"
        name = f"{condition} at {names.measured(alarm)}"
        worst[name] = max(worst[name], alarm["flapping_count"])
    top = [(name, count) for name, count in worst.most_common(most) if count]
    figure, axes = plt.subplots(figsize=(9, 1 + 0.3 * max(3, len(top))), layout="constrained")
    axes.barh([name for name, _ in reversed(top)], [count for _, count in reversed(top)])
    axes.set_xlabel("raises within 600 s of the end before")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    save(figure, axes, path, "Detectors that flap most", "" if top else "no detector flapped")
    return top


def fidelity(lake: str, path: Path) -> int:
    """The worst read delay of each minute, coloured by what it costs (TR-548 3.17.3)."""
    columns = ["stream", "minute", "worst_read_delay_s", "zone"]
    minutes = [m for m in read(lake, "stream_health", columns) if m["zone"]]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    streams = sorted({minute["stream"] for minute in minutes})
    for stream, marker in zip(streams, cycle(MARKERS), strict=False):
        for zone, color in COLORS.items():
            those = [m for m in minutes if (m["stream"], m["zone"]) == (stream, zone)]
            if those:
                times = [minute["minute"] for minute in those]
                delays = [minute["worst_read_delay_s"] for minute in those]
                label = f"{stream[:20]}: {zone}"
                axes.scatter(times, delays, color=color, marker=marker, label=label, s=24)
    worst = max((minute["worst_read_delay_s"] for minute in minutes), default=0)
    if worst > LINEAR_S:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set(xlabel="minute (UTC)", ylabel="longest read delay of the minute (s)")
    axes.set_ylim(bottom=0)
    if minutes:
        axes.legend(fontsize="small")
        figure.autofmt_xdate()
    save(figure, axes, path, "Read delay", "" if minutes else "no stream was followed")
    return len(minutes)


def main(lake: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counts = heat_map(lake, folder / "alarms_by_node.png")
    print(f"{sum(counts.values())} alarm episodes")
    top = flapping(lake, folder / "flapping.png")
    for name, count in top:
        print(f"  {count:4} {name}")
    if not top:
        print("no detector flapped")
    minutes = fidelity(lake, folder / "fidelity.png")
    print(f"{minutes} minutes followed" if minutes else "no stream was followed")
    print(f"pictures of these: {folder}/*.png")


if __name__ == "__main__":
    parser = described(__doc__)
    parser.add_argument("lake", nargs="?", help="its folder or URL; left out, one is made")
    parser.add_argument("pictures", nargs="?", type=Path, default="pictures", help="a folder")
    given = parser.parse_args()
    main((given.lake or simulated_lake()).rstrip("/"), given.pictures)
