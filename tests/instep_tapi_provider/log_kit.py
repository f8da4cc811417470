"""A log with a clock that a test moves."""

from dataclasses import dataclass, field

from instep_tapi.facts.names import LogRecordType, LogStorageStrategy
from instep_tapi_provider.log import Log, LogRecord, LogSettings

CREATE, DELETE, TOMBSTONE = (
    LogRecordType.CREATE_UPDATE,
    LogRecordType.DELETE,
    LogRecordType.TOMBSTONE,
)


@dataclass
class Bench:
    """A log with a clock that a test moves."""

    settings: LogSettings
    now_s: float = 1_000_000.0
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log(self.settings, lambda: self.now_s, log_id=7)

    def append(self, *keys: str, kind: LogRecordType = CREATE) -> LogRecord:
        """State each key once; the last record."""
        return [
            self.log.append(key, kind, lambda r: f"{r.key}@{r.ordinal}".encode()) for key in keys
        ][-1]

    def end(self, key: str) -> LogRecord:
        self.append(key, kind=DELETE)
        return self.append(key, kind=TOMBSTONE)

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
