"""What TR-548 demands of a provider, and no rule is about. Clauses of v1.1, then of v3.2."""

from __future__ import annotations

from typing import Final

from instep.conformance import UnjudgedClause

__all__ = ["UNJUDGED"]

UNJUDGED: Final = (
    UnjudgedClause(
        "3.8.2.3, 3.9.2; 3.8.2.3, 3.8.2.4, 3.9.2 of v3.2",
        "Logs with periodic records, and further combinations of strategies.",
        "The text says that they are not developed yet.",
    ),
    UnjudgedClause(
        "3.9.1.3 to 3.9.1.7; the same of v3.2",
        "A client that reads on becomes aligned, and loses detail where it falls behind.",
        "It follows from what the rules of the log are about: order, compaction, retention.",
    ),
    UnjudgedClause(
        "3.10; 3.10.1 of v3.2 (record-authenticity-token)",
        "A value shows that a record comes from its provider.",
        "How it is made is agreed between both sides, and stated nowhere.",
    ),
    UnjudgedClause(
        "3.10; 3.10.1 of v3.2 (tapi-context)",
        "The header may name the context.",
        "It is optional, and how a context gets its uuid is not specified.",
    ),
    UnjudgedClause(
        "3.10; 3.10.2 of v3.2 (event-source, additional-event-info)",
        "The body states them under conditions.",
        "Whether the condition holds, only the provider knows.",
    ),
    UnjudgedClause(
        "3.11.1; the same of v3.2",
        "Times are of clocks that are synchronized, as precise as source-precision says.",
        "Of the clocks only that of the provider can be compared with ours.",
    ),
    UnjudgedClause(
        "3.11.2, 3.12; the same of v3.2",
        "Records of different streams and partitions may come in any order.",
        "It is a liberty, not a duty.",
    ),
    UnjudgedClause(
        "5.8; 7.8 of v3.2 (a token that the provider never gave)",
        "The provider decides by the token where the stream begins.",
        "What it does with one that names none of its records is not specified.",
    ),
    UnjudgedClause(
        "3.11.1; the same of v3.2 (a log-append-time-stamp that is too early)",
        "It is the time when the record was logged.",
        "A record that comes late looks the same. Where such times make tokens look old, or records"
        " superseded, the rules of the log name that.",
    ),
    UnjudgedClause(
        "3.18; the same of v3.2",
        "A stream monitor shows how far each client has read.",
        "It is optional, and for administrators: a client need not be allowed to read it.",
    ),
    UnjudgedClause(
        "3.19.2, 3.19.3; the same of v3.2",
        "Emulated compaction: a snapshot, then a truncated log.",
        "The order within the snapshot, and what comes twice, is left to the provider; its records"
        " are judged as all others are.",
    ),
    UnjudgedClause(
        "4.4, 4.7; 4.4, 4.8 of v3.2",
        "Of a detector that was clear, no TOMBSTONE is logged when it is deleted.",
        "What stood before it may have been removed by compaction.",
    ),
    UnjudgedClause(
        "4.8; 4.9 of v3.2",
        "The time of an alarm is that of its source, preserved on its way; one that the provider"
        " has added has SPREAD_BEFORE.",
        "Who has stamped it first, only the provider knows.",
    ),
    UnjudgedClause(
        "4.9; 4.10 of v3.2",
        "An alarm has its native name, and its normalized one, or there are means to translate it.",
        "The native name is judged by `tapi-alarm-mandatory`; the means may be given elsewhere.",
    ),
    UnjudgedClause(
        "4.10; 4.11 of v3.2",
        "A TOMBSTONE ends an alarm that has become meaningless.",
        "Why an alarm has a meaning or none cannot be read from a stream.",
    ),
    UnjudgedClause(
        "ST-0.9, step 4",
        "The provider tells the client in the stream that it begins at the oldest record.",
        "No edition defines how; that it begins there is judged by `tapi-token-old`.",
    ),
    UnjudgedClause(
        "ST-1.1",
        "A stream that is ALIGNING sends no records.",
        "The YANG allows them if they are valid.",
    ),
    UnjudgedClause(
        "ST-1.1 to ST-1.3, ST-3, ST-4",
        "How a provider fills, repairs and moves its log.",
        "Inner steps; what they come to is judged by the rules of the log.",
    ),
    UnjudgedClause(
        "6.1.3, 6.1.5; 8.1.3, 8.1.5 of v3.2",
        "A log is kept in segments, and is compacted behind the active one.",
        "What is inside the log does not show.",
    ),
    UnjudgedClause(
        "5 of v3.2 (CHANGE)",
        "A CHANGE states what has changed of an entity, and its number.",
        "The log states each entity whole beside it, and that is judged; what is in a CHANGE is not"
        " compared with it.",
    ),
    UnjudgedClause(
        "6 of v3.2",
        "Measurements by gNMI.",
        "It is another transport, which instep does not read.",
    ),
)
