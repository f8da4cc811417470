"""The alerts, each with its page of the run book: one table, from which the rules for Prometheus
and the run book are made.

No threshold is chosen for a network: margins are compared with what the provider declares, silences
with the limit of the connection. A stop that is planned, a handover and a quiet network fire
nothing: what they do for a moment is shorter than `for_s`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

__all__ = ["ALERTS", "Alert", "Severity"]


class Severity(StrEnum):
    """How soon somebody has to look."""

    CRITICAL = "critical"
    """At night, too: something is lost, or soon will be."""
    WARNING = "warning"
    """In the day."""


class Alert(msgspec.Struct, frozen=True):
    """One alert: when it fires, and what its page in the run book says."""

    name: str
    expression: str
    """PromQL over the figures."""
    for_s: int
    """How long it must hold."""
    severity: Severity
    meaning: str
    look_at: str
    to_do: str


_C, _W = Severity.CRITICAL, Severity.WARNING
_LATE: Final = (
    'instep_stream_margin_seconds{{mark="{0}"}} < 0.25 * instep_stream_limit_seconds{{mark="{0}"}}'
)
_SETTLED: Final = (
    'unless on (consumer, stream) instep_stream_phase{phase=~"aligning|baselining|confirming"}'
)
"""In an attempt nothing later is known than what it was opened with."""

# fmt: off
ALERTS: Final = (
    Alert(
        "InstepDown", 'up{job="instep"} == 0', 120, _C,
        "Prometheus does not reach the port: the process has ended, hangs, or the way to it is"
        " cut.",
        "`systemctl status instep`, its log, `instep status --check` on the store.",
        "Start it. It goes on at its position; how long that may wait, the last margins say.",
    ),
    Alert(
        "InstepFailed", 'instep_consumer_state{state="failed"} == 1', 0, _C,
        "A consumer has ended with an error that waiting does not mend. The others go on.",
        "`error` in `/status.json`, the event `failed`.",
        "Mend what the error names (a login, a key, the configuration) and restart the process.",
    ),
    Alert(
        "InstepEntitiesWrong",
        "sum by (consumer, stream) (instep_stream_entities_wrong) > 0", 0, _W,
        "The audit of `audit_share` has found entities that are not as the provider states them,"
        " after a second look.",
        "the event `entities-wrong`, which names the first of them; `instep audit` names all.",
        "`instep audit --repair` writes them as the log states them. Find out who has changed them:"
        " nothing but instep writes its tables.",
    ),
    Alert(
        "InstepNotReady", "instep_consumer_ready == 0", 900, _W,
        "For a quarter of an hour the copy was not in step. A first alignment of a large network"
        " may"
        " take that long; `/startupz` tells.",
        "`/readyz`: each line begins with who has to act.",
        "Follow the alert of that part: provider, store or operator. For `consumer`, look at the"
        " phase and at the attempts.",
    ),
    Alert(
        "InstepProviderSilent",
        "instep_stream_heard_age_seconds > instep_stream_heard_limit_seconds", 60, _W,
        "Nothing came from the provider, not even a Pong, for longer than its connection allows,"
        " since it hangs or is away.",
        "The provider's own log; whether other clients of it are served. Where InstepDisconnected"
        " fires, too, its `error`.",
        "Restart its session or the provider. instep gives the connection up by itself and tries"
        " again; nothing is lost before the margin is used up.",
    ),
    Alert(
        "InstepDisconnected", "instep_stream_connected == 0", 300, _W,
        "A stream has no connection for five minutes.",
        "`error` of the stream in `/status.json`; `instep discover URL`.",
        "Mend the way, the login or the certificate that the error names.",
    ),
    Alert(
        "InstepRetentionNear", _LATE.format("retention"), 60, _C,
        "Three quarters of the time are used up after which the provider forgets what has ended.",
        "The margin beside the other alerts of the stream: who keeps it from reading?",
        "Get the stream read before the margin is 0. After that it is aligned anew, which removes"
        " what has ended by a sweep, and costs a whole reading of the log.",
    ),
    Alert(
        "InstepCompactionNear", f"{_LATE.format('compaction')} {_SETTLED}", 60, _W,
        "Three quarters of the time are used up after which intermediate states are compacted"
        " away.",
        "As for InstepRetentionNear.",
        "Get the stream read. Past it, the last state of each entity is still right; short"
        " alarms in"
        " between may be missing.",
    ),
    Alert(
        "InstepLost", 'instep_stream_phase{phase="lost"} == 1', 0, _C,
        "The stream is read too late for its log, and to align anew did not help (A8).",
        "Records a second beside what the store takes; `committing_s`.",
        "Make the consumer faster: a faster disk, workers, fewer streams. It realigns by itself as"
        " soon as it reads in time.",
    ),
    Alert(
        "InstepStoreAway", 'instep_consumer_faults{part="store"} > 0', 60, _C,
        "The database does not answer, or a commit hangs in it.",
        "The database: is it up, is its disk full, who holds locks (`pg_locks`)?",
        "Mend the database. Reading stops meanwhile, nothing is lost before the margin is used up.",
    ),
    Alert(
        "InstepSweepHeld", "instep_stream_sweep_held == 1", 0, _W,
        "A sweep would remove more than the guard allows, and waits for a decision (A6).",
        "`instep sweep status`, `instep audit`.",
        "Ask the provider's operator whether so much was removed. If so `instep sweep release`,"
        " else"
        " mend the provider and realign.",
    ),
    Alert(
        "InstepNoProgress", "instep_stream_attempts_unaligned >= 3", 300, _W,
        "Attempts in a row came to no alignment (A16).",
        "The event `no-progress` says how far they came.",
        "Mostly the provider or a proxy closes the connection half-way: compare its limits with the"
        " time that a reading takes.",
    ),
    Alert(
        "InstepUnproven", "instep_stream_unproven > 0", 3600, _W,
        "For an hour there are entities of which it is not known whether they exist as stored"
        " (A17).",
        "`instep status` says why and since when; `instep entities --unproven`.",
        "Mend what cannot be read and replay it (`instep quarantine`), or accept it as lost.",
    ),
    Alert(
        "InstepQuarantined", "increase(instep_stream_quarantined_total[15m]) > 0", 0, _W,
        "The provider sends records that cannot be read. They are kept with their bytes (A11).",
        "`instep quarantine list`.",
        "Tell the provider's vendor. After an update that can read them: `instep quarantine"
        " replay`.",
    ),
    Alert(
        "InstepGap", "instep_intake_gap_age_seconds > 900", 0, _W,
        "A number is missing for a quarter of an hour, and messages wait behind it (S4).",
        "`instep sequences list`.",
        "Ask the sender for it. If it is lost: `instep sequences give-up`.",
    ),
    Alert(
        "InstepSequenceFailed", "increase(instep_intake_failed_sequences_total[15m]) > 0", 0, _W,
        "A sequence has failed: a number did not come in time, or its content has changed. It is"
        " frozen, and keeps what it holds (S13).",
        "the event `sequence-failed`; `instep sequences list`.",
        "Ask the sender to begin a new sequence. `instep sequences resume` lets this one go on,"
        " `reset` forgets it.",
    ),
    Alert(
        "InstepBlocked", "instep_intake_blocked > 0", 300, _W,
        "A sequence waits for a decision about a message that the handler failed on.",
        "`instep sequences list`, `instep quarantine list`.",
        "Mend the handler and replay the message, or drop it.",
    ),
    Alert(
        "InstepDeadLetter", "instep_intake_dead > 0", 300, _W,
        "Messages were accepted and are not delivered (S13). They are kept.",
        "`instep messages dead list`.",
        "Replay them, or export and drop them.",
    ),
    Alert(
        "InstepNoStandby", "count by (consumer) (instep_consumer_lease_held) < 2", 600, _W,
        "Of a pair only one process is scraped: if it fails, nobody takes over.",
        "The other host: does its process run, does Prometheus reach its port?",
        "Start it.",
    ),
    Alert(
        "InstepLoopLate", "instep_consumer_loop_lag_seconds > 1", 600, _W,
        "The process has too little processor time, or a callback takes too long.",
        "Processor time of the host and of the process; the event `loop-lag`.",
        "Give it more, use workers, or move what else runs there.",
    ),
)
# fmt: on
