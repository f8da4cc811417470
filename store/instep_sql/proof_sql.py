"""SQL for the proof of an entity (A22): whether it is unproven, why, and what has proven it last.

The proof is kept where it is decided: `instep_proof` has a row for an attempt, baseline or audit,
and `instep_unproven` one for a stream, partition or class. What an entity carries follows from
them and from its mark, so a million entities become unproven with one row. Only one that is singled
out has a row of its own. The alias of `instep_entity` is `t`. The view `instep_entities` has the
same.
"""

from __future__ import annotations

from typing import Final

from instep.model.holds import UnprovenReason

__all__ = ["IS_UNPROVEN", "PROOF_COLUMNS", "PROOF_JOIN", "SCOPE_COVERS"]

SCOPE_COVERS: Final = """
    u.stream_no = t.stream_no AND u.key = '' AND u.attempt > t.attempt
    AND (u.class = '' OR u.class = t.class)
    AND (u.partition IS NULL OR t.token = '' OR (u.partition = t.partition
         AND NOT (u.met_before <> 0 AND u.lineage = t.lineage AND u."offset" >= 0
                  AND t."offset" > u."offset")))
"""
"""Whether a reason `u` that covers more than one entity covers this one."""
IS_UNPROVEN: Final = (
    f"(t.proven = 0 OR EXISTS (SELECT 1 FROM instep_unproven AS u WHERE {SCOPE_COVERS}))"
)
PROOF_JOIN: Final = """
    LEFT JOIN instep_proof AS p ON p.stream_no = t.stream_no AND p.attempt = t.attempt
"""
_BY_MARK: Final = "t.proven <> 0 AND p.at_us >= t.appended_at_us"
_RANK: Final = " ".join(f"WHEN '{one.value}' THEN {n}" for n, one in enumerate(UnprovenReason))
PROOF_COLUMNS: Final = f"""
    coalesce(
        (SELECT u.reason || ' ' || u.digest FROM instep_unproven AS u
         WHERE u.stream_no = t.stream_no AND u.key IN ('', t.key)
           AND (t.proven = 0 AND u.key <> '' OR {SCOPE_COVERS})
         ORDER BY CASE u.reason {_RANK} END, u.digest LIMIT 1),
        CASE WHEN t.proven = 0 THEN '{UnprovenReason.NO_RESOURCE.value}' END
    ) AS unproven_reason,
    CASE WHEN {_BY_MARK} THEN p.at_us ELSE t.appended_at_us END AS proven_at_us,
    CASE WHEN {_BY_MARK} THEN p.kind
         WHEN t.token = '' THEN 'baseline' ELSE 'record' END AS proven_by
"""
