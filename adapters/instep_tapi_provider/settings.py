"""Everything about a provider that is chosen once, before it starts."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from ssl import SSLContext

from instep.errors import ConfigurationError
from instep_tapi.facts.names import CONDITION_DETECTOR, LogRecordStrategy, LogStorageStrategy
from instep_tapi.facts.stream_profile import TAPI_2_6
from instep_tapi_provider.clock import ScaledClock
from instep_tapi_provider.context import Nested
from instep_tapi_provider.log import LogSettings
from instep_tapi_provider.records import RecordStyle


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One stream. Periods are configured seconds, divided by the provider's time scale.

    `classes` None: all classes that no other stream names.
    `emulated`: compaction is emulated (3.19.2): the stream is declared COMPACTED, and fed from a
    snapshot of current state followed by a log truncated at `retention_s`.
    `nested`: what records state of the entities below their own. With anything but OMITTED a change
    of an entity that no stream carries is a change of the nearest one above it that is carried.
    `forgets`: the stream is COMPACTED, and its log forgets live entities, too, that were stated
    longer than `retention_s` ago; this retention is declared.
    `statement_period_s`: with WHOLE_ENTITY_PERIODIC, how often every entity is stated again.
    `information_period_s`: how often an information record is appended (v3.2 3.10); None: never. In
    2.6 alone.
    """

    stream_id: str
    classes: frozenset[str] | None = None
    storage: LogStorageStrategy = LogStorageStrategy.COMPACTED
    emulated: bool = False
    forgets: bool = False
    nested: Nested = Nested.IDENTIFIED
    record_strategy: LogRecordStrategy = LogRecordStrategy.WHOLE_ENTITY_ON_CHANGE
    partitions: int = 1
    compaction_delay_s: float = 10 * 60.0
    tombstone_retention_s: float = 4 * 3600.0
    retention_s: float = 24 * 3600.0
    retention_records: int | None = None
    statement_period_s: float = 15 * 60.0
    information_period_s: float | None = None
    style: RecordStyle = field(default_factory=RecordStyle)

    def log_settings(self, clock: ScaledClock) -> LogSettings:
        """How the stream's log is kept, in real seconds."""
        return LogSettings(
            strategy=LogStorageStrategy.TRUNCATED if self.emulated else self.storage,
            partitions=self.partitions,
            compaction_delay_s=clock.real_s(self.compaction_delay_s),
            tombstone_retention_s=clock.real_s(self.tombstone_retention_s),
            retention_s=clock.real_s(self.retention_s),
            retention_records=self.retention_records,
            forgets=self.forgets,
        )


def default_streams() -> tuple[StreamSettings, ...]:
    """One stream of the network's entities and one of its alarms (TR-548 4.3, ST-3.2)."""
    return (
        StreamSettings("network"),
        StreamSettings("alarms", classes=frozenset({CONDITION_DETECTOR})),
    )


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may read. With nothing set, everybody; otherwise a Bearer token is required (RFC 6750).

    `tokens`: tokens that are valid for ever.
    `client_id`, `client_secret`: OAuth2 client credentials, at `token_path`.
    `username`, `password`: OAuth2 password grant at `token_path`, and a login by POST at
    `login_path` with these two fields in a JSON or form body, answered with `login_token_field`.
    `token_life_s`: real seconds after which a token that was given out expires.
    """

    tokens: frozenset[str] = field(default=frozenset(), repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    token_path: str = "/oauth2/token"  # noqa: S105 - a path
    login_path: str = "/tron/api/v1/tokens"
    login_username_field: str = "username"
    login_password_field: str = "password"  # noqa: S105 - a field's name
    login_token_field: str = "token"  # noqa: S105 - a field's name
    token_life_s: float = 3600.0

    @property
    def required(self) -> bool:
        return bool(self.tokens or self.client_id or self.username)


class Aliases(StrEnum):
    """Spellings of supported-stream-type's list of classes."""

    RECORD_CONTENT = "record-content"
    STREAM_TYPE_CONTENT = "stream-type-content"  # as a branch of TAPI 2.1 has it


@dataclass(frozen=True, slots=True)
class DiscoveryStyle:
    """How the streams are shown, in the spellings of the field.

    `prefixed_members`: every augmented member carries its module (as from YANG), or none (as from
    the OpenAPI files of 2.1.3). `identities` of the stream types are written as in `RecordStyle`.
    `retention`: minutes are decimals where a time scale makes them so.
    `protocol`: over which the streams are offered: websockets or sse, in any spelling. Both are
    served.
    `list_reads`: whether the lists of streams can be read without a key; the OpenAPI files have no
    such path.
    """

    host_meta: bool = True
    prefixed_members: bool = True
    style: RecordStyle = field(default_factory=RecordStyle)
    classes_member: Aliases = Aliases.RECORD_CONTENT
    protocol: str = "websockets"
    compacted_log_details: bool = True
    connection_protocol_details: bool = True
    in_context: bool = True
    list_reads: bool = False


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One provider. `port` 0 takes a free one.

    `root`: where RESTCONF is ("" for plain ``/data``).
    `time_scale`: how many configured seconds of retention pass in a real second.
    `pong_timeout_s`: real seconds without a Pong after which a client is dropped (TR-548 5.8: 30).
    `comment_every_s`: real seconds between two comments of server-sent events.
    `retry_s`: how long clients of server-sent events are asked to wait before they connect again.
    `compression`: whether permessage-deflate is accepted.
    `control`: whether the control endpoint ``/_instep/`` is there.
    `seed`: of all that is random, except the identity of a log.
    `active_at_start`: whether streams turn ACTIVE at once, or stay ALIGNING until
    `Provider.activate`.
    `provisioning_s`: real seconds from an order of a connectivity-service to its end.
    """

    host: str = "127.0.0.1"
    port: int = 0
    root: str = "/restconf"
    streams: tuple[StreamSettings, ...] = field(default_factory=default_streams)
    auth: AuthSettings = field(default_factory=AuthSettings)
    discovery: DiscoveryStyle = field(default_factory=DiscoveryStyle)
    tls: SSLContext | None = None
    time_scale: float = 1.0
    pong_timeout_s: float = 30.0
    comment_every_s: float = 15.0
    retry_s: float | None = None
    compression: bool = True
    control: bool = False
    seed: int = 0
    active_at_start: bool = True
    provisioning_s: float = 0.0

    def of_edition(self, tapi: str) -> "ProviderSettings":
        """The same provider with the model of another edition of TAPI: "2.1.3", or "2.6" for 2.4 to
        2.6, of which records state nothing of the entities below their own (v3.2 3.10.3).
        """
        streams = [replace(s, style=replace(s.style, tapi=tapi)) for s in self.streams]
        if tapi == TAPI_2_6:
            streams = [replace(stream, nested=Nested.OMITTED) for stream in streams]
        discovery = replace(self.discovery, style=replace(self.discovery.style, tapi=tapi))
        return replace(self, streams=tuple(streams), discovery=discovery)

    def __post_init__(self) -> None:
        if self.root and (not self.root.startswith("/") or self.root.endswith("/")):
            raise ConfigurationError(
                f"the root {self.root!r} must begin with / and not end with it", hint="or be empty"
            )
        ids = [stream.stream_id for stream in self.streams]
        if not ids or len(set(ids)) < len(ids):
            raise ConfigurationError(f"streams need ids of their own, not {ids}")
