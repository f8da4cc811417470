"""What one statement says about periods of measurement (TR-548 3.9.2.6; tapi-oam)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep_tapi.facts.periods import MEASURING, read_periods
from tests.instep_sql.measurements.measurements_kit import (
    CURRENT_ADDRESS,
    JOB,
    QUARTER,
    clock,
    current,
    history,
    record,
)

_MINUTE_US = 60_000_000
_QUARTER_US = 15 * _MINUTE_US


def test_3_9_2_7_a_history_is_a_period_that_is_over() -> None:
    body = history(30, **{"suspect-interval-flag": True, "errored-seconds": 7})
    (one,) = read_periods(record("PM_HISTORY_DATA", 2_000, body, parents=CURRENT_ADDRESS))
    assert (one.series, one.end_us, one.length_us) == (f"{JOB}/c1", 30 * _MINUTE_US, _QUARTER_US)
    assert (one.complete, one.suspect) == (True, True)
    assert json.loads(one.body) == body


def test_a_history_without_an_address_is_a_series_of_its_own() -> None:
    (one,) = read_periods(record("PM_HISTORY_DATA", 2_000, history(30), key="h"))
    assert one.series == "h"
    (one,) = read_periods(record("PM_HISTORY_DATA", 2_000, {**history(30), "uuid": "u"}, key="h"))
    assert one.series == "u"


def test_current_data_are_the_same_series_as_its_history() -> None:
    body = {**current(30, 5), "pm-history-data": [history(15), history(30)]}
    at_top = record("PM_CURRENT_DATA", 2_100, body, parents=CURRENT_ADDRESS[:1])
    in_job = record("OAM_JOB", 2_100, {"uuid": JOB, "pm-current-data": [body]})
    for stated in (at_top, in_job):
        found = read_periods(stated)
        assert {one.series for one in found} == {f"{JOB}/c1"}
        ends = {one.end_us // _MINUTE_US: one.complete for one in found}
        assert ends == {15: True, 30: True, 45: False}
        assert all(b"pm-history-data" not in one.body for one in found)


@pytest.mark.parametrize(
    ("elapsed", "at_minute", "complete"),
    [(15, 20, True), (14, 50, False), (None, 45, True), (None, 44, False)],
)
def test_current_data_are_complete_at_the_end_of_the_period(
    elapsed: int | None, at_minute: int, complete: bool
) -> None:
    (one,) = read_periods(record("PM_CURRENT_DATA", at_minute * 60, current(30, elapsed)))
    assert (one.complete, one.suspect) == (complete, None)


def test_names_of_modules_do_not_matter() -> None:
    body = {f"tapi-oam:{name}": value for name, value in history(30).items()}
    (one,) = read_periods(record("PM_HISTORY_DATA", 2_000, body))
    assert one.end_us == 30 * _MINUTE_US


@pytest.mark.parametrize(
    ("period", "length_us"),
    [
        ({"value": 24, "unit": "HOURS"}, 24 * 60 * _MINUTE_US),
        ({"value": "1", "unit": "DAYS"}, 24 * 60 * _MINUTE_US),
        ({"value": "1", "unit": "MONTHS"}, 0),
        ({"value": "-1", "unit": "HOURS"}, 0),
        ({"value": 10**30, "unit": "HOURS"}, 0),
        ({"value": "٣", "unit": "HOURS"}, 0),
        ({"value": True, "unit": "HOURS"}, 0),
        ({}, 0),
        ("15 min", 0),
    ],
)
def test_a_length_that_is_not_fixed_is_0(period: object, length_us: int) -> None:
    (one,) = read_periods(
        record("PM_HISTORY_DATA", 2_000, history(30, **{"granularity-period": period}))
    )
    assert one.length_us == length_us


def test_a_history_takes_the_length_of_the_data_that_contain_it() -> None:
    inner = {name: value for name, value in history(15).items() if name != "granularity-period"}
    body = {"local-id": "c1", "granularity-period": QUARTER, "pm-history-data": [inner]}
    (one,) = read_periods(record("PM_CURRENT_DATA", 2_000, body))
    assert one.length_us == _QUARTER_US


@pytest.mark.parametrize("end", [None, "", "tomorrow", 5, {"value": 1}, "x" * 100_000])
def test_what_states_no_time_is_no_period(end: object) -> None:
    body = history(30, **{"period-end-time": end})
    assert read_periods(record("PM_HISTORY_DATA", 2_000, body)) == []


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("pm-current-data", "pm-history-data", "granularity-period", "value", "unit"),
                    *("elapsed-time", "period", "timestamp", "period-end-time", "local-id", "uuid"),
                    *("current-data", "history-data", "pm-data-pac", "period-start-time"),
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(st.sampled_from(sorted(MEASURING)), _json)
def test_any_body_is_read(entity_class: str, body: Any) -> None:
    for one in read_periods(record(entity_class, 2_000, body)):
        assert one.series
        assert one.length_us >= 0


def later_history(minutes: int, **members: Any) -> dict[str, Any]:
    """A history-data of TAPI 2.4 to 2.6, of the quarter of an hour that ends then."""
    return {
        "local-id": f"h{minutes}",
        "period-start-time": clock(minutes - 15),
        "period-end-time": clock(minutes),
        "pm-data-pac": {
            "granularity-period": {"period": [QUARTER]},
            "suspect-interval-flag": True,
        },
        **members,
    }


def later_current(begin: int, **members: Any) -> dict[str, Any]:
    """A current-data of TAPI 2.4 to 2.6."""
    pac = {"granularity-period": {"period": [QUARTER]}, "suspect-interval-flag": False}
    return {
        "local-id": "c1",
        "period-start-time": clock(begin),
        "pm-data-pac": pac,
        "history-data": [later_history(begin)],
        **members,
    }


POINT = "22222222-2222-4222-8222-222222222222"
ADDRESS = [f"oam-job-uuid:{JOB}", "current-data-local-id:c1"]


@pytest.mark.parametrize(
    ("entity_class", "body", "parents", "expected"),
    [
        ("HISTORY_DATA", later_history(30), ADDRESS, {(f"{JOB}/c1", 30, True, True)}),
        (
            "HISTORY_DATA",
            later_history(30),
            [f"cep-pm-data-uuid:{POINT}"],
            {(POINT, 30, True, True)},
        ),
        (
            "CURRENT_DATA",
            later_current(30),
            ADDRESS[:1],
            {(f"{JOB}/c1", 30, True, True), (f"{JOB}/c1", 45, True, False)},
        ),
        (
            "OAM_JOB",
            {"uuid": JOB, "tapi-oam:current-data": [later_current(30)]},
            [],
            {(f"{JOB}/c1", 30, True, True), (f"{JOB}/c1", 45, True, False)},
        ),
        *[
            (
                name,
                {"uuid": POINT, "history-data": [later_history(15), later_history(30)]},
                [],
                {(POINT, 15, True, True), (POINT, 30, True, True)},
            )
            for name in ("CEP_PM_DATA", "MEP_PM_DATA", "MIP_PM_DATA")
        ],
    ],
)
def test_periods_of_2_6_are_series_like_those_of_2_1_3(
    entity_class: str,
    body: dict[str, Any],
    parents: list[str],
    expected: set[tuple[str, int, bool, bool]],
) -> None:
    found = read_periods(record(entity_class, 50 * 60, body, parents=parents))
    assert len(found) == len(expected)
    assert {
        (one.series, one.end_us // _MINUTE_US, one.complete, one.suspect) for one in found
    } == expected
    assert {one.length_us for one in found} == {_QUARTER_US}
    assert all(b"history-data" not in one.body for one in found)


@pytest.mark.parametrize("without", ["period-end-time", "pm-data-pac", "period-start-time"])
def test_a_period_of_2_6_is_known_from_two_of_begin_length_and_end(without: str) -> None:
    body = {name: value for name, value in later_history(30).items() if name != without}
    (one,) = read_periods(record("HISTORY_DATA", 2_000, body))
    assert (one.end_us, one.length_us) == (30 * _MINUTE_US, _QUARTER_US)


def test_a_period_beyond_any_time_is_none() -> None:
    most = {"value": str(2**63 // 60_000_000), "unit": "MINUTES"}
    for lengths in ([most], [most, {**most, "unit": "SECONDS"}]):
        pac = {"granularity-period": {"period": lengths}}
        body = {"local-id": "c1", "period-start-time": clock(30), "pm-data-pac": pac}
        assert read_periods(record("CURRENT_DATA", 2_000, body)) == []
        body = {**current(30), "granularity-period": most}
        assert read_periods(record("PM_CURRENT_DATA", 2_000, body)) == []
