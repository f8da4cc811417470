"""The log beside a plain list: compaction loses nothing, and slow clients end consistent."""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from instep_tapi_provider.log import LogRecord, Start
from tests.instep_tapi_provider.log_kit import CREATE, DELETE, TOMBSTONE, compacted


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
        self.model.append(self.bench.append(key))

    @rule(key=keys)
    def end(self, key: str) -> None:
        self.model.append(self.bench.append(key, kind=DELETE))
        self.model.append(self.bench.append(key, kind=TOMBSTONE))

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
