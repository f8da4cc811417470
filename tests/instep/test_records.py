"""The plain data that travels: what it costs and what it cannot do."""

from __future__ import annotations

import gc

import msgspec
import pytest

from instep import Batch, Position, Record
from tests.instep.scripted import record


def test_a_record_is_nothing_that_the_collector_must_follow() -> None:
    assert not gc.is_tracked(record(1))


def test_a_record_cannot_be_altered() -> None:
    one = record(1)
    with pytest.raises(AttributeError):
        one.key = "other"  # type: ignore[misc]


def test_a_record_survives_being_stored() -> None:
    for one in (record(1), record(2, ends=True)):
        assert msgspec.json.decode(msgspec.json.encode(one), type=Record) == one


def test_batches_do_not_share_what_they_hold() -> None:
    one, other = Batch("s", Position(), 0), Batch("s", Position(), 0)
    one.deviations["odd"] = 1
    assert other.deviations == {}
