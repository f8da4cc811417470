"""Requests for single entities: which is due, and what the answers prove (A12, A17). Pure.

Theory. A stored row is compared with what one request shows of its entity. A difference alone
proves nothing: the stream may be about to state it. So it counts after a second look, at least
`confirm_s` later, which finds the same row (by its token) and the same answer, when the stream is
known to have been read beyond the first look: what the provider showed then had come, if it came
by the stream at all.

An answer that there is no such entity proves even less: a provider may say so of everything that
it does not show one by one (A19). It counts after a second look, and only where the provider has
shown another entity of the class between the two.

A class of which nothing is shown is left alone for a while, longer each time. Times are seconds of
one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from instep.alignment.audit import Finding, Verdict
from instep.model.lookups import LookupAnswer, LookupVerdict

__all__ = ["DueLookup", "LookupReason", "LookupResult", "LookupScheduler", "WrongEntities"]

_HOUR_S: Final = 3_600.0
_AGAIN_S: Final = 60.0
"""The first wait after what came to nothing; it doubles up to an hour."""
_OPEN: Final = 1_000
"""Most entities that wait for another look."""
_LOOKS: Final = 8
"""Looks at one entity after which it is left to the next cycle: it changes all the time."""
_FRUITLESS: Final = 3
"""So many answers in a row of a class that show no entity: it may not be shown at all."""
_NAMED: Final = 10_000
"""Most wrong entities that are known by their keys; of others there is a count."""


class LookupReason(StrEnum):
    """Why an entity is asked for."""

    AGAIN = "again"
    """It differed at the last look."""
    CONTROL = "control"
    """Another one of its class is said to be absent: is anything of the class shown?"""
    UNPROVEN = "unproven"
    """Something unreadable may be about it (A17)."""
    SAMPLE = "sample"
    """It is its turn (`audit_share`)."""


class DueLookup(NamedTuple):
    """What is asked for next."""

    reason: LookupReason
    key: str = ""
    """For AGAIN the entity."""
    entity_class: str = ""
    """For CONTROL the class."""


class LookupResult(StrEnum):
    """What is proven of an entity."""

    RIGHT = "right"
    STALE = "stale"
    BOGUS = "bogus"

    @property
    def verdict(self) -> Verdict | None:
        """What is wrong; None: nothing."""
        return None if self is LookupResult.RIGHT else Verdict(self.value)


class _Difference(NamedTuple):
    """A look at an entity that was not as stored."""

    entity_class: str
    token: str
    shown: bytes
    """A digest of what was shown; empty: it is absent."""
    first_s: float
    due_s: float
    looks: int


class _Pause(NamedTuple):
    until_s: float
    lasts_s: float


class LookupScheduler:
    """Requests for single entities of one stream: one at a time, in the order of `due`."""

    def __init__(self, share: float, confirm_s: float, now_s: float) -> None:
        """`share` of the entities that are looked at in an hour, 0: none; `confirm_s`: the time
        between two looks at an entity that differs.
        """
        self.share, self.confirm_s = share, confirm_s
        self._differences: dict[str, _Difference] = {}
        self._shown_s: dict[str, float] = {}
        self._fruitless: dict[str, int] = {}
        self._paused: dict[str, _Pause] = {}
        self._sample_at_s = now_s
        self._unproven = _Pause(now_s, 0.0)

    # -- what is due -----------------------------------------------------------------------------

    def due(self, now_s: float, *, unproven: int) -> DueLookup | None:
        """What is asked for next, where so many entities are unproven; None: nothing now."""
        for key, one in self._differences.items():
            if one.due_s > now_s or self._is_paused(one.entity_class, now_s):
                continue
            if not one.shown and not self._is_controlled(one):
                return DueLookup(LookupReason.CONTROL, key, one.entity_class)
            return DueLookup(LookupReason.AGAIN, key, one.entity_class)
        if unproven and now_s >= self._unproven.until_s:
            return DueLookup(LookupReason.UNPROVEN)
        if self.share and now_s >= self._sample_at_s:
            return DueLookup(LookupReason.SAMPLE)
        return None

    def allowed(self, classes: Collection[str], now_s: float) -> frozenset[str]:
        """Those of these classes that are not left alone."""
        return frozenset(name for name in classes if not self._is_paused(name, now_s))

    def sampled(self, entities: int, now_s: float) -> None:
        """One of so many entities had its turn."""
        wait_s = _HOUR_S / (self.share * max(1, entities)) if self.share else _HOUR_S
        # What could not be done in time is not made up for at once.
        self._sample_at_s = max(self._sample_at_s, now_s - _AGAIN_S) + wait_s

    def nothing_to_sample(self, now_s: float) -> None:
        """Nothing is stored, or nothing of it is shown."""
        self._sample_at_s = now_s + _AGAIN_S

    def round_ended(self, now_s: float) -> None:
        """All that is unproven was asked for once: the next time is later each time."""
        self._unproven = _longer(self._unproven, now_s)

    def attempt_ended(self, now_s: float) -> None:
        """Another attempt has aligned the stream: what is unproven now is asked for at once, and
        differences of before prove nothing.
        """
        self._unproven = _Pause(now_s, 0.0)
        self._differences.clear()

    # -- answers ---------------------------------------------------------------------------------

    def answered(
        self,
        key: str,
        entity_class: str,
        token: str,
        answer: LookupAnswer,
        now_s: float,
        *,
        agrees: bool,
        known_s: float,
    ) -> LookupResult | None:
        """What an answer proves of an entity (A17); None: nothing yet.

        `token` is that of the stored row; `agrees`: whether the row is as the answer shows;
        `known_s`: up to when nothing of the stream is missing.
        """
        if answer.verdict is LookupVerdict.UNKNOWN:
            self._differences.pop(key, None)
            self._found_nothing(entity_class, now_s)
            return None
        if answer.verdict is LookupVerdict.SHOWN:
            self._shown_s[entity_class] = now_s
            self._fruitless.pop(entity_class, None)
            self._paused.pop(entity_class, None)
            if agrees:
                self._differences.pop(key, None)
                return LookupResult.RIGHT
        elif self._found_nothing(entity_class, now_s):
            return None
        shown = blake2b(answer.body, digest_size=16).digest() if answer.body else b""
        before = self._differences.pop(key, None)
        if before is None or (before.token, before.shown) != (token, shown):
            looks = 1 if before is None else before.looks + 1
            if looks <= _LOOKS:
                due_s = now_s + self.confirm_s
                self._open(key, _Difference(entity_class, token, shown, now_s, due_s, looks))
            return None
        proven = now_s - before.first_s >= self.confirm_s and known_s >= before.first_s
        proven = proven and (bool(shown) or self._is_controlled(before))
        if proven:
            return LookupResult.STALE if shown else LookupResult.BOGUS
        if before.looks < _LOOKS:
            due_s = now_s + self.confirm_s
            self._open(key, before._replace(due_s=due_s, looks=before.looks + 1))
        return None

    def gone(self, key: str) -> None:
        """The entity is not stored any more, or cannot be asked for."""
        self._differences.pop(key, None)

    def controlled(self, key: str) -> None:
        """Another entity of its class was asked for, or none is stored: where nothing was shown,
        the absence of this one proves nothing.
        """
        one = self._differences.get(key)
        if one is not None and not self._is_controlled(one):
            del self._differences[key]

    def _is_controlled(self, absent: _Difference) -> bool:
        """Whether an entity of the class was shown since the first look at one that is absent."""
        return self._shown_s.get(absent.entity_class, absent.first_s) > absent.first_s

    def _open(self, key: str, difference: _Difference) -> None:
        if len(self._differences) >= _OPEN:
            self._differences.pop(next(iter(self._differences)))
        self._differences[key] = difference

    def _found_nothing(self, entity_class: str, now_s: float) -> bool:
        """An answer has shown no entity of the class. Returns whether the class is left alone from
        now on.
        """
        self._fruitless[entity_class] = times = self._fruitless.get(entity_class, 0) + 1
        if times < _FRUITLESS or now_s - self._shown_s.get(entity_class, -_HOUR_S) < _AGAIN_S:
            return False
        self._fruitless[entity_class] = 0
        for key in [k for k, one in self._differences.items() if one.entity_class == entity_class]:
            del self._differences[key]
        self._paused[entity_class] = _longer(self._paused.get(entity_class), now_s)
        return True

    def _is_paused(self, entity_class: str, now_s: float) -> bool:
        pause = self._paused.get(entity_class)
        return pause is not None and now_s < pause.until_s


def _longer(before: _Pause | None, now_s: float) -> _Pause:
    lasts_s = min(_HOUR_S, 2 * before.lasts_s or _AGAIN_S) if before else _AGAIN_S
    return _Pause(now_s + lasts_s, lasts_s)


class WrongEntities:
    """The entities of a stream that an audit or a look has proven wrong, and that no later one has
    found right.
    """

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] | None = None
        self._more: dict[Verdict, int] = {}

    def compared(self, findings: Sequence[Finding] = ()) -> None:
        """All was compared: this is wrong, and nothing else."""
        self._verdicts = {one.key: one.verdict for one in findings[:_NAMED]}
        self._more = {}
        for one in findings[_NAMED:]:
            self._more[one.verdict] = self._more.get(one.verdict, 0) + 1

    def looked(self, key: str, verdict: Verdict | None) -> bool:
        """One was compared. Returns whether it is known as wrong for the first time."""
        known = self._verdicts = {} if self._verdicts is None else self._verdicts
        if verdict is None:
            known.pop(key, None)
            return False
        if known.get(key) is verdict:
            return False
        if key in known or len(known) < _NAMED:
            known[key] = verdict
            return True
        return False

    def counts(self) -> dict[str, int] | None:
        """Verdict → entities; None: nothing was compared yet."""
        if self._verdicts is None:
            return None
        found: dict[str, int] = {}
        for verdict in self._verdicts.values():
            found[str(verdict)] = found.get(str(verdict), 0) + 1
        for verdict, more in self._more.items():
            found[str(verdict)] = found.get(str(verdict), 0) + more
        return found
