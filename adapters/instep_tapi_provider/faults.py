"""The faults that a provider can have: all off unless set, and changeable while it runs."""

from dataclasses import dataclass, fields
from typing import Any

from instep.errors import ConfigurationError
from instep_tapi_provider.deviations import DEVIATIONS, Deviation


@dataclass(slots=True)
class Faults:
    """What goes wrong. Set a field to turn a fault on, set it back to turn it off.

    Counts are per connection unless stated otherwise; periods are real seconds.

    Connections:
        drop_after_records: the connection is cut after this many records.
        drop_probability: the connection is cut with this chance at each batch (0 to 1).
        handshake_status: the WebSocket handshake is refused with this HTTP status.
        stall_after_records, stall_s: after so many records nothing is sent for so long, once.
        silent: connections stay open and nothing is sent.
    Tokens:
        rewind_records: a client that resumes gets so many records again first (at-least-once).
        expire_tokens: every token is taken for too old, so the stream restarts from the oldest
        record. refuse_tokens: a handshake with a token is refused with this HTTP status.
        refuse_latest: a handshake with start_from=latest is refused with this HTTP status.
        forget_log: the log is lost and rebuilt at the next connection; turns itself off.
    Connections of one client:
        refuse_second: a second connection to a stream is refused with this HTTP status.
        displace_first: a second connection to a stream closes the first one.
        restarts_open: each time it is raised, open streams are restarted at their oldest record,
        and nothing is closed (5.8).
    Frames:
        malformed_every: each n-th record is cut short, so is no JSON.
        unreadable_every: each n-th record has an append time that no reader can read.
        duplicate_every: each n-th record is sent twice.
        oversized_every, oversized_bytes: before each n-th record comes a frame of this size.
        fragment_every, fragment_pause_s: each n-th record is sent in two fragments, with this pause
        and a Pong between them.
        delay_per_frame_s: a pause before each frame.
        shuffle_partitions: records of different partitions come out of the order of appending.
    Requests:
        unauthorized_once: the next request with a login gets 401; turns itself off.
        restconf_status: RESTCONF reads are refused with this HTTP status.
        restconf_empty: RESTCONF reads of the network state an empty container, as a controller
        does that is still loading its data.
        restconf_spares_discovery: … but not those of the stream context.
        refuse_services: orders of connectivity-services are refused with this HTTP status.
        answer_services: orders are carried out and answered with this HTTP status.
        forget_services: orders are answered as taken, and forgotten.
    Breaking the specification:
        deviates: the name of one of `DEVIATIONS`; empty for none.
    Load:
        storm_changes_per_s, storm_keys: an event storm at this rate, over so many keys or all.
        quiet: no storm and no periodic statement, as in a network where nothing happens.
    """

    drop_after_records: int | None = None
    drop_probability: float = 0.0
    handshake_status: int | None = None
    stall_after_records: int | None = None
    stall_s: float = 0.0
    silent: bool = False
    rewind_records: int = 0
    expire_tokens: bool = False
    refuse_tokens: int | None = None
    refuse_latest: int | None = None
    forget_log: bool = False
    refuse_second: int | None = None
    displace_first: bool = False
    restarts_open: int = 0
    malformed_every: int | None = None
    unreadable_every: int | None = None
    duplicate_every: int | None = None
    oversized_every: int | None = None
    oversized_bytes: int = 10 * 1024 * 1024
    fragment_every: int | None = None
    fragment_pause_s: float = 0.0
    delay_per_frame_s: float = 0.0
    shuffle_partitions: bool = False
    unauthorized_once: bool = False
    restconf_status: int | None = None
    restconf_empty: bool = False
    restconf_spares_discovery: bool = True
    refuse_services: int | None = None
    answer_services: int | None = None
    forget_services: bool = False
    deviates: str = ""
    storm_changes_per_s: float = 0.0
    storm_keys: int | None = None
    quiet: bool = False

    @property
    def deviation(self) -> Deviation | None:
        """How the provider breaks its specification."""
        return DEVIATIONS.get(self.deviates)

    @property
    def on_each_record(self) -> bool:
        """Whether a fault needs each record looked at, so batches cannot be sent as they are."""
        return bool(
            self.drop_after_records is not None
            or self.stall_after_records is not None
            or self.malformed_every
            or self.unreadable_every
            or self.duplicate_every
            or self.oversized_every
            or self.fragment_every
            or self.delay_per_frame_s
        )

    def set(self, **values: Any) -> None:
        """Set several faults by name, as the control endpoint does; all or none.

        Raises ConfigurationError for a name that is no fault or a value of another type.
        """
        known = {field.name: field for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ConfigurationError(
                    f"there is no fault named {name!r}", hint=f"the faults are: {', '.join(known)}"
                )
            default = known[name].default
            if isinstance(default, str):
                if value and value not in DEVIATIONS:
                    raise ConfigurationError(
                        f"there is no deviation named {value!r}",
                        hint=f"they are: {', '.join(DEVIATIONS)}",
                    )
                continue
            allowed: tuple[type, ...] = (bool,) if isinstance(default, bool) else (int, float)
            fits = isinstance(value, allowed) and isinstance(value, bool) is isinstance(
                default, bool
            )
            if fits or (default is None and value is None):
                continue
            raise ConfigurationError(f"fault {name} cannot be {value!r}")
        for name, value in values.items():
            setattr(self, name, value)
