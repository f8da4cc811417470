"""What the policies of a sequence may lose, in sentences for whoever chooses them. Pure."""

from __future__ import annotations

from typing import Final

from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.settings import SequencerSettings

__all__ = ["risks_of"]

_BACK_OFF_S: Final = 3_600.0
"""Senders that back off wait for up to an hour, usually."""
_WHOLE_S: Final = 10.0
"""From here on a fraction of a second says nothing."""


def risks_of(settings: SequencerSettings) -> list[str]:
    """What these settings may lose; empty where nothing is lost that a sender sends within an hour
    of its first attempt.
    """
    policy, repeated = settings.gap_policy, (GapPolicy.WAIT, GapPolicy.RESEND)
    tries = settings.gap_attempts if policy in repeated else 0
    waits_s = settings.gap_deadline_s + tries * settings.gap_repeat_s
    skips = policy is GapPolicy.SKIP or (
        policy in repeated and settings.gap_last_resort is LastResort.SKIP
    )
    fails = policy is GapPolicy.FAIL or (
        policy in repeated and settings.gap_last_resort is LastResort.FAIL
    )
    if skips:
        what = "is given up: it is lost, and refused if it comes later"
    elif fails and waits_s < _BACK_OFF_S:
        what = (
            "fails its sequence, and a sender that backs off may wait longer: what came behind it"
            " waits for an operator"
        )
    else:
        return []
    within = f"{waits_s:,.0f}" if waits_s >= _WHOLE_S else f"{waits_s:g}"
    return [f"a message that does not come within {within} s {what}"]
