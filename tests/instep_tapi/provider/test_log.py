"""The log: compaction, truncation, where a stream starts, and when a reader is lost."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from instep.errors import ConfigurationError
from instep_tapi.names import LogStorageStrategy, RecordType
from instep_tapi.provider.log import Log, LogRecord, LogSettings, Start

CREATE, DELETE, TOMBSTONE = RecordType.CREATE_UPDATE, RecordType.DELETE, RecordType.TOMBSTONE


@dataclass
class Bench:
    """A log with a clock that a test moves."""

    settings: LogSettings
    now_s: float = 1_000_000.0
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log(self.settings, lambda: self.now_s, log_id=7)

    def say(self, *keys: str, kind: RecordType = CREATE) -> LogRecord:
        for key in keys:
            record = self.log.append(key, kind, lambda r: f"{r.key}@{r.ordinal}".encode())
        return record

    def end(self, key: str) -> LogRecord:
        self.say(key, kind=DELETE)
        return self.say(key, kind=TOMBSTONE)

    def wait(self, period_s: float) -> None:
        self.now_s += period_s
        self.log.clean()

    def content(self) -> list[str]:
        marks = {CREATE: "", DELETE: "-", TOMBSTONE: "!"}
        return [f"{r.key}{marks[r.kind]}" for r in self.log]


def compacted(delay_s: float = 10, retention_s: float = 60, partitions: int = 1) -> Bench:
    return Bench(
        LogSettings(
            compaction_delay_s=delay_s, tombstone_retention_s=retention_s, partitions=partitions
        )
    )


def truncated(records: int | None = None, retention_s: float = 60) -> Bench:
    return Bench(
        LogSettings(
            LogStorageStrategy.TRUNCATED, retention_s=retention_s, retention_records=records
        )
    )


def test_3_8_1_1_all_records_are_kept_for_the_compaction_delay_then_only_the_latest() -> None:
    bench = compacted()
    bench.say("a", "b", "a")
    bench.wait(9)
    assert bench.content() == ["a", "b", "a"]
    bench.wait(1)
    assert bench.content() == ["b", "a"]


def test_3_8_1_1_an_old_record_goes_as_soon_as_it_is_superseded() -> None:
    bench = compacted()
    bench.say("a", "b")
    bench.wait(11)
    bench.say("a")
    assert bench.content() == ["b", "a"]


def test_4_7_compaction_leaves_the_tombstone_and_retention_removes_it() -> None:
    bench = compacted()
    bench.say("a", "b")
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
    bench.say("a")
    bench.end("a")
    bench.say("a")
    bench.wait(61)
    assert bench.content() == ["a"]


def test_3_8_2_2_a_tombstone_of_an_entity_compacts_its_parts_out() -> None:
    bench = compacted()
    bench.say("e", "x")
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
    bench.say("a", "b", "c", "d")
    assert bench.content() == ["b", "c", "d"]
    bench = truncated(retention_s=60)
    bench.say("a")
    bench.wait(30)
    bench.say("b")
    bench.wait(31)
    assert bench.content() == ["b"]


def test_3_8_1_3_full_history_keeps_all() -> None:
    bench = Bench(LogSettings(LogStorageStrategy.FULL_HISTORY))
    bench.say("a", "a")
    bench.end("a")
    bench.wait(1e9)
    assert bench.content() == ["a", "a", "a-", "a!"]


def test_offsets_start_at_0_and_count_in_each_partition() -> None:
    bench = compacted(partitions=3)
    bench.say(*[str(n % 10) for n in range(60)])
    offsets: dict[int, list[int]] = {}
    of_key: dict[str, set[int]] = {}
    for record in bench.log:
        offsets.setdefault(record.partition, []).append(record.offset)
        of_key.setdefault(record.key, set()).add(record.partition)
    assert len(offsets) > 1
    assert all(counted == list(range(len(counted))) for counted in offsets.values())
    assert all(len(partitions) == 1 for partitions in of_key.values())


def test_tokens_look_as_in_the_field_and_are_opaque() -> None:
    token = compacted().say("a").token
    stem, middle, tail = token.split(":")
    assert stem.endswith("_0")
    assert int(middle) < 0
    assert tail.endswith("=")


def test_5_8_null_token_starts_at_the_oldest() -> None:
    bench = compacted()
    bench.say("a", "a")
    assert bench.log.start(None) == (0, Start.OLDEST)


def test_5_8_latest_starts_after_the_newest() -> None:
    bench = compacted()
    bench.say("a")
    assert bench.log.start("latest") == (1, Start.LATEST)


def test_5_2_7_a_token_starts_at_the_next_record_even_when_its_own_is_compacted_away() -> None:
    bench = compacted()
    token = bench.say("a").token
    bench.say("b", "a")
    bench.wait(11)
    assert bench.content() == ["b", "a"]
    position, start = bench.log.start(token)
    assert start is Start.RESUMED
    assert [r.key for r in bench.log.read(position)] == ["b", "a"]


def test_5_2_8_a_token_older_than_tombstone_retention_restarts_from_the_oldest() -> None:
    bench = compacted()
    token = bench.say("a").token
    bench.wait(59)
    assert bench.log.start(token)[1] is Start.RESUMED
    bench.wait(1)
    assert bench.log.start(token) == (0, Start.RESTARTED)


@pytest.mark.parametrize("token", ["", "7_0:0:AAAA", "nonsense", "7_0:-2147483648:!!!"])
def test_an_unknown_token_restarts_from_the_oldest(token: str) -> None:
    bench = compacted()
    bench.say("a")
    assert bench.log.start(token)[1] is Start.RESTARTED


def test_a_token_of_another_log_or_of_the_future_restarts_from_the_oldest() -> None:
    bench = compacted()
    bench.say("a", "b")
    other = Log(bench.settings, lambda: bench.now_s, log_id=8)
    token = other.append("a", CREATE, lambda _: b"").token
    assert bench.log.start(token)[1] is Start.RESTARTED
    ahead = bench.log.tokens.encode(99, int(bench.now_s * 1000), 0)
    assert bench.log.start(ahead)[1] is Start.RESTARTED


def test_a_truncated_log_resumes_only_where_nothing_is_missing() -> None:
    bench = truncated(records=3)
    tokens = [bench.say(key).token for key in "abcdef"]
    assert bench.log.start(tokens[1])[1] is Start.RESTARTED
    assert bench.log.start(tokens[2]) == (3, Start.RESUMED)


def test_back_counts_kept_records() -> None:
    bench = compacted()
    bench.say("a", "b", "a", "c")
    bench.wait(11)
    assert bench.content() == ["b", "a", "c"]
    assert bench.log.back(4, 2) == 2
    assert bench.log.back(4, 99) == 1
    assert bench.log.back(4, 0) == 4


def test_reading_is_bounded_by_records_and_bytes_but_always_moves() -> None:
    bench = compacted()
    bench.say(*"abcdef")
    assert len(bench.log.read(0, max_records=4)) == 4
    assert len(bench.log.read(0, max_bytes=1)) == 1
    assert bench.log.read(6) == []


def test_5_2_6_a_reader_blocked_on_a_record_past_tombstone_retention_is_lost() -> None:
    bench = compacted()
    bench.say("a")
    started_s = bench.now_s
    bench.wait(59)
    assert not bench.log.lost(0, started_s, Start.RESUMED)
    bench.wait(2)
    assert bench.log.lost(0, started_s, Start.RESUMED)
    assert not bench.log.lost(1, started_s, Start.RESUMED), "it has read everything"


def test_5_2_3_a_new_client_has_the_retention_to_pass_the_old_records() -> None:
    bench = compacted()
    bench.say("a")
    bench.wait(1000)
    started_s = bench.now_s
    assert not bench.log.lost(0, started_s, Start.OLDEST)
    bench.wait(61)
    assert bench.log.lost(0, started_s, Start.OLDEST)


def test_a_tombstone_that_goes_unread_loses_even_a_new_client() -> None:
    bench = compacted(delay_s=10, retention_s=12)
    bench.say("a")
    bench.end("a")
    bench.say("b")
    bench.wait(5)
    started_s = bench.now_s  # it reads the first `a` now, whose tombstone goes in 7 s
    assert not bench.log.lost(1, started_s, Start.OLDEST)
    bench.wait(8)
    assert bench.log.lost(1, started_s, Start.OLDEST)


def test_a_tombstone_that_goes_unread_at_the_head_loses_the_reader() -> None:
    bench = compacted()
    started_s = bench.now_s
    bench.say("a")
    bench.end("a")
    bench.wait(61)
    assert bench.log.read(1) == []
    assert bench.log.lost(1, started_s, Start.OLDEST)
    assert bench.log.lost(1, started_s, Start.RESUMED)
    assert not bench.log.lost(3, started_s, Start.RESUMED)


def test_a_truncated_reader_is_lost_when_its_next_record_is_gone() -> None:
    bench = truncated(records=2)
    bench.say("a", "b")
    assert not bench.log.lost(0, 0.0, Start.OLDEST)
    bench.say("c")
    assert bench.log.lost(0, 0.0, Start.OLDEST)
    assert not bench.log.lost(1, 0.0, Start.OLDEST)


def test_the_place_of_removed_records_is_given_back() -> None:
    bench = compacted(delay_s=0, retention_s=0)
    for _ in range(5000):
        bench.say("a", "b")
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
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        LogSettings(**wrong)


@dataclass
class Client:
    """A client of the model: what it holds, its token, and how it is connected."""

    held: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    token: str | None = None
    position: int = 0
    start: Start = Start.OLDEST
    started_s: float = 0.0


class LogAgainstAList(RuleBasedStateMachine):
    """The log beside a plain list of all that was ever appended, and slow clients of it."""

    keys = st.sampled_from("abcde")

    @initialize(
        delay_s=st.integers(0, 20), longer_s=st.integers(0, 40), partitions=st.integers(1, 3)
    )
    def begin(self, delay_s: int, longer_s: int, partitions: int) -> None:
        self.bench = compacted(delay_s, delay_s + longer_s, partitions)
        self.model: list[LogRecord] = []
        self.clients = [Client() for _ in range(2)]
        for client in self.clients:
            self._connect(client)

    def _connect(self, client: Client) -> None:
        client.position, client.start = self.bench.log.start(client.token)
        client.started_s = self.bench.now_s
        if client.start is not Start.RESUMED:
            client.seen = set()

    @rule(key=keys)
    def state(self, key: str) -> None:
        self.model.append(self.bench.say(key))

    @rule(key=keys)
    def end(self, key: str) -> None:
        self.model.append(self.bench.say(key, kind=DELETE))
        self.model.append(self.bench.say(key, kind=TOMBSTONE))

    @rule(period_s=st.integers(1, 30))
    def wait(self, period_s: int) -> None:
        self.bench.wait(period_s)

    @rule(who=st.integers(0, 1))
    def reconnect(self, who: int) -> None:
        self._connect(self.clients[who])

    @rule(who=st.integers(0, 1), records=st.integers(1, 5))
    def read(self, who: int, records: int) -> None:
        client, log = self.clients[who], self.bench.log
        if log.lost(client.position, client.started_s, client.start):
            self._connect(client)
        for record in log.read(client.position, max_records=records):
            if record.kind is CREATE:
                client.held[record.key] = record.ordinal
                client.seen.add(record.key)
            else:
                client.held.pop(record.key, None)
            client.token, client.position = record.token, record.ordinal + 1

    @rule(who=st.integers(0, 1))
    def a_client_that_reads_to_the_end_is_consistent(self, who: int) -> None:
        client, log = self.clients[who], self.bench.log
        for _ in range(len(self.model) + 2):
            self.read(who, 5)
        swept = {key: held for key, held in client.held.items() if key in client.seen}
        assert swept == {
            key: record.ordinal for key, record in self.latest().items() if record.kind is CREATE
        }
        assert not log.read(client.position)

    def latest(self) -> dict[str, LogRecord]:
        return {record.key: record for record in self.model}

    @invariant()
    def the_log_keeps_what_it_must_and_no_more(self) -> None:
        if not hasattr(self, "bench"):
            return
        log, latest = self.bench.log, self.latest()
        log.clean()
        settings = self.bench.settings
        kept = []
        for record in self.model:
            age_s = self.bench.now_s - record.appended_s
            is_latest = latest[record.key] is record
            if is_latest and record.kind is TOMBSTONE:
                keep = age_s < settings.tombstone_retention_s
            else:
                keep = is_latest or age_s < settings.compaction_delay_s
            kept += [record.ordinal] if keep else []
        assert [record.ordinal for record in log] == kept
        assert [record.ordinal for record in log.read(0)] == kept


TestLogAgainstAList = LogAgainstAList.TestCase
TestLogAgainstAList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
