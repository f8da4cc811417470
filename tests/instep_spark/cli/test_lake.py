"""`instep lake …`, the pictures of the example and the snippet of the guide, on one small lake."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from instep.cli.app import app
from tests.docs.snippets_kit import snippets
from tests.instep.cli.test_run_port import page
from tests.instep.cli.test_status_check import free_port
from tests.instep_spark.lake.lake_kit import read
from tests.instep_spark.lake.log_kit import Provider, land
from tests.instep_spark.spark_server_kit import QUICK
from tests.json_names_kit import check_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).resolve().parents[3]
CONFIG = """
[[consumers]]
name = "c"
[consumers.source]
kind = "tapi"
endpoints = ["http://127.0.0.1:1"]
[consumers.sink]
kind = "delta"
url = "{url}"
[consumers.settings.alignment]
sweep_guard_share = 1.0
"""

DELTA = 'kind = "delta"\nurl = "{url}"'
TEE = """\
kind = "tee"
sinks = [
    {{ kind = "sql", url = "sqlite:///{folder}/store.db" }},
    {{ kind = "delta", url = "{url}", typed_classes = ["LINK"] }},
]"""


def instep(*arguments: str) -> Any:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})
    if "jsonl" in arguments:
        check_names(arguments, done.stdout)
    return done


def lines(result: Any) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in result.stdout.splitlines())


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "examples" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_lake_is_run_verified_drawn_and_queried(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    land(lake, Provider(5, "one", keys=4).run(12))
    config = tmp_path / "instep.toml"
    config.write_text(CONFIG.replace(DELTA, TEE).format(url=lake.as_uri(), folder=tmp_path))
    ran = instep("lake", "run", str(config), "--once", "--format", "jsonl")
    assert ran.exit_code == 0, ran.output
    starting, started = [json.loads(line)["text"] for line in ran.stderr.splitlines()[:2]]
    assert starting.startswith("starting Spark")
    assert started.startswith("Spark 4.")
    *steps, end = lines(ran)
    moved = {step["table"] for step in steps if "table" in step}
    rows = len(pa.table(DeltaTable(lake / "changes").to_pyarrow_table()))
    assert (end["rows"], end["rows_behind"], end["next_run_s"]) == (rows, 0, None)
    assert end["elapsed_s_by_table"].keys() == moved
    assert moved == {
        "entities",
        "entity_history",
        "alarms",
        "topology",
        "stream_health",
        "typed_link",
    }
    verified = instep("lake", "verify", str(config), "--format", "jsonl")
    assert verified.exit_code == 0, verified.output
    (report,) = lines(verified)
    counts = {
        "right": len(read(lake, "entities")),
        "stale": 0,
        "bogus": 0,
        "missing": 0,
        "undecided": 0,
    }
    behind = dict.fromkeys(moved, 0)
    assert report == {
        "report": {
            "counts": counts,
            "rows_read": rows,
            "rows_behind_by_table": behind,
            "altered_rows_by_table": {},
        }
    }
    history = instep("lake", "history", str(config), "--limit", "1")
    assert history.exit_code == 0, history.output
    assert "stream_health" in history.stdout

    pytest.importorskip("matplotlib")
    example("lake_plots").main(str(lake), tmp_path / "pictures")
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert drawn == {"alarms_by_node.png", "flapping.png", "fidelity.png"}
    episodes = len(read(lake, "alarms"))
    assert f"{episodes} alarm episodes" in capsys.readouterr().out

    page = (REPOSITORY / "docs/how-to/lake.md").read_text()
    names: dict[str, object] = {"url": lake.as_uri(), "spark": spark}
    for snippet in snippets(page):
        if snippet.language == "python":
            exec(snippet.text, names)
    found = names["then"]
    assert hasattr(found, "count")
    assert found.count() >= 0


def test_a_service_that_is_stopped_ends_with_a_summary(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # skipped where none starts
    land(tmp_path / "lake", Provider(5, "one", keys=1).run(1))
    config = tmp_path / "instep.toml"
    quick = "".join(f'"{key}" = "{value}"\n' for key, value in QUICK.items())
    session = f'[consumers.sink.spark]\nmaster = "local[1]"\n[consumers.sink.spark.config]\n{quick}'
    text = CONFIG.format(url=(tmp_path / "lake").as_uri())
    config.write_text(text.replace("[consumers.settings", f"{session}[consumers.settings"))
    listen = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "instep.cli", "lake", "run", str(config), "--tables", ""]
    command += ["--listen", listen]
    errors = tmp_path / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
        ) as process,
    ):
        assert process.stdout is not None
        while process.poll() is None and not (tmp_path / "lake/entities/_delta_log").is_dir():
            time.sleep(0.1)
        caught_up = 'instep_table_behind_ordinals{consumer="c",table="entities"} 0\n'
        while process.poll() is None and caught_up not in page(f"http://{listen}", "/metrics")[1]:
            time.sleep(0.1)
        assert page(f"http://{listen}", "/readyz") == (200, "ready\n")
        # As a terminal does that is closed, and as a supervisor does: to the JVM, too.
        os.killpg(process.pid, signal.SIGHUP)
        time.sleep(1)
        assert process.poll() is None, errors.read_text()
        os.killpg(process.pid, signal.SIGTERM)
        told = process.stdout.read()
        assert process.wait() == 0, errors.read_text()
    assert "rows/s" in told.splitlines()[-1]
    assert "SIGHUP is ignored" in errors.read_text()
    assert "\tat " not in errors.read_text()


def test_wrong_usage_is_named(tmp_path: Path) -> None:
    config = tmp_path / "instep.toml"
    config.write_text(CONFIG.format(url=tmp_path.as_uri()).replace("delta", "sql", 1))
    assert instep("lake", "dance", str(config)).exit_code == 2
    no_lake = instep("lake", "run", str(config))
    assert no_lake.exit_code == 2
    assert "no consumer has a delta sink" in no_lake.output
    config.write_text(CONFIG.format(url=tmp_path.as_uri()))
    no_table = instep("lake", "run", str(config), "--tables", "alarms,topologies")
    assert no_table.exit_code == 2
    assert "no table 'topologies'" in no_table.output
    wrong = CONFIG.replace(DELTA, f'{DELTA}\ntyped_classes = ["NODES"]')
    config.write_text(wrong.format(url=tmp_path.as_uri()))
    no_class = instep("lake", "run", str(config))
    assert no_class.exit_code == 2
    assert "a class of no known data model: NODES" in no_class.output
