"""What has proven each entity last, and why one is unproven (A22); and of which streams nothing new
comes, since the provider does not offer them any more (A20).
"""

from __future__ import annotations

from typing import Final

from instep.model.entities import ProofKind
from instep.model.holds import UnprovenReason
from instep.ports.lake import LakeView
from instep_spark.landing_schema import FactKind

__all__ = ["PROOF_VIEWS"]

_SINCE: Final = """regexp_extract(body, '"not_offered_since_us":([0-9]+)', 1)"""
_STREAM_STATES: Final = LakeView(
    "stream_states",
    "Each stream that was ever followed. `state`: offered, not-offered (all that is kept of it is "
    "unproven) or retired (nothing is kept); `since`: when that was found, by our time; null where "
    "it is offered.",
    f"""
    WITH stated AS (
        SELECT consumer, stream, fact, f.at AS stated_at,
            coalesce(try_cast({_SINCE} AS BIGINT), 0) AS since_us
        FROM stream_facts f WHERE fact IN ('{FactKind.STREAM}', '{FactKind.RETIRED}')
    ), newest AS (
        SELECT consumer, stream, max_by(fact, stated_at) AS fact, max(stated_at) AS stated_at,
            max_by(since_us, stated_at) AS since_us
        FROM stated GROUP BY consumer, stream
    )
    SELECT consumer, stream, CASE WHEN fact = '{FactKind.RETIRED}' THEN 'retired'
            WHEN since_us > 0 THEN 'not-offered' ELSE 'offered' END AS state,
        CASE WHEN fact = '{FactKind.RETIRED}' THEN stated_at
            WHEN since_us > 0 THEN timestamp_micros(since_us) END AS since
    FROM newest
    """,
)
_ENTITY_PROOF: Final = LakeView(
    "entity_proof",
    "The proof of each entity that exists, as far as is known. `proven_by`: what has shown last "
    "that it exists: attempt (the log was read from its begin), baseline (current state was read "
    "beside the log) or record (a record states it); `proven_at`: when, by our time for the first "
    "two, else by the provider's. `unproven`: why it is not known whether it exists as stored, "
    "with the digest of what could not be read ([A17 to A22](../topics/alignment.md#the-rules)); "
    "null for one that is proven.",
    f"""
    WITH proofs AS (
        SELECT f.consumer, f.stream, f.count AS attempt, max_by(f.name, f.at) AS kind,
            max(f.at) AS met_at
        FROM stream_facts f WHERE fact = '{FactKind.PROOF}'
        GROUP BY f.consumer, f.stream, f.count
    ), reasons AS (
        SELECT f.consumer, f.stream, f.count AS attempt, f.name AS class,
            max_by(f.body, f.at) AS reason
        FROM stream_facts f WHERE fact = '{FactKind.UNPROVEN}'
        GROUP BY f.consumer, f.stream, f.count, f.name
    ), joined AS (
        SELECT e.consumer, e.stream, e.id, e.key, e.class, e.attempt, e.token, e.appended_at,
            p.kind, p.met_at, e.proven AND p.met_at >= e.appended_at AS met,
            CASE WHEN s.state = 'not-offered' THEN '{UnprovenReason.NOT_OFFERED}'
                WHEN NOT e.proven
                THEN coalesce(a.reason, c.reason, '{UnprovenReason.NO_RESOURCE}') END AS unproven
        FROM entities e
        LEFT JOIN stream_states s ON s.consumer = e.consumer AND s.stream = e.stream
        LEFT JOIN proofs p ON p.consumer = e.consumer AND p.stream = e.stream
            AND p.attempt = e.attempt
        LEFT JOIN reasons a ON a.consumer = e.consumer AND a.stream = e.stream
            AND a.attempt = e.attempt AND a.class = ''
        LEFT JOIN reasons c ON c.consumer = e.consumer AND c.stream = e.stream
            AND c.attempt = e.attempt AND c.class = e.class AND c.class <> ''
    )
    SELECT consumer, stream, id, key, class, attempt,
        CASE WHEN met THEN kind WHEN token = '' THEN '{ProofKind.BASELINE}'
            ELSE '{ProofKind.RECORD}' END AS proven_by,
        CASE WHEN met THEN met_at ELSE appended_at END AS proven_at, unproven
    FROM joined
    """,
)
PROOF_VIEWS: Final = (_STREAM_STATES, _ENTITY_PROOF)
