"""The fixed seeds of every run of the tests, and what makes a seed worth its number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.alignment.options import SKEWS_S, FaultOptions, LogOptions
from tests.simulation.alignment.simulation import SeedFailedError, simulate

_REPOSITORY = Path(__file__).resolve().parents[3]


def run_program(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=_REPOSITORY,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.timeout(300)
def test_seeds_hold_every_promise() -> None:
    kinds = ("sequences", "endings", "sequenced-feeds", "soap", "sdpi")
    others = [word for kind in kinds for word in (f"--{kind}", "0")]
    done = run_program("--seeds", "40", *others)
    assert done.returncode == 0, done.stderr[-6_000:]
    print(done.stdout)
    assert "40 seeds, 0 failed" in done.stdout


STORAGES = ["compacted", "emulated", "truncated", "full-history", "forgetful"]


@pytest.mark.parametrize("storage", STORAGES)
def test_without_faults_every_kind_of_log_converges(storage: str) -> None:
    options = LogOptions(storage=storage, partitions=2, duration_s=60.0), FaultOptions()
    assert simulate(7, options=options).commits > 5


@pytest.mark.parametrize("records", ["whole", "change-only"])
@pytest.mark.parametrize("storage", STORAGES)
def test_v3_2_5_2_every_kind_of_log_converges_with_the_records_of_2_6(
    storage: str, records: str
) -> None:
    log = LogOptions(storage=storage, records=records, partitions=2, duration_s=60.0)
    faults = FaultOptions(cut_every_s=20.0, restart_p=0.3, rewind_p=0.5, realign_every_s=40.0)
    assert simulate(7, options=(log, faults)).commits > 5


@pytest.mark.parametrize("seed", [60, 161, 212, 215])
def test_v3_2_5_2_seeds_of_2_6_hold_every_promise(seed: int) -> None:
    assert simulate(seed, tapi_2_6=True).commits > 5


@pytest.mark.parametrize(
    ("storage", "latest"),
    [*((storage, True) for storage in STORAGES), ("truncated", False), ("forgetful", False)],
)
def test_a5_clocks_that_differ_and_are_set_change_nothing(storage: str, latest: bool) -> None:
    """The consumer's clock is wrong by each of `SKEWS_S`, and both are set while they run."""
    log = LogOptions(storage=storage, duration_s=100.0)
    for skew in range(len(SKEWS_S)):
        faults = FaultOptions(
            latency_s=0.2,
            skew=skew,
            clock_step_every_s=15.0,
            provider_step_every_s=40.0,
            cut_every_s=20.0,
            realign_every_s=40.0,
            refuse_latest_p=0.0 if latest else 1.0,
        )
        simulate(skew, options=(log, faults))


def test_a_seed_is_the_same_everywhere() -> None:
    """Also where strings hash otherwise: whatever depended on that could not be replayed."""
    traces = {run_program("--seed", "3", "--trace", hash_seed=seed).stdout.rsplit("real_s")[0]
              for seed in ("1", "2")}  # fmt: skip
    assert len(traces) == 1
    assert simulate(3).digest == simulate(3).digest


def test_a_failing_seed_prints_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep_sql.engine.sqlite.Sqlite.end_entities", lambda *_: 0)
    with pytest.raises(SeedFailedError, match=r"make simulate SEED=0") as failed:
        simulate(0)
    assert "position is ahead" in str(failed.value)
