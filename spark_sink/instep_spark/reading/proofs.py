"""What a lake knows of the proof of its entities (A22), from `stream_facts`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from instep.model.entities import ProofKind, Unproven
from instep.model.holds import UnprovenReason
from instep_spark.landing_schema import FactKind
from instep_spark.reading.change_filter import to_microseconds

__all__ = ["PROOF_FACTS", "StreamProofs"]

PROOF_FACTS: Final = """
    SELECT fact, name, count, body, at FROM {{stream_facts}}
    WHERE consumer = {consumer} AND stream = {stream} AND fact IN ('PROOF', 'UNPROVEN')
    ORDER BY at
"""


class StreamProofs:
    """The proofs of one stream. `since_us`: since when it is not offered; 0: it is."""

    def __init__(self, facts: Iterable[Mapping[str, Any]], since_us: int) -> None:
        self._since_us = since_us
        self._proven: dict[int, tuple[str, int]] = {}
        self._reasons: dict[tuple[int, str], tuple[str, int]] = {}
        for row in facts:
            at_us = to_microseconds(row["at"])
            if row["fact"] == FactKind.PROOF:
                self._proven[row["count"]] = row["name"], at_us
            else:
                self._reasons[row["count"], row["name"]] = row["body"], at_us
        self._last = max(self._proven, default=0)

    @property
    def withdrawn(self) -> bool:
        """Whether the whole stream is unproven, because it is not offered (A20)."""
        return self._since_us > 0

    def unproven(self, entity_class: str, *, proven: bool) -> str:
        """Why an entity is unproven, with a digest; empty for one that is not. `proven`: the last
        sweep has not left it without knowing of it.
        """
        if self.withdrawn:
            return UnprovenReason.NOT_OFFERED.value
        if proven:
            return ""
        # A later attempt that could read its class would have decided.
        of_any = self._reasons.get((self._last, ""))
        found = of_any or self._reasons.get((self._last, entity_class))
        return found[0] if found is not None else UnprovenReason.NO_RESOURCE.value

    def proof(self, *, attempt: int, token: str, appended_at_us: int, met: bool) -> tuple[str, int]:
        """What has proven an entity last, and when. `met`: the attempt that it carries met it."""
        kind, at_us = self._proven.get(attempt, ("", 0))
        if met and at_us >= appended_at_us and kind:
            return kind, at_us
        return (ProofKind.RECORD if token else ProofKind.BASELINE).value, appended_at_us

    def because(self, unproven: Iterable[str]) -> tuple[Unproven, ...]:
        """Why something of the stream is unproven; `unproven`: classes of which something is."""
        if self.withdrawn:
            reason = UnprovenReason.NOT_OFFERED.value
            return (Unproven(reason=reason, since_us=self._since_us),)
        found = [
            Unproven(
                reason=text.partition(" ")[0],
                entity_class=name,
                digest=text.partition(" ")[2],
                since_us=at_us,
            )
            for (attempt, name), (text, at_us) in self._reasons.items()
            if attempt == self._last
        ]
        told = {one.entity_class for one in found}
        if "" not in told:
            reason = UnprovenReason.NO_RESOURCE.value
            _, since_us = self._proven.get(self._last, ("", 0))
            found += [
                Unproven(reason=reason, entity_class=name, since_us=since_us)
                for name in sorted({*unproven} - told)
            ]
        return tuple(found)
