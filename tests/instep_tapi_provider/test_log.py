"""The log: compaction, truncation, where a stream starts, and when a reader is lost."""

from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep_tapi.facts.names import LogStorageStrategy
from instep_tapi_provider.log import Log, LogSettings, Start
from tests.instep_tapi_provider.log_kit import CREATE, TOMBSTONE, Bench, compacted, truncated


def test_3_8_1_1_all_records_are_kept_for_the_compaction_delay_then_only_the_latest() -> None:
    bench = compacted()
    bench.append("a", "b", "a")
    bench.wait(9)
    assert bench.content() == ["a", "b", "a"]
    bench.wait(1)
    assert bench.content() == ["b", "a"]


def test_3_8_1_1_an_old_record_goes_as_soon_as_it_is_superseded() -> None:
    bench = compacted()
    bench.append("a", "b")
    bench.wait(11)
    bench.append("a")
    assert bench.content() == ["b", "a"]


def test_4_7_compaction_leaves_the_tombstone_and_retention_removes_it() -> None:
    bench = compacted()
    bench.append("a", "b")
    bench.wait(5)
    bench.end("a")
    assert bench.content() == ["a", "b", "a-", "a!"]
    bench.wait(10)
    assert bench.content() == ["b", "a!"]
    bench.wait(49)
    assert bench.content() == ["b", "a!"]
    bench.wait(1)
    assert bench.content() == ["b"]


def test_an_entity_that_comes_back_keeps_its_record_past_its_old_tombstones_retention() -> None:
    bench = compacted()
    bench.append("a")
    bench.end("a")
    bench.append("a")
    bench.wait(61)
    assert bench.content() == ["a"]


def test_3_8_2_2_a_tombstone_of_an_entity_compacts_its_parts_out() -> None:
    bench = compacted()
    bench.append("e", "x")
    log, data = bench.log, lambda _: b"part"
    for part in ("e/name", "e/state", "e/state/inner"):
        log.append(part, CREATE, data, parent="e")
    log.append("e/state", TOMBSTONE, data, parent="e")
    bench.wait(11)
    assert bench.content() == ["e", "x", "e/name", "e/state!"]
    bench.end("e")
    bench.wait(11)
    assert bench.content() == ["x", "e!"]


def test_3_8_1_2_truncation_by_number_and_by_age() -> None:
    bench = truncated(records=3)
    bench.append("a", "b", "c", "d")
    assert bench.content() == ["b", "c", "d"]
    bench = truncated(retention_s=60)
    bench.append("a")
    bench.wait(30)
    bench.append("b")
    bench.wait(31)
    assert bench.content() == ["b"]


def test_3_8_1_3_full_history_keeps_all() -> None:
    bench = Bench(LogSettings(LogStorageStrategy.FULL_HISTORY))
    bench.append("a", "a")
    bench.end("a")
    bench.wait(1e9)
    assert bench.content() == ["a", "a", "a-", "a!"]


def test_offsets_start_at_0_and_count_in_each_partition() -> None:
    bench = compacted(partitions=3)
    bench.append(*[str(n % 10) for n in range(60)])
    offsets: dict[int, list[int]] = {}
    of_key: dict[str, set[int]] = {}
    for record in bench.log:
        offsets.setdefault(record.partition, []).append(record.offset)
        of_key.setdefault(record.key, set()).add(record.partition)
    assert len(offsets) > 1
    assert all(counted == list(range(len(counted))) for counted in offsets.values())
    assert all(len(partitions) == 1 for partitions in of_key.values())


def test_tokens_look_as_in_the_field_and_are_opaque() -> None:
    token = compacted().append("a").token
    stem, middle, tail = token.split(":")
    assert stem.endswith("_0")
    assert int(middle) < 0
    assert tail.endswith("=")


def test_5_8_null_token_starts_at_the_oldest() -> None:
    bench = compacted()
    bench.append("a", "a")
    assert bench.log.start(None) == (0, Start.OLDEST)


def test_5_8_latest_starts_after_the_newest() -> None:
    bench = compacted()
    bench.append("a")
    assert bench.log.start("latest") == (1, Start.LATEST)


def test_5_2_7_a_token_starts_at_the_next_record_even_when_its_own_is_compacted_away() -> None:
    bench = compacted()
    token = bench.append("a").token
    bench.append("b", "a")
    bench.wait(11)
    assert bench.content() == ["b", "a"]
    position, start = bench.log.start(token)
    assert start is Start.RESUMED
    assert [r.key for r in bench.log.read(position)] == ["b", "a"]


def test_5_2_8_a_token_older_than_tombstone_retention_restarts_from_the_oldest() -> None:
    bench = compacted()
    token = bench.append("a").token
    bench.wait(59)
    assert bench.log.start(token)[1] is Start.RESUMED
    bench.wait(1)
    assert bench.log.start(token) == (0, Start.RESTARTED)


@pytest.mark.parametrize("token", ["", "7_0:0:AAAA", "nonsense", "7_0:-2147483648:!!!"])
def test_an_unknown_token_restarts_from_the_oldest(token: str) -> None:
    bench = compacted()
    bench.append("a")
    assert bench.log.start(token)[1] is Start.RESTARTED


def test_a_token_of_another_log_or_of_the_future_restarts_from_the_oldest() -> None:
    bench = compacted()
    bench.append("a", "b")
    other = Log(bench.settings, lambda: bench.now_s, log_id=8)
    token = other.append("a", CREATE, lambda _: b"").token
    assert bench.log.start(token)[1] is Start.RESTARTED
    ahead = bench.log.tokens.encode(99, int(bench.now_s * 1000), 0)
    assert bench.log.start(ahead)[1] is Start.RESTARTED


def test_a_truncated_log_resumes_only_where_nothing_is_missing() -> None:
    bench = truncated(records=3)
    tokens = [bench.append(key).token for key in "abcdef"]
    assert bench.log.start(tokens[1])[1] is Start.RESTARTED
    assert bench.log.start(tokens[2]) == (3, Start.RESUMED)


def test_back_counts_kept_records() -> None:
    bench = compacted()
    bench.append("a", "b", "a", "c")
    bench.wait(11)
    assert bench.content() == ["b", "a", "c"]
    assert bench.log.back(4, 2) == 2
    assert bench.log.back(4, 99) == 1
    assert bench.log.back(4, 0) == 4


def test_reading_is_bounded_by_records_and_bytes_but_always_moves() -> None:
    bench = compacted()
    bench.append(*"abcdef")
    assert len(bench.log.read(0, max_records=4)) == 4
    assert len(bench.log.read(0, max_bytes=1)) == 1
    assert bench.log.read(6) == []


def test_5_2_6_a_reader_blocked_on_a_record_past_tombstone_retention_is_lost() -> None:
    bench = compacted()
    bench.append("a")
    started_s = bench.now_s
    bench.wait(59)
    assert not bench.log.lost(0, started_s, Start.RESUMED)
    bench.wait(2)
    assert bench.log.lost(0, started_s, Start.RESUMED)
    assert not bench.log.lost(1, started_s, Start.RESUMED), "it has read everything"


def test_5_2_3_a_new_client_has_the_retention_to_pass_the_old_records() -> None:
    bench = compacted()
    bench.append("a")
    bench.wait(1000)
    started_s = bench.now_s
    assert not bench.log.lost(0, started_s, Start.OLDEST)
    bench.wait(61)
    assert bench.log.lost(0, started_s, Start.OLDEST)


def test_a_tombstone_that_goes_unread_loses_even_a_new_client() -> None:
    bench = compacted(delay_s=10, retention_s=12)
    bench.append("a")
    bench.end("a")
    bench.append("b")
    bench.wait(5)
    started_s = bench.now_s  # it reads the first `a` now, whose tombstone goes in 7 s
    assert not bench.log.lost(1, started_s, Start.OLDEST)
    bench.wait(8)
    assert bench.log.lost(1, started_s, Start.OLDEST)


def test_a_tombstone_that_goes_unread_at_the_head_loses_the_reader() -> None:
    bench = compacted()
    started_s = bench.now_s
    bench.append("a")
    bench.end("a")
    bench.wait(61)
    assert bench.log.read(1) == []
    assert bench.log.lost(1, started_s, Start.OLDEST)
    assert bench.log.lost(1, started_s, Start.RESUMED)
    assert not bench.log.lost(3, started_s, Start.RESUMED)


def test_a_truncated_reader_is_lost_when_its_next_record_is_gone() -> None:
    bench = truncated(records=2)
    bench.append("a", "b")
    assert not bench.log.lost(0, 0.0, Start.OLDEST)
    bench.append("c")
    assert bench.log.lost(0, 0.0, Start.OLDEST)
    assert not bench.log.lost(1, 0.0, Start.OLDEST)


def test_the_place_of_removed_records_is_given_back() -> None:
    bench = compacted(delay_s=0, retention_s=0)
    for _ in range(5000):
        bench.append("a", "b")
    assert len(bench.log) == 2
    assert len(bench.log._ordinals) < 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"compaction_delay_s": 2, "tombstone_retention_s": 1},
        {"retention_records": 0},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        LogSettings(**wrong)
