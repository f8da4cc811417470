"""Streams as stores keep them, in the spelling of this version and of the one before."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from instep import Mode, StreamInfo

OLD: dict[str, Any] = {
    "id": "network",
    "origin": "https://a 1",
    "kind": "tapi",
    "uuid": "1",
    "endpoint": "https://a",
    "mode": "log",
    "classes": ["NODE"],
    "storage_strategy": "COMPACTED",
    "record_strategy": "WHOLE_ENTITY_ON_CHANGE",
    "compaction_delay_s": 600.0,
    "tombstone_retention_s": float("inf"),
    "record_retention_s": None,
    "readable": [],
    "clock_offset_us": 5,
    "details": {"uuid": "1", "state": "ACTIVE"},
}
"""As version 0.1.0 stored it."""


def test_what_an_old_store_keeps_is_read() -> None:
    assert StreamInfo.from_stored(OLD) == StreamInfo(
        id="network",
        origin="https://a 1",
        kind="tapi",
        uuid="1",
        endpoint="https://a",
        classes=("NODE",),
        may_start_with_snapshot=False,
        variant="COMPACTED WHOLE_ENTITY_ON_CHANGE",
        compaction_delay_s=600.0,
        tombstone_retention_s=float("inf"),
        clock_offset_us=5,
        details={"uuid": "1", "state": "ACTIVE"},
    )


@pytest.mark.parametrize(
    ("changes", "partial_updates", "may_start_with_snapshot"),
    [
        ({"record_strategy": "CHANGE_ONLY"}, True, False),
        ({"tombstone_retention_s": 600.0}, False, True),
        ({"tombstone_retention_s": 600.0, "storage_strategy": "FULL_HISTORY"}, False, False),
        ({"tombstone_retention_s": 600.0, "mode": "baseline"}, False, False),
    ],
)
def test_two_strategies_become_facts(
    changes: dict[str, Any], partial_updates: bool, may_start_with_snapshot: bool
) -> None:
    info = StreamInfo.from_stored(OLD | changes)
    assert info.partial_updates is partial_updates
    assert info.may_start_with_snapshot is may_start_with_snapshot


def test_what_this_version_keeps_is_read_as_it_is() -> None:
    info = StreamInfo(
        id="s",
        origin="o",
        kind="k",
        mode=Mode.BASELINE,
        partial_updates=True,
        may_start_with_snapshot=False,
        variant="v",
    )
    assert StreamInfo.from_stored(msgspec.to_builtins(info)) == info


def test_what_no_version_wrote_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        StreamInfo.from_stored({"id": "s"})
