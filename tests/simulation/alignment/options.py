"""What one seed makes: the provider's log, and everything that goes wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Final

__all__ = [
    "GROUPS",
    "LATER_GROUPS",
    "SKEWS_S",
    "SPELLED_GROUPS",
    "WIDER_GROUPS",
    "FaultOptions",
    "LogOptions",
    "drawn",
    "further",
    "of_2_6",
    "spelled",
    "wider",
]


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The provider's log and its network. Periods are virtual seconds."""

    storage: str = "compacted"
    """compacted, forgetful (with a finite retention), emulated (a snapshot, then a truncated log),
    truncated or full-history.
    """
    partitions: int = 1
    offsets: bool = True
    """Whether records state partition and offset."""
    compaction_delay_s: float = 30.0
    tombstone_retention_s: float = 120.0
    retention_s: float = 120.0
    retention_records: int | None = None
    """A truncated log keeps no more than this many."""
    entities: int = 16
    sparse: bool = False
    """Whether offsets are left out although nothing is lost."""
    change_every_s: float = 4.0
    delivery_records: int = 64
    """The most that arrives at once."""
    duration_s: float = 500.0
    """Of the safety phase."""
    tree: bool = False
    """Whether the stream states nodes with all below them, points, and some uuids twice."""
    records: str = ""
    """Empty: CREATE_UPDATE, as TAPI 2.1.3 has it. Of 2.6: whole (CREATE and UPDATE), or change-only
    (a CHANGE where the log is not compacted, v3.2 5.2).
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """What the stream states."""
        if self.tree:
            return ("NODE", "NODE_EDGE_POINT")
        return ("NODE",) if self.baseline else ("NODE", "CONDITION_DETECTOR")

    @property
    def baseline(self) -> bool:
        """Whether the log cannot prove an absence (A15)."""
        return self.storage in {"truncated", "forgetful"}


@dataclass(frozen=True, kw_only=True)
class FaultOptions:
    """Everything that can go wrong; all off by default.

    `…_every_s`: mean time between such events (0: never). `…_p`: chance at each connection, frame,
    request or transaction. `…_s`: longest duration of the event before it.
    """

    # The network
    latency_s: float = 0.02
    cut_every_s: float = 0.0
    half_open_every_s: float = 0.0
    dead_peer_s: float = 3.0
    """How long a connection is silent before the peer is known to be dead."""
    outage_every_s: float = 0.0
    outage_s: float = 200.0
    slow_every_s: float = 0.0
    slow_s: float = 60.0
    connect_fails_p: float = 0.0
    request_fails_p: float = 0.0

    # How the provider answers a token (TR-548 5.8), and what it does at its edge
    refuse_token_p: float = 0.0
    restart_p: float = 0.0
    rewind_p: float = 0.0
    rewind_records: int = 40
    duplicate_p: float = 0.0
    redeliver_p: float = 0.0
    shuffle_partitions: bool = False
    drop_p: float = 0.0
    malformed_p: float = 0.0
    fragment_p: float = 0.0
    """A message comes in fragments, with gaps and Pongs between them."""
    fragment_s: float = 40.0
    refuse_latest_p: float = 0.0
    """The provider does not know `start_from=latest` at this connection."""
    closes_after_records: float = 0.0
    """The provider closes each connection after so many records."""

    # The clocks
    skew: float = -1.0
    """Which of `SKEWS_S` the consumer's clock is wrong by; a Date shows it to a second."""
    clock_step_every_s: float = 0.0
    """Somebody sets the consumer's clock, by one of `SKEWS_S`."""
    provider_step_every_s: float = 0.0
    """Somebody sets the provider's clock, by one of `PROVIDER_STEPS_S`."""

    # The provider
    restart_every_s: float = 0.0
    lose_log_every_s: float = 0.0
    upgrade_every_s: float = 0.0
    """The instance comes up as another stream, or with another log, or both (TR-548 ST-1.3)."""
    fail_over_every_s: float = 0.0
    down_s: float = 90.0
    pause_every_s: float = 0.0
    pause_s: float = 60.0
    mass_end_every_s: float = 0.0
    disaster_every_s: float = 0.0
    """Most entities end while no provider can be reached for longer than the log keeps their
    ends."""
    quiet_every_s: float = 0.0
    quiet_s: float = 200.0

    rebuilt_ahead_p: float = 0.0
    """A log that is rebuilt counts on beyond the last offset of the one that was lost …"""
    rebuilt_empty_p: float = 0.0
    """… or stays empty for a while."""
    never_drops: float = 0.0
    """A log that is truncated past a connected reader does not drop it: it goes on at its oldest
    record.
    """
    restart_open_every_s: float = 0.0
    """The provider restarts the stream without closing the connection (TR-548 5.8)."""
    second_connection: float = 0.0
    """What the provider does at a second connection to a stream: nothing (below 1), refuse it
    (below 2), or close the first one.
    """
    late_probe_p: float = 0.0
    """A second connection comes so late that the log was cleaned in between."""

    # How things are said
    joined_p: float = 0.0
    """Two records come as two documents of one text."""
    unreadable_p: float = 0.0
    """A record comes in UTF-16, or a text without a key comes in its place …"""
    unreadable_alone: float = 0.0
    """… in a delivery of its own."""
    bad_element_p: float = 0.0
    """An element of a baseline has no identifier that can be read."""

    # The store
    store_latency_s: float = 0.002
    store_slow_every_s: float = 0.0
    store_slow_s: float = 150.0
    store_down_every_s: float = 0.0
    store_down_s: float = 60.0
    locked_p: float = 0.0
    disk_full_p: float = 0.0
    serialization_p: float = 0.0
    outcome_unknown_p: float = 0.0

    # The process
    crash_every_s: float = 0.0
    cancel_every_s: float = 0.0
    away_s: float = 200.0
    realign_every_s: float = 0.0


GROUPS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "latency": {"latency_s": (0.001, 0.4), "store_latency_s": (0.001, 0.3)},
    "cut": {"cut_every_s": (15, 120)},
    "half-open": {"half_open_every_s": (5, 150), "dead_peer_s": (2, 60)},
    "outage": {"outage_every_s": (80, 400), "connect_fails_p": (0.0, 0.5)},
    "slow": {"slow_every_s": (100, 400)},
    "requests": {"request_fails_p": (0.01, 0.5)},
    "refuse": {"refuse_token_p": (0.01, 0.3)},
    "restart": {"restart_p": (0.05, 0.6)},
    "rewind": {"rewind_p": (0.1, 1.0)},
    "duplicate": {"duplicate_p": (0.005, 0.2), "redeliver_p": (0.005, 0.1)},
    "drop": {"drop_p": (0.002, 0.03)},
    "malformed": {"malformed_p": (0.002, 0.03)},
    "provider-restart": {"restart_every_s": (80, 300)},
    "lose-log": {"lose_log_every_s": (80, 400)},
    "upgrade": {"upgrade_every_s": (80, 400)},
    "fail-over": {"fail_over_every_s": (80, 400)},
    "pause": {"pause_every_s": (60, 300)},
    "mass-end": {"mass_end_every_s": (60, 300)},
    "disaster": {"disaster_every_s": (60, 300)},
    "quiet": {"quiet_every_s": (80, 300)},
    "store-slow": {"store_slow_every_s": (100, 400)},
    "store-down": {"store_down_every_s": (100, 400)},
    "store-errors": {
        "locked_p": (0.001, 0.1),
        "disk_full_p": (0.001, 0.1),
        "serialization_p": (0.001, 0.1),
        "outcome_unknown_p": (0.001, 0.1),
    },
    "crash": {"crash_every_s": (20, 200)},
    "cancel": {"cancel_every_s": (30, 300)},
    "realign": {"realign_every_s": (60, 400)},
}
"""Faults that are turned on together, and the range each is drawn from."""

LATER_GROUPS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "fragments": {"fragment_p": (0.02, 0.3), "fragment_s": (5, 80)},
    "closes": {"closes_after_records": (5, 60)},
    "skew": {"skew": (0, 6)},
    "clock-steps": {"clock_step_every_s": (20, 200)},
    "refuse-latest": {"refuse_latest_p": (0.2, 1.0)},
    "provider-clock-steps": {"provider_step_every_s": (30, 200)},
}
"""Further ones. They are drawn by themselves: what a kept seed draws must not change."""

WIDER_GROUPS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "rebuilt": {
        "lose_log_every_s": (60, 300),
        "rebuilt_ahead_p": (0.3, 1.0),
        "rebuilt_empty_p": (0.0, 0.5),
    },
    "overtakes": {"never_drops": (1, 1), "slow_every_s": (60, 200)},
    "restarts-open": {"restart_open_every_s": (40, 200)},
    "second-connection": {"second_connection": (0, 3)},
    "cleaner": {"late_probe_p": (0.3, 1.0)},
}
"""What a provider does to a log and to connections that looks like nothing; drawn by itself."""

SPELLED_GROUPS: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "joined": {"joined_p": (0.02, 0.5)},
    "unreadable": {"unreadable_p": (0.002, 0.03)},
    "unreadable-alone": {"unreadable_p": (0.002, 0.03), "unreadable_alone": (1, 1)},
    "bad-elements": {"bad_element_p": (0.01, 0.3)},
}
"""How a provider says what it says; drawn by itself."""

SKEWS_S: Final = (0.5, -0.5, 5.0, -5.0, 3600.0, -3600.0)
PROVIDER_STEPS_S: Final = (0.5, -0.5, 5.0, -5.0)
"""A provider that sets its clock by more than its retentions loses its own log by it."""

_SELDOM: Final = {"drop", "malformed", "unreadable", "unreadable-alone", "bad-elements"}
"""After these, equality is promised only once the operator has realigned."""


def drawn(rng: random.Random, seed: int) -> tuple[LogOptions, FaultOptions]:
    """What a seed makes: each group of faults is off in many seeds, so that none hides another."""
    share = rng.choice((0.1, 0.25, 0.45))
    values = _values(rng, GROUPS, share)
    values |= _values(random.Random(f"later {seed}"), LATER_GROUPS, share)
    faults = replace(FaultOptions(), **values, shuffle_partitions=rng.random() < share)  # type: ignore[arg-type]
    storages = ("compacted", "emulated", "truncated", "full-history")
    storage = rng.choices(storages, (6, 1, 2, 1))[0]
    delay_s = rng.uniform(10, 50)
    offsets = storage == "truncated" or rng.random() < 0.85
    if not offsets:
        # Not promised: only append times tell there what is newer.
        faults = replace(faults, provider_step_every_s=0.0)
    log = LogOptions(
        storage=storage,
        # Without offsets partitions cannot be distinguished, so there is one.
        partitions=rng.choice((1, 1, 2, 3)) if offsets else 1,
        offsets=offsets,
        compaction_delay_s=delay_s,
        tombstone_retention_s=delay_s + rng.uniform(20, 150),
        retention_s=rng.uniform(60, 200),
        retention_records=rng.choice((None, 15, 40)) if storage == "truncated" else None,
        entities=rng.randint(3, 30),
        change_every_s=rng.choice((1.5, 3.0, 6.0, 20.0)),
        delivery_records=rng.choice((2, 6, 64)),
        duration_s=rng.uniform(100, 450),
    )
    return log, faults


def further(log: LogOptions, faults: FaultOptions, seed: int) -> tuple[LogOptions, FaultOptions]:
    """What was added after the first kept seeds, drawn by itself."""
    rng = random.Random(f"further {seed}")
    tree, forgetful = rng.random() < 0.3, rng.random() < 0.15
    log = replace(log, tree=tree)
    if forgetful and log.storage == "compacted" and log.offsets:
        log = replace(log, storage="forgetful")
    return log, faults


def wider(log: LogOptions, faults: FaultOptions, seed: int) -> tuple[LogOptions, FaultOptions]:
    """What was added after further ones were kept, drawn by itself."""
    rng = random.Random(f"wider {seed}")
    log = replace(log, sparse=rng.random() < 0.1)
    share = rng.choice((0.1, 0.25, 0.45))
    faults = replace(faults, **_values(rng, WIDER_GROUPS, share))  # type: ignore[arg-type]
    if not log.offsets:
        # Nothing tells there that a record was there before, once its token is forgotten.
        faults = replace(faults, restart_open_every_s=0.0)
    return log, faults


def spelled(log: LogOptions, faults: FaultOptions, seed: int) -> tuple[LogOptions, FaultOptions]:
    """What was added after wider ones were kept, drawn by itself."""
    rng = random.Random(f"spelled {seed}")
    values = _values(rng, SPELLED_GROUPS, rng.choice((0.1, 0.25, 0.45)))
    return log, replace(faults, **values)  # type: ignore[arg-type]


def of_2_6(log: LogOptions, faults: FaultOptions, seed: int) -> tuple[LogOptions, FaultOptions]:
    """The same, of a provider that speaks TAPI 2.6."""
    rng = random.Random(f"2.6 {seed}")
    records = rng.choice(("whole", "change-only", "change-only"))
    log = replace(log, records=records, tree=False)
    if records == "change-only":
        # Not promised: a CHANGE that the provider has dropped by its own fault is not stated again.
        faults = replace(faults, drop_p=0.0, malformed_p=0.0, unreadable_p=0.0)
    return log, faults


def _values(
    rng: random.Random, groups: dict[str, dict[str, tuple[float, float]]], share: float
) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, ranges in groups.items():
        chance = share / 3 if name in _SELDOM else share
        on, drawn_values = rng.random() < chance, {f: rng.uniform(*r) for f, r in ranges.items()}
        if on:
            values |= drawn_values
    return values


def changed(options: FaultOptions) -> dict[str, object]:
    """The fields that are not as by default, for the reader of a failing seed."""
    quiet = FaultOptions()
    return {
        field.name: value
        for field in fields(options)
        if (value := getattr(options, field.name)) != getattr(quiet, field.name)
    }
