"""The zones of TR-548 3.17.3 (A8)."""

from __future__ import annotations

import pytest

from instep.alignment.lag import Fidelity, LagMonitor, fidelity
from instep.alignment.settings import AlignmentSettings
from instep.model.position import Position
from instep.model.streams import StreamInfo


@pytest.mark.parametrize(
    ("read_delay_s", "expected"),
    [
        (0, Fidelity.FULL),
        (600, Fidelity.FULL),
        (601, Fidelity.REDUCED),
        (10_800, Fidelity.REDUCED),
        (10_801, Fidelity.AT_RISK),
        (14_400, Fidelity.AT_RISK),
        (14_401, Fidelity.LOST),
    ],
)
def test_the_zones_of_the_proposed_retentions(read_delay_s: float, expected: Fidelity) -> None:
    assert fidelity(read_delay_s, 600, 14_400) is expected


def test_emulated_compaction_has_one_point() -> None:
    """TR-548 3.19.3: the compaction delay is the tombstone retention."""
    assert [fidelity(delay_s, 600, 600) for delay_s in (450, 451, 601)] == [
        Fidelity.FULL,
        Fidelity.AT_RISK,
        Fidelity.LOST,
    ]


def test_what_is_not_declared_sets_no_limit() -> None:
    assert fidelity(10**9, None, None) is Fidelity.FULL
    assert fidelity(10**9, 600, None) is Fidelity.REDUCED
    assert fidelity(10**9, None, float("inf")) is Fidelity.FULL


@pytest.mark.parametrize(
    ("unproven", "quiet_s", "due"), [(0, 61, False), (1, 59, False), (1, 61, True)]
)
def test_a_position_with_unproven_entities_is_renewed_each_minute(
    unproven: int, quiet_s: int, due: bool
) -> None:
    """Others may have proven some, which a commit takes over."""
    lag = LagMonitor(StreamInfo(id="s", origin="wss://a", kind="tapi"), 0, AlignmentSettings())
    lag.raise_watermark(quiet_s * 1_000_000)
    assert lag.heartbeat_due(Position(unproven=unproven)) is due
