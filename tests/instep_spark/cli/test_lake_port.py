"""The port of `instep lake run`, without a Spark: what each table lacks, and what that costs."""

import urllib.error
import urllib.request

import pytest

from instep.errors import ConfigurationError
from instep.metrics.readiness import TABLE_BEHIND_S
from instep_spark.cli.lake_port import LakeHealthTracker, serving


def page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_what_each_table_lacks_is_served_and_ends_readiness_in_time() -> None:
    now_s = 100.0
    watch = LakeHealthTracker("east", lambda: now_s)
    with serving(watch, "127.0.0.1:0") as url:
        assert page(f"{url}/livez") == (200, "live\n")
        assert page(f"{url}/readyz") == (
            503,
            "not ready\nconsumer: east: it has not looked at what has landed yet\n",
        )
        watch.lacks({"entities": 0, "alarms": 40})
        now_s += TABLE_BEHIND_S
        watch.lacks({"entities": 0, "alarms": 7})
        assert page(f"{url}/readyz") == (200, "ready\n")
        _, text = page(f"{url}/metrics")
        assert 'instep_table_behind_ordinals{consumer="east",table="alarms"} 7\n' in text
        assert 'instep_table_behind_ordinals{consumer="east",table="entities"} 0\n' in text
        assert 'instep_table_behind_seconds{consumer="east",table="alarms"} 600.000\n' in text
        assert 'instep_lake_looked_age_seconds{consumer="east"} 0.000\n' in text
        now_s += 1
        assert page(f"{url}/readyz") == (
            503,
            "not ready\nconsumer: east: alarms lacks 7 ordinals, some for 601 s\n",
        )
        watch.lacks({"entities": 0, "alarms": 0})
        assert page(f"{url}/readyz")[0] == 200
        watch.failed(ConfigurationError("no Delta", where="x"))
        assert "it has failed: x: no Delta" in page(f"{url}/readyz")[1]
        assert page(f"{url}/livez")[0] == 200


def test_a_wrong_address_is_named() -> None:
    with (
        pytest.raises(ConfigurationError, match="--listen"),
        serving(LakeHealthTracker("c"), "here:x"),
    ):
        pass
