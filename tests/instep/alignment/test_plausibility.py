"""Times and offsets from the far future keep nothing out (A9)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from instep import Phase, Record, RecordType
from instep.alignment.plausibility import LastRecord, PlausibilityCheck
from instep.model.records import RecordChunk
from tests.instep.alignment.driver_kit import KEYS, SETTINGS, TICK_S, Driver, aligned
from tests.instep.alignment.model_log_kit import US, ModelLog
from tests.instep.scripted_source_kit import T0_US, record

FAR = 10**9


def state(driver: Driver, *bodies: dict[str, Any], key: str = "key-0") -> Counter[str]:
    """The entity is stated so often in one delivery, with these headers. Returns the deviations."""
    for _ in bodies:
        driver.log.now_us += US
        driver.log.put(key)
    chunk = driver.read()
    assert chunk is not None
    stated = [
        msgspec.structs.replace(one, **changes)
        for one, changes in zip(chunk.records, bodies, strict=True)
    ]
    driver.deviations.clear()
    driver.handle(RecordChunk(stated))
    return driver.deviations


def far_ahead(driver: Driver, *, by_offset: bool) -> dict[str, Any]:
    if by_offset:
        return {"offset": driver.store.position.offsets["0"] + FAR}
    return {"appended_at_us": driver.log.now_us + 75 * 365 * 86_400 * US}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("offsets", "by_offset"), [(True, True), (True, False), (False, False)])
def test_a9_what_is_far_ahead_pins_no_entity(
    offsets: bool, by_offset: bool, together: bool
) -> None:
    driver = aligned(offsets=offsets)
    ahead = far_ahead(driver, by_offset=by_offset)
    kind = "offset-ahead" if by_offset else "append-time-ahead"
    if together:
        assert state(driver, ahead, {})[kind] == 1
    else:
        assert state(driver, ahead)[kind] == 1
        assert driver.store.bodies == driver.log.bodies
        state(driver, {})
    assert driver.store.bodies == driver.log.bodies
    driver.attempt()
    assert driver.converges()
    assert driver.swept == []


@pytest.mark.parametrize("by_offset", [True, False])
def test_a9_what_is_far_ahead_opens_no_attempt_at_the_next_reconnection(by_offset: bool) -> None:
    driver = aligned()
    state(driver, {}, far_ahead(driver, by_offset=by_offset))
    driver.be_away(30.0)
    driver.open()
    state(driver, {})
    assert driver.store.position.attempt == 1
    assert driver.converges()


def test_a9_an_end_is_no_less_believed() -> None:
    driver = aligned()
    state(driver, far_ahead(driver, by_offset=True))
    driver.log.end("key-0", RecordType.DELETE, RecordType.TOMBSTONE)
    driver.deliver()
    assert "key-0" not in driver.store.entities


class AheadDriver(Driver):
    """Its provider's clock is two hours ahead, and nothing shows it."""

    def read(self, most: int = 1_000, prefer: int = 0) -> RecordChunk | None:
        chunk = super().read(most, prefer)
        return chunk and RecordChunk(
            [
                msgspec.structs.replace(one, appended_at_us=one.appended_at_us + 7200 * US)
                for one in chunk.records
            ]
        )


def test_a9_a_log_whose_clock_is_ahead_comes_to_its_sweep_by_silence_alone() -> None:
    """Each record looks as if it had just been appended, also where much is still to be read."""
    driver = AheadDriver(ModelLog())
    for key in KEYS:
        driver.log.put(key)
    driver.settle()
    driver.log.end("key-1", RecordType.DELETE, RecordType.TOMBSTONE)
    driver.core.realign("a test asks for it")
    driver.carry_out()
    driver.open()
    while (chunk := driver.read(1)) is not None:
        driver.handle(chunk)
        driver.log.now_us += int(TICK_S * US)
        driver.tick()
        assert driver.decided(Phase.ALIGNING)
        assert not driver.core.caught_up
    driver.wait(SETTINGS.unreached_quiet_s + SETTINGS.quiet_s)
    assert driver.reached(Phase.ALIGNED)
    assert driver.store.bodies == driver.log.bodies
    assert driver.store.position.lineage == 1
    assert driver.swept == []


def mended(*offsets: int, last: int = 5) -> tuple[list[int], Counter[str]]:
    check, deviations = PlausibilityCheck(), Counter[str]()
    known = {"0": LastRecord(last, T0_US)}
    records: list[Record] = [record(offset, at_s=n) for n, offset in enumerate(offsets)]
    found = check.mended(records, known, T0_US + 100 * US, deviations)
    return [one.offset for one in found], deviations


def test_a9_a_log_that_counts_in_great_steps_is_believed() -> None:
    assert mended(6, 7) == ([6, 7], {})
    assert mended(FAR, 7, 8) == ([-1, 7, 8], {"offset-ahead": 1})
    assert mended(FAR, FAR + 1, FAR + 2) == ([-1, FAR + 1, FAR + 2], {"offset-ahead": 1})
    assert mended(FAR, 2 * FAR, 3 * FAR)[1]["offset-ahead"] < 3


def test_a9_a_time_far_ahead_makes_no_offset_plausible() -> None:
    deviations = Counter[str]()
    both = record(FAR, at_s=75 * 365 * 86_400)
    [found] = PlausibilityCheck().mended([both], {"0": LastRecord(5, T0_US)}, T0_US, deviations)
    assert (found.offset, found.appended_at_us) == (-1, T0_US)
    assert deviations == {"offset-ahead": 1, "append-time-ahead": 1}


def test_a9_where_nothing_was_appended_for_long_many_records_may_be_gone() -> None:
    check = PlausibilityCheck()
    known = {"0": LastRecord(5, T0_US - 30 * 86_400 * US)}
    assert not check.believes([record(FAR, at_s=0)], known, T0_US)
    assert check.believes_ordered(record(FAR, at_s=0), record(FAR, at_s=0), known["0"], T0_US)
    assert check.mended([record(FAR, at_s=0)], known, T0_US, {})[0].offset == FAR
