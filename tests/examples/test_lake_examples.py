"""The examples that look at a lake, as far as they need no Spark."""

from datetime import UTC, datetime
from pathlib import Path

import lake_plots
import lake_simulation
import matplotlib as mpl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

UUID = "0f3a1f8e-8f1c-4f0e-9f0a-6a3e2b1c0d9e"
ALARM = {
    "measured_entity_uuid": UUID,
    "measured_entity_native_id": "n-7",
    "measured_entity_class": "NODE",
    "node_uuid": UUID,
    "worst_severity": "MAJOR",
    "condition": "FANFAIL",
    "condition_normalized": "Fan Failure",
    "flapping_count": 2,
}
PLACE = {"uuid": UUID, "name": "Aachen", "node_uuid": UUID}
MINUTE = {
    "stream": "network",
    "minute": datetime(2026, 1, 1, tzinfo=UTC),
    "worst_read_delay_s": 0.2,
    "zone": "full fidelity",
}


def lake(
    folder: Path, alarms: list[dict[str, object]], *, places: bool = True, minutes: bool = True
) -> str:
    """The tables of a lake with these alarms."""
    rows = {
        "alarms": (ALARM, alarms),
        "topology": (PLACE, [PLACE] * places),
        "stream_health": (MINUTE, [MINUTE] * minutes),
    }
    for name, (one, all_) in rows.items():
        schema = pa.Table.from_pylist([one]).schema
        write_deltalake(f"{folder}/{name}", pa.Table.from_pylist(all_, schema=schema))
    return str(folder)


def test_plots_have_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = lake(tmp_path / "lake", [ALARM])
    lake_plots.main(place, tmp_path / "pictures")
    assert capsys.readouterr().out.splitlines() == [
        "1 alarm episodes",
        "     2 Fan Failure at Aachen",
        "1 minutes followed",
        f"pictures of these: {tmp_path}/pictures/*.png",
    ]
    assert lake_plots.heat_map(place, tmp_path / "map.png") == {("Aachen", "MAJOR"): 1}


@pytest.mark.parametrize(
    ("missing", "name"),
    [((), "n-7"), (("measured_entity_native_id",), "a NODE without a name")],
)
def test_a_place_without_a_name_is_no_uuid(
    missing: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    alarm = ALARM | dict.fromkeys(missing)
    place = lake(tmp_path / "lake", [alarm], places=False)
    assert lake_plots.heat_map(place, tmp_path / "map.png") == {(name, "MAJOR"): 1}


def test_nothing_to_show_is_said_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = lake(tmp_path / "lake", [], minutes=False)
    with mpl.rc_context({"svg.fonttype": "none"}):  # words stay words
        lake_plots.heat_map(place, tmp_path / "map.svg")
        lake_plots.flapping(place, tmp_path / "flapping.svg")
        lake_plots.fidelity(place, tmp_path / "fidelity.svg")
    assert "no alarm was raised" in (tmp_path / "map.svg").read_text()
    assert "no detector flapped" in (tmp_path / "flapping.svg").read_text()
    assert "no stream was followed" in (tmp_path / "fidelity.svg").read_text()
    lake_plots.main(place, tmp_path / "pictures")
    told = capsys.readouterr().out.splitlines()
    assert told[:3] == ["0 alarm episodes", "no detector flapped", "no stream was followed"]


def test_a_lake_is_landed_without_spark() -> None:
    changes = DeltaTable(f"{lake_simulation.landed_lake(seconds=0)}/changes").to_pyarrow_table()
    assert {"network", "alarms"} <= set(changes.column("stream").to_pylist())
