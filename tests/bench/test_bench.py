"""The benchmark runs, reports what it ran, and reads its options."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.alignment.alarm import RECORD_BYTES, SHAPES, chunks, offset_of
from bench.alignment.sender import BUILT_MAX_RECORDS, sender_part
from bench.scenarios import MDIB, MEMORY, REPORTS, SCENARIOS, SEQUENCES
from bench.sequences.in_memory import LOADS, arriving, floor, product
from instep_tapi.wire.decoder import FrameDecoder
from tests.postgres_kit import Missing, programs

_ROOT = Path(__file__).parents[2]


def _bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def _long(*scenarios: str) -> list[Any]:
    """Those that `make long` runs."""
    return [pytest.param(one, marks=pytest.mark.long) for one in scenarios]


def _frames(sent: bytes) -> list[bytes]:
    frames = []
    while sent:
        assert sent[0] == 0x81
        width = {126: 2, 127: 8}.get(sent[1], 0)
        size = int.from_bytes(sent[2 : 2 + width], "big") if width else sent[1]
        frames.append(sent[2 + width : 2 + width + size])
        sent = sent[2 + width + size :]
    return frames


@pytest.mark.parametrize(("per_frame", "count"), [(1, 7), (3, 3), (60, 1)])
def test_the_product_reads_what_is_sent(per_frame: int, count: int) -> None:
    frames = _frames(b"".join(chunks(first=5, count=7, keys=4, per_frame=per_frame)))
    assert len(frames) == count
    read = FrameDecoder("alarms").read(frames)
    assert not read.unreadable
    assert set(read.deviations) == {"event-time-nested"}
    assert [record.offset for record in read.records] == list(range(5, 12))
    assert [offset_of(record.token) for record in read.records] == list(range(5, 12))
    keys = [record.key for record in read.records]
    assert keys[:3] == keys[4:]
    assert len(set(keys)) == 4


@pytest.mark.parametrize("shape", SHAPES)
def test_the_product_reads_each_shape(shape: str) -> None:
    frames = _frames(b"".join(chunks(first=5, count=3, keys=3, per_frame=1, shape=shape)))
    read = FrameDecoder("alarms").read(frames)
    assert not read.unreadable
    assert [offset_of(record.token) for record in read.records] == [5, 6, 7]


@pytest.mark.parametrize("records", [3, BUILT_MAX_RECORDS + 1])
def test_a_part_is_sent_to_each_client_from_its_beginning(records: int) -> None:
    part = sender_part(partial(chunks, 0, 3, 3, 1), records)
    first, second = (b"".join(part()) for _ in range(2))
    assert len(_frames(first)) == len(_frames(second)) == 3


def test_a_record_has_the_size_that_the_floors_are_given_for() -> None:
    (frame,) = _frames(b"".join(chunks(first=0, count=1, keys=1, per_frame=1)))
    assert len(frame) == pytest.approx(RECORD_BYTES, abs=20)
    assert msgspec.json.decode(frame)["log-record-body"]["record-content"] == "CONDITION_DETECTOR"


@pytest.mark.parametrize(
    "scenario",
    [
        "update-50",
        *_long(
            "shape-prefixed",
            "shape-no-offsets",
            "journal-storm",
            "references-new",
            "alarms-update",
            "postgresql-update",
        ),
    ],
)
def test_a_scenario_runs_floor_and_product(scenario: str) -> None:
    if scenario.startswith("postgresql"):
        try:
            programs()
        except Missing as missing:
            pytest.skip(str(missing))
    done = _bench("--records=300", "--rounds=1", f"--scenario={scenario}", "--format=jsonl")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result["scenario"] == scenario
    assert result["records"] == 300
    assert result["ratio"] > 0


@pytest.mark.parametrize("load", LOADS)
def test_both_put_a_sequence_in_order(load: str) -> None:
    groups = arriving(load, 3_000)
    numbers = [message.number for group in groups for message in group]
    assert sorted(numbers) == list(range(1, 3_001))
    assert (numbers == sorted(numbers)) == (load == "in-order")
    assert floor(groups) == product(groups) == 3_000


@pytest.mark.parametrize("scenario", ["sequence-lost", "wsrm-100", *_long("inbox-100", "wsr-100")])
def test_a_scenario_of_sequences_runs_floor_and_product(scenario: str) -> None:
    done = _bench("--records=500", "--rounds=1", f"--scenario={scenario}", "--format=jsonl")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result["scenario"] == scenario
    assert result["records"] == 500
    assert result["ratio"] > 0


@pytest.mark.parametrize("scenario", ["reports-1", *_long("reports-50")])
def test_a_scenario_of_reports_runs_floor_and_product(scenario: str) -> None:
    done = _bench("--records=400", "--rounds=1", f"--scenario={scenario}", "--format=jsonl")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["scenario"], result["records"]) == (scenario, 20)
    assert result["ratio"] > 0


@pytest.mark.long
def test_an_mdib_is_read_by_floor_and_product() -> None:
    done = _bench("--rounds=1", "--scenario=mdib", "--format=jsonl")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result["product"]["entities"] == result["floor"]["entities"] == 20_102
    assert result["product"]["seconds"] > 0


def test_memory_is_watched_and_printed() -> None:
    done = _bench("--memory-records=2000", "--scenario=memory")
    assert done.returncode == 0, done.stderr
    assert "Memory over 2,000 records" in done.stdout


def test_an_unknown_scenario_is_wrong_usage() -> None:
    done = _bench("--scenario=nothing")
    assert done.returncode == 2
    assert "new-1" in done.stderr


def test_scenarios_are_named_once() -> None:
    names = [scenario.name for scenario in (*SCENARIOS, *SEQUENCES, *REPORTS, MDIB, MEMORY)]
    assert len(names) == len(set(names))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_micro_batches_of_a_lake_are_measured_beside_bare_merges() -> None:
    found = subprocess.run(
        [
            *(sys.executable, "-m", "bench.lake.steady", "--sizes", "200"),
            *("--batches", "20", "--rounds", "2"),
        ],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=800,
    )
    *_, last = (json.loads(line) for line in found.stdout.splitlines())
    assert (last["entities"], last["batch"]) == (200, 20)
    assert last["product_s"] > 0
    assert last["floor_jobs"] > 0
    assert set(last["landed_to_s"]) == {
        *("entities", "entity_history", "alarms", "topology", "stream_health"),
    }
