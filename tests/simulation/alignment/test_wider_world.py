"""What a provider does to a log and to connections that looks like nothing (A2, A18, A21)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.alignment.options import FaultOptions, LogOptions
from tests.simulation.alignment.simulation import simulate

_QUICK = LogOptions(entities=8, change_every_s=3.0, duration_s=150.0)


def _log(storage: str, **more: Any) -> LogOptions:
    return LogOptions(storage=storage, entities=8, change_every_s=3.0, duration_s=150.0, **more)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "log",
    [_log("compacted"), _log("compacted", offsets=False), _log("compacted", partitions=3)],
    ids=["offsets", "no offsets", "partitions"],
)
def test_a2_a_log_that_is_lost_and_rebuilt_leaves_no_phantom(seed: int, log: LogOptions) -> None:
    faults = FaultOptions(
        lose_log_every_s=60.0, rebuilt_ahead_p=1.0, mass_end_every_s=40.0, down_s=60.0
    )
    simulate(seed, options=(log, faults))


@pytest.mark.parametrize("seed", range(2))
def test_a2_an_emulated_log_that_restarts_after_an_idle_time_leaves_no_phantom(seed: int) -> None:
    log = _log("emulated", retention_s=40.0)
    faults = FaultOptions(quiet_every_s=40.0, outage_every_s=60.0, outage_s=60.0)
    simulate(seed, options=(log, faults))


@pytest.mark.parametrize("seed", range(2))
def test_a18_a_log_that_is_truncated_past_its_reader_leaves_no_phantom(seed: int) -> None:
    log = LogOptions(
        storage="truncated", entities=30, change_every_s=0.3, retention_records=15,
        delivery_records=2, duration_s=100.0,
    )  # fmt: skip
    faults = FaultOptions(latency_s=0.5, never_drops=1.0, mass_end_every_s=30.0)
    simulate(seed, options=(log, faults))


@pytest.mark.parametrize("way", [1.0, 2.0])
def test_a2_a_provider_of_one_connection_a_client_is_aligned_with(way: float) -> None:
    faults = FaultOptions(cut_every_s=20.0, rewind_p=1.0, second_connection=way)
    simulate(1, options=(_QUICK, faults))


@pytest.mark.parametrize("seed", range(2))
def test_a21_a_stream_that_is_restarted_without_closing_is_aligned(seed: int) -> None:
    faults = FaultOptions(restart_open_every_s=30.0, mass_end_every_s=40.0)
    simulate(seed, options=(_QUICK, faults))


@pytest.mark.parametrize("seed", range(2))
def test_a21_a_clock_that_is_set_back_loses_no_change_of_a_live_connection(seed: int) -> None:
    """Without offsets: in an attempt only times could tell, so there is none here."""
    faults = FaultOptions(provider_step_every_s=10.0)
    simulate(seed, options=(_log("compacted", offsets=False), faults))


@pytest.mark.parametrize("storage", ["compacted", "truncated"])
def test_a18_sparse_offsets_are_aligned_with(storage: str) -> None:
    faults = FaultOptions(cut_every_s=40.0)
    simulate(3, options=(_log(storage, sparse=True), faults))


@pytest.mark.parametrize("storage", ["compacted", "truncated"])
@pytest.mark.parametrize("alone", [0.0, 1.0])
def test_a17_what_is_said_strangely_removes_nothing(storage: str, alone: float) -> None:
    faults = FaultOptions(
        joined_p=0.3, unreadable_p=0.1, unreadable_alone=alone, bad_element_p=0.2, cut_every_s=40.0
    )
    seen = simulate(5, options=(_log(storage), faults)).counts.keys()
    assert seen & {"record in UTF-16", "record without a key"}
    assert alone or "two documents in one text" in seen
    assert storage == "compacted" or "element without an identifier" in seen
