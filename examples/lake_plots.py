"""Three pictures of a lake: where alarms are, which detectors flap, how well it was followed.

    instep lake run instep.toml --once
    python examples/lake_plots.py /var/lib/lake pictures

The tables are read by `deltalake`: who looks at a lake needs no Spark. Draws with matplotlib.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib as mpl
from deltalake import DeltaTable

mpl.use("Agg")
from matplotlib import pyplot as plt

SEVERITIES = ("WARNING", "MINOR", "MAJOR", "CRITICAL")
COLORS = {
    "full fidelity": "tab:green",
    "reduced fidelity": "gold",
    "at risk": "tab:orange",
    "lost": "tab:red",
}


def read(lake: str, table: str, columns: list[str]) -> list[dict[str, Any]]:
    """The rows of a table of the lake."""
    found = DeltaTable(f"{lake}/{table}").to_pyarrow_table(columns=columns)
    return list(found.to_pylist())


def heat_map(lake: str, path: Path, most: int = 25) -> Counter[tuple[str, str]]:
    """Episodes by node and worst severity."""
    columns = ["uuid", "class", "name", "node_uuid"]
    places = {place["uuid"]: place for place in read(lake, "topology", columns)}
    names = {uuid: place["name"] or uuid for uuid, place in places.items()}
    counts: Counter[tuple[str, str]] = Counter()
    for alarm in read(lake, "alarms", ["node_uuid", "measured_entity_uuid", "worst_severity"]):
        measured = places.get(alarm["measured_entity_uuid"], {})
        node = alarm["node_uuid"] or measured.get("node_uuid") or alarm["measured_entity_uuid"]
        counts[names.get(node, node or "unknown"), alarm["worst_severity"] or "WARNING"] += 1
    totals: Counter[str] = Counter()
    for (node, _), count in counts.items():
        totals[node] += count
    nodes = [node for node, _ in totals.most_common(most)]
    figure, axes = plt.subplots(figsize=(7, 1 + 0.3 * max(1, len(nodes))), layout="constrained")
    cells = [[counts[node, severity] for severity in SEVERITIES] for node in nodes] or [[0] * 4]
    image = axes.imshow(cells, aspect="auto", cmap="Reds", vmin=0)
    axes.set_xticks(range(len(SEVERITIES)), SEVERITIES)
    axes.set_yticks(range(len(nodes)), nodes)
    axes.set_title("Alarm episodes by node and worst severity")
    figure.colorbar(image, label="episodes")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return counts


def flapping(lake: str, path: Path, most: int = 15) -> list[tuple[str, int]]:
    """The detectors that were raised again most often within ten minutes of their last end."""
    worst: Counter[str] = Counter()
    columns = ["detector_native_id", "id", "condition", "flapping_count"]
    for alarm in read(lake, "alarms", columns):
        name = f"{alarm['detector_native_id'] or alarm['id']}: {alarm['condition']}"
        worst[name] = max(worst[name], alarm["flapping_count"])
    top = [(name, count) for name, count in worst.most_common(most) if count]
    figure, axes = plt.subplots(figsize=(8, 1 + 0.3 * max(1, len(top))), layout="constrained")
    axes.barh([name for name, _ in reversed(top)], [count for _, count in reversed(top)])
    axes.set_title("Detectors that flap most")
    axes.set_xlabel("raises within 600 s of the end before")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return top


def fidelity(lake: str, path: Path) -> int:
    """The worst read delay of each minute, coloured by what it costs (TR-548 3.17.3)."""
    columns = ["stream", "minute", "worst_read_delay_s", "zone"]
    minutes = [m for m in read(lake, "stream_health", columns) if m["zone"]]
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for zone, color in COLORS.items():
        those = [minute for minute in minutes if minute["zone"] == zone]
        times = [minute["minute"] for minute in those]
        delays = [minute["worst_read_delay_s"] for minute in those]
        axes.scatter(times, delays, color=color, label=zone, s=16)
    axes.set(title="Read delay", ylabel="worst of the minute, in seconds", yscale="symlog")
    axes.legend()
    figure.autofmt_xdate()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return len(minutes)


def main(lake: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counts = heat_map(lake, folder / "alarms_by_node.png")
    print(f"{sum(counts.values())} alarm episodes")
    for name, count in flapping(lake, folder / "flapping.png"):
        print(f"  {count:4} {name}")
    print(f"{fidelity(lake, folder / 'fidelity.png')} minutes followed; see {folder}")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), Path(sys.argv[2]))
