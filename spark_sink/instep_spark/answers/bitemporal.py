"""How sure an interval of `entity_history`, or an episode such as an alarm, is: when we knew of it,
by what, and give or take what.

The provider's time says when something was so; our time, `committed_at` in `changes`, says since
when we know. Both together make the history bitemporal: what was believed then about then.
"""

from __future__ import annotations

from typing import Final

from instep.alignment.lag import Fidelity
from instep.ports.lake import LakeFunction, LakeView
from instep_spark.derivations import EPISODE_TABLES
from instep_spark.identity import DEFAULT_ID

__all__ = ["ENTITIES_AT", "EPISODES", "INTERVALS"]

_PROOF: Final = (
    "`known_from`, `known_until`: our time when what began and what ended {0} had landed; null "
    "where it is open, or `changes` no longer has the row. `basis`: STATED, SWEPT (only a sweep "
    "tells the end), or UNPROVEN (open, and the last attempt could not confirm it). `zone`: "
    "fidelity zone of the minute in which the end was read; of an open one, of the newest minute. "
    "`uncertain_s`: the last seconds of {0} that nothing proves: those since the entity was seen "
    "last, where it was swept or is unproven; those since the last time of which an attempt has "
    "read something, where the next attempt met another statement of the entity, since states may "
    "have come and gone between the two; outside of full fidelity, the reading delay, within which "
    "compaction may have hidden states. `proven_until`: where they begin; of what is open, the "
    "last time of which the attempt that saw the entity last has read something, if that is "
    "earlier."
)
_BEFORE: Final = f"OVER (PARTITION BY consumer, stream, {DEFAULT_ID} ORDER BY ordinal)"


def _proven(name: str, table: str, what: str, ordinal: str, begin: str, end: str) -> LakeView:
    """The rows of a table of intervals with their proof. `ordinal`, `begin`, `end`: the columns
    that tell what row of `changes` began one, and its times.
    """
    return LakeView(
        name,
        f"`{table}` with its proof. {_PROOF.format(what)}",
        f"""
    WITH landed AS (
        SELECT consumer, stream, ordinal, committed_at, attempt, {DEFAULT_ID} AS id,
            lag(attempt) {_BEFORE} AS attempt_before,
            coalesce(lag(lineage) {_BEFORE} = lineage AND lag(appended_at) {_BEFORE} = appended_at
                AND lag(record_offset) {_BEFORE} = record_offset
                AND (record_offset >= 0 OR lag(token) {_BEFORE} = token), false) AS repeated
        FROM changes
    ), heard AS (
        SELECT consumer, stream, attempt, greatest(max(appended_at),
            max(CASE WHEN kind IN ('SWEEP', 'POSITION') THEN committed_at END)) AS heard_at
        FROM changes GROUP BY consumer, stream, attempt
    ), marked AS (
        SELECT h.*, CASE WHEN h.ended_by = 'SWEEP' THEN 'SWEPT'
            WHEN h.open AND e.proven = false THEN 'UNPROVEN' ELSE 'STATED' END AS basis
        FROM {table} h LEFT JOIN entities e
            ON h.open AND e.consumer = h.consumer AND e.stream = h.stream AND e.id = h.id
    ), sighted AS (
        SELECT m.consumer, m.stream, m.id, m.{ordinal}, max(l.committed_at) AS seen_at,
            max(l.attempt) AS seen_attempt
        FROM marked m JOIN landed l
            ON l.consumer = m.consumer AND l.stream = m.stream AND l.id = m.id
        WHERE m.open OR m.basis = 'SWEPT' AND l.ordinal < m.end_ordinal
        GROUP BY m.consumer, m.stream, m.id, m.{ordinal}
    ), resumed AS (
        SELECT m.consumer, m.stream, m.id, m.{ordinal}, min(h.heard_at) AS heard_at
        FROM marked m JOIN landed l
            ON l.consumer = m.consumer AND l.stream = m.stream AND l.id = m.id
            AND l.ordinal > m.{ordinal} AND (m.open OR l.ordinal <= m.end_ordinal)
        JOIN heard h ON h.consumer = l.consumer AND h.stream = l.stream
            AND h.attempt = l.attempt_before
        WHERE l.attempt_before < l.attempt AND NOT l.repeated
        GROUP BY m.consumer, m.stream, m.id, m.{ordinal}
    ), minutes AS (
        SELECT consumer, stream, minute, zone,
            CAST(round(worst_read_delay_s * 1e6) AS BIGINT) AS delay_us
        FROM stream_health
    ), newest AS (
        SELECT consumer, stream, max_by(zone, minute) AS zone, max_by(delay_us, minute) AS delay_us
        FROM minutes WHERE zone IS NOT NULL GROUP BY consumer, stream
    ), timed AS (
        SELECT m.*, b.committed_at AS known_from, u.committed_at AS known_until,
            CASE WHEN m.open THEN n.zone ELSE t.zone END AS zone,
            CASE WHEN m.open THEN n.delay_us ELSE t.delay_us END AS delay_us,
            unix_micros(m.{begin}) AS begin_us, unix_micros(s.seen_at) AS seen_us,
            unix_micros(coalesce(m.{end}, current_timestamp())) AS upto_us,
            unix_micros(d.heard_at) AS heard_us, unix_micros(r.heard_at) AS resumed_us
        FROM marked m
        LEFT JOIN landed b ON b.consumer = m.consumer AND b.stream = m.stream
            AND b.ordinal = m.{ordinal}
        LEFT JOIN landed u ON u.consumer = m.consumer AND u.stream = m.stream
            AND u.ordinal = m.end_ordinal
        LEFT JOIN sighted s ON s.consumer = m.consumer AND s.stream = m.stream AND s.id = m.id
            AND s.{ordinal} = m.{ordinal}
        LEFT JOIN resumed r ON r.consumer = m.consumer AND r.stream = m.stream AND r.id = m.id
            AND r.{ordinal} = m.{ordinal}
        LEFT JOIN heard d ON m.open AND d.consumer = m.consumer AND d.stream = m.stream
            AND d.attempt = coalesce(s.seen_attempt, b.attempt)
        LEFT JOIN newest n ON n.consumer = m.consumer AND n.stream = m.stream
        LEFT JOIN minutes t ON t.consumer = m.consumer AND t.stream = m.stream
            AND t.minute = date_trunc('MINUTE', u.committed_at)
    ), doubted AS (
        SELECT *, greatest(begin_us, least(upto_us,
            CASE WHEN basis = 'STATED' THEN upto_us ELSE coalesce(seen_us, begin_us) END,
            coalesce(resumed_us, upto_us),
            CASE WHEN zone <> '{Fidelity.FULL}' THEN upto_us - delay_us ELSE upto_us END))
            AS proven_us
        FROM timed
    )
    SELECT * EXCEPT (delay_us, begin_us, seen_us, upto_us, heard_us, resumed_us, proven_us),
        timestamp_micros(greatest(begin_us, least(proven_us, coalesce(heard_us, proven_us))))
            AS proven_until,
        greatest(0e0, (upto_us - proven_us) / 1e6) AS uncertain_s
    FROM doubted
    """,
    )


INTERVALS: Final = _proven(
    *("entity_intervals", "entity_history", "an interval"),
    *("ordinal", "valid_from", "valid_to"),
)
EPISODES: Final = tuple(
    _proven(one.intervals, one.name, one.noun, one.begin, one.begin_at, one.end_at)
    for one in EPISODE_TABLES
)
ENTITIES_AT: Final = LakeFunction(
    "entities_at",
    "What existed at a moment of the provider, as far as we knew it at a moment of ours, `as_of`.",
    (("moment", False), ("as_of", True)),
    """
    WITH unknown AS (
        SELECT consumer, stream, ordinal FROM changes WHERE committed_at > as_of
    )
    SELECT h.* FROM entity_history h
    LEFT JOIN unknown b
        ON b.consumer = h.consumer AND b.stream = h.stream AND b.ordinal = h.ordinal
    LEFT JOIN unknown e
        ON e.consumer = h.consumer AND e.stream = h.stream AND e.ordinal = h.end_ordinal
    WHERE b.ordinal IS NULL AND h.valid_from <= moment
        AND (h.open OR h.valid_to > moment OR e.ordinal IS NOT NULL)
    """,
)
