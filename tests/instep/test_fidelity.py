"""The zones of TR-548 3.17.3 (A8)."""

from __future__ import annotations

import pytest

from instep.fidelity import Zone, zone


@pytest.mark.parametrize(
    ("read_delay_s", "expected"),
    [
        (0, Zone.FULL),
        (600, Zone.FULL),
        (601, Zone.REDUCED),
        (10_800, Zone.REDUCED),
        (10_801, Zone.AT_RISK),
        (14_400, Zone.AT_RISK),
        (14_401, Zone.LOST),
    ],
)
def test_the_zones_of_the_proposed_retentions(read_delay_s: float, expected: Zone) -> None:
    assert zone(read_delay_s, 600, 14_400) is expected


def test_emulated_compaction_has_one_point() -> None:
    """TR-548 3.19.3: the compaction delay is the tombstone retention."""
    assert [zone(delay_s, 600, 600) for delay_s in (450, 451, 601)] == [
        Zone.FULL,
        Zone.AT_RISK,
        Zone.LOST,
    ]


def test_what_is_not_declared_sets_no_limit() -> None:
    assert zone(10**9, None, None) is Zone.FULL
    assert zone(10**9, 600, None) is Zone.REDUCED
    assert zone(10**9, None, float("inf")) is Zone.FULL
