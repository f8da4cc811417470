"""Which of several processes consumes: the decisions of one contender, without I/O or clock.

The store keeps one lease for each consumer: who holds it, an *epoch* that grows with each holder,
a *nonce* that no other take has, and a *beat* that grows with each transaction of the holder.
Whoever holds it is active, the others stand by.

Safety is the store's and needs no clock: taking the lease raises the epoch on the condition that
epoch, nonce and beat are still those that were seen, and each transaction of a holder fails unless
epoch and nonce are its own. So a holder that slept through its succession cannot write one row,
however long it slept and whatever its clock says. Nor can one whose take was lost with the server:
after a fail-over to a copy that lags, the epoch may be given a second time, the nonce is not.

Time only decides when to try. No clock is compared with another: a contender that stands by takes
the lease when it has not seen it change for `PATIENCE` of the holder's `lease_s`, measured by its
own monotonic clock. A wrong clock can make it try too early or too late, nothing worse: a holder
that is superseded stands by, and its position is in the store.

All times are seconds of one monotonic clock; `ROLES` is the whole of the state machine.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from instep.model.state_machine import next_state

__all__ = ["PATIENCE", "ROLES", "LeaseContender", "LeaseEvent", "LeaseState", "Role", "role_after"]

PATIENCE: Final = 2 / 3
"""Share of `lease_s` without a change after which the lease is taken: the rest is for doing it."""
_RENEWALS: Final = 6
_READS: Final = 12


class Role(StrEnum):
    """What a process of a pair does."""

    STANDBY = "standby"
    """It looks at the lease and writes nothing."""
    ACTIVE = "active"
    """It holds the lease and consumes."""
    YIELDING = "yielding"
    """It gave the lease up and lets the others go first."""


class LeaseEvent(StrEnum):
    """What moves a process from one role to another."""

    TAKEN = "taken"
    LOST = "lost"
    """Another took it: the store refused a transaction of ours."""
    GIVEN_UP = "given up"
    SUCCEEDED = "another holds it"
    DECLINED = "nobody took it"


ROLES: Final[dict[Role, dict[LeaseEvent, Role]]] = {
    Role.STANDBY: {LeaseEvent.TAKEN: Role.ACTIVE},
    Role.ACTIVE: {LeaseEvent.LOST: Role.STANDBY, LeaseEvent.GIVEN_UP: Role.YIELDING},
    Role.YIELDING: {LeaseEvent.SUCCEEDED: Role.STANDBY, LeaseEvent.DECLINED: Role.STANDBY},
}


def role_after(role: Role, event: LeaseEvent) -> Role:
    """The role that follows. Raises `IllegalTransition`, which leaves everything as it was."""
    return next_state(ROLES, role, event)


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of one consumer, as the store has it."""

    epoch: int = 0
    """Grows with each holder; 0: nobody ever held it."""
    nonce: str = ""
    """Made for each take; empty where the lease was last given up."""
    beat: int = 0
    """Grows with each transaction of the holder."""
    holder: str = ""
    """Empty: nobody holds it."""
    lease_s: float = 0.0
    """How long the holder may be silent."""
    asked: bool = False
    """Whether this holder was asked to hand over."""


class LeaseContender:
    """The decisions of one process of a pair. Its driver is `instep.runtime.active_standby`."""

    def __init__(self, holder: str, lease_s: float) -> None:
        self.holder = holder
        self.role = Role.STANDBY
        self.seen = LeaseState()
        """The lease, as last seen."""
        self.renew_every_s = lease_s / _RENEWALS
        """A holder that has nothing to commit says this often that it lives."""
        self.read_every_s = lease_s / _READS
        self._lease_s = lease_s
        self._since_s: float | None = None
        """When what was last seen was new to us."""
        self._yields_until_s = 0.0

    def __repr__(self) -> str:
        return f"<Contender {self.holder} {self.role}, epoch {self.seen.epoch}>"

    def saw(self, state: LeaseState, now_s: float) -> bool:
        """Look at the lease while not holding it. True: take it, if it is still as it is here."""
        seen = self.seen
        before = (seen.epoch, seen.nonce, seen.beat)
        if self._since_s is None or (state.epoch, state.nonce, state.beat) != before:
            self._since_s = now_s
        self.seen = state
        if self.role is Role.YIELDING:
            if state.holder:
                self._move(LeaseEvent.SUCCEEDED)
            elif now_s < self._yields_until_s:
                return False
            else:
                self._move(LeaseEvent.DECLINED)
        return not state.holder or now_s - self._since_s >= PATIENCE * state.lease_s

    def took(self, state: LeaseState) -> None:
        """The store gave us the lease."""
        self._move(LeaseEvent.TAKEN)
        self.seen = state

    def lost(self) -> None:
        """The store refused us: another holds the lease. Its time begins when it is next seen."""
        self._move(LeaseEvent.LOST)
        self._since_s = None

    def gave_up(self, now_s: float) -> None:
        """We gave the lease up: the others have `lease_s` to take it."""
        self._move(LeaseEvent.GIVEN_UP)
        self._since_s = None
        self._yields_until_s = now_s + self._lease_s

    def _move(self, event: LeaseEvent) -> None:
        self.role = role_after(self.role, event)
