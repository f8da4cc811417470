"""How log records are spelled: the log-record of TR-548 3.10, and the spellings met in the field.

By default the provider writes what the YANG and the published examples agree on: one bare
log-record a frame, identities by name, flat event time, RFC 3339 stamps. Every other spelling that
a client must be able to read can be chosen, so that its reader can be tried against each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from instep.errors import ConfigurationError
from instep_tapi.facts.classes import CLASS_MODEL
from instep_tapi.facts.names import (
    ANY_CLASS,
    STREAMING_MODULE,
    LogRecordType,
    SourcePrecision,
    Spread,
    container_of,
    long_identity,
    strip_module,
)
from instep_tapi.facts.stream_profile import TAPI_2_1_3, TAPI_2_6
from instep_tapi_provider.clock import rfc3339, yang_time
from instep_tapi_provider.log import LogRecord

_quote = msgspec.json.encode


class Wrapper(StrEnum):
    """The content of a WebSocket message; no version of the TR defines it."""

    BARE = "bare"  # one log-record, as in the published examples
    LIST = "list"
    LOG_RECORD = "log-record"
    STREAM_RECORD = "stream-record"  # as the YANG notification is
    NOTIFICATION = "notification"  # the YANG notification in RFC 8040's envelope


class IdentityStyle(StrEnum):
    """How an identity is written."""

    NAME = "name"  # RECORD_TYPE_DELETE
    PREFIXED = "prefixed"  # tapi-streaming:RECORD_TYPE_DELETE
    SHORT = "short"  # DELETE, as in the prose
    BLANK = "blank"  # with a leading blank, as v3.1 prints one


@dataclass(frozen=True, slots=True)
class RecordStyle:
    """The spelling of one stream's records and frames.

    `tapi`: the edition, "2.1.3" or "2.6" for TAPI 2.4 to 2.6.
    `records_per_frame` is above 1 only with a wrapper that holds several records. `sign` gives the
    record-authenticity-token of an encoded record without one, as `instep_tapi.wire.authenticity`
    says.
    """

    wrapper: Wrapper = Wrapper.BARE
    records_per_frame: int = 1
    identities: IdentityStyle = IdentityStyle.NAME
    prefixed_members: bool = False
    nested_time: bool = False
    yang_time: bool = False
    numeric_offsets: bool = False
    sign: Callable[[bytes], str] | None = field(default=None, repr=False)
    tapi: str = TAPI_2_1_3

    def __post_init__(self) -> None:
        if self.records_per_frame < 1:
            raise ConfigurationError(
                f"records_per_frame must be at least 1, not {self.records_per_frame}"
            )
        if self.wrapper is Wrapper.BARE and self.records_per_frame > 1:
            raise ConfigurationError(
                "a bare frame holds one record; choose a wrapper that holds several"
            )

    @property
    def is_2_6(self) -> bool:
        """Whether the edition is that of TAPI 2.4 to 2.6."""
        return self.tapi == TAPI_2_6

    def identity(self, member: StrEnum) -> str:
        if self.identities is IdentityStyle.SHORT:
            return member.value
        return self.spelled(long_identity(member))

    def spelled(self, identity: str) -> str:
        """An identity that is given with its module, in this style."""
        if self.identities is IdentityStyle.PREFIXED:
            return identity
        blank = " " if self.identities is IdentityStyle.BLANK else ""
        return blank + strip_module(identity)

    def class_name(self, cls: str) -> str:
        """How record-content names a class. From TAPI 2.4 on it is an identity of its own module,
        so it has the prefix in any style (RFC 7951 6.8).
        """
        place = CLASS_MODEL.places.get(cls) if self.is_2_6 else None
        return place.identity if place and place.identity else cls

    def container(self, cls: str) -> str:
        """The member of log-record-body that states an entity of a class."""
        place = CLASS_MODEL.places.get(cls) if self.is_2_6 else None
        if place and ":" in place.member:
            return place.member
        # Classes without a container are stated all the same, under the name one would expect.
        prefix = f"{STREAMING_MODULE}:" if self.prefixed_members else ""
        return prefix + (container_of(cls) or cls.lower().replace("_", "-"))

    def time(self, epoch_s: float) -> str:
        return yang_time(epoch_s) if self.yang_time else rfc3339(epoch_s)


@dataclass(slots=True)
class Statement:
    """What a record states about an entity: the content of its class container, and where it
    belongs.

    `body` is encoded JSON; `event_s` None means that the source gave no time, so the append time is
    stated with spread BEFORE (TR-548 5.3.1 step 4). `record` is the last log record that states it.
    Of an information record `body` is its additional-event-info (v3.2 3.10), and there is no class.
    """

    key: str
    cls: str
    body: bytes
    parent_address: tuple[str, ...] = ()
    event_s: float | None = None
    event_source: str = "RESOURCE_OPERATION"
    record: LogRecord | None = None

    def with_body(self, body: bytes, event_s: float | None) -> "Statement":
        """The same entity in a new state."""
        return replace(self, body=body, event_s=event_s, record=None)


class RecordEncoder:
    """Encodes the log-records of one stream in one style."""

    def __init__(self, style: RecordStyle) -> None:
        self.style = style
        prefix = f"{STREAMING_MODULE}:" if style.prefixed_members else ""
        self._prefix = prefix
        self._types = {kind: style.identity(kind) for kind in LogRecordType}
        self._open = f'{{"{prefix}log-record-header":{{"token":"'
        self._body = f',"{prefix}log-record-body":'
        quote = "" if style.numeric_offsets else '"'
        self._partition = f'"full-log-record-offset-id":[{{"value-name":"partition","value":{quote}'
        self._offset = f'{quote}}},{{"value-name":"offset","value":{quote}'
        self._end = f"{quote}}}]}}"
        precision = style.identity(SourcePrecision.SYNCHRONIZED)
        self._times = {
            spread: f'","spread":"{style.identity(spread)}","source-precision":"{precision}"}}'
            for spread in (Spread.AT, Spread.BEFORE)
        }

    def record(self, record: LogRecord, statement: Statement) -> bytes:
        """The whole log-record; a TOMBSTONE has a header only, a DELETE no content (3.10)."""
        header = self._header(record)
        encoded = self._encoded(header, record, statement)
        if self.style.sign is None:
            return encoded
        token = f',"record-authenticity-token":{_quote(self.style.sign(encoded)).decode()}'
        end = len(header.encode()) - 1  # before the brace that closes it
        return b"%b%b%b" % (encoded[:end], token.encode(), encoded[end:])

    def _encoded(self, header: str, record: LogRecord, statement: Statement) -> bytes:
        if record.kind is LogRecordType.TOMBSTONE:
            return f"{header}}}".encode()
        if record.kind is LogRecordType.INFORMATION:
            info = b',"additional-event-info":%b}}' % statement.body
            event = self._event(record, statement)
            return f"{header}{self._body}{event}".encode() + info
        if record.kind is LogRecordType.DELETE:
            return f"{header}{self._body}{self._about(record, statement, ANY_CLASS)}}}}}".encode()
        about = self._about(record, statement, statement.cls)
        head = f'{header}{self._body}{about},"{self.style.container(statement.cls)}":'
        return b"%b%b}}" % (head.encode(), statement.body)

    def _header(self, record: LogRecord) -> str:
        return (
            f'{self._open}{record.token}","log-append-time-stamp":"'
            f'{self.style.time(record.appended_s)}","entity-key":{_quote(record.key).decode()},'
            f'"record-type":"{self._types[record.kind]}",'
            f"{self._partition}{record.partition}{self._offset}{record.offset}{self._end}"
        )

    def _event(self, record: LogRecord, statement: Statement) -> str:
        """The beginning of a body: the time and the source of the event."""
        known = statement.event_s is not None
        event_s = statement.event_s if statement.event_s is not None else record.appended_s
        time = (
            f'{{"primary-time-stamp":"{self.style.time(event_s)}'
            f"{self._times[Spread.AT if known else Spread.BEFORE]}"
        )
        if self.style.nested_time:
            time = f'{{"approx-date-and-time":{time}}}'
        return f'{{"event-time-stamp":{time},"event-source":"{statement.event_source}"'

    def _about(self, record: LogRecord, statement: Statement, content: str) -> str:
        address = ""
        if statement.parent_address and record.kind is not LogRecordType.DELETE:
            address = f'"parent-address":{_quote(statement.parent_address).decode()},'
        return (
            f"{self._event(record, statement)},"
            f'{address}"record-content":"{self.style.class_name(content)}"'
        )

    def frames(self, records: Sequence[bytes], sent_s: float) -> Iterator[bytes]:
        """WebSocket messages that carry these records, in order."""
        style = self.style
        if style.wrapper is Wrapper.BARE:
            yield from records
            return
        for first in range(0, len(records), style.records_per_frame):
            yield self._wrap(b",".join(records[first : first + style.records_per_frame]), sent_s)

    def _wrap(self, records: bytes, sent_s: float) -> bytes:
        if self.style.wrapper is Wrapper.LIST:
            return b"[%b]" % records
        prefix = self._prefix.encode()
        log_record = b'{"%blog-record":[%b]}' % (prefix, records)
        if self.style.wrapper is Wrapper.LOG_RECORD:
            return log_record
        if self.style.wrapper is Wrapper.STREAM_RECORD:
            return b'{"%bstream-record":%b}' % (prefix, log_record)
        return (
            b'{"ietf-restconf:notification":{"eventTime":"%b","tapi-streaming:stream-record":%b}}'
            % (
                rfc3339(sent_s).encode(),
                log_record,
            )
        )
