"""What operators want done, as one group of the intake does it: about sequences, and about the dead
letter. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from instep.ports.message_store import OperatorAction, OperatorRequest
from instep.runtime.messages.commit_group import CommitGroup, Scope

__all__ = ["OperatorRequests"]


class OperatorRequests:
    """The requests of operators that a group carries out."""

    def __init__(self, requests: Iterable[OperatorRequest]) -> None:
        self.of_sequences: list[OperatorRequest] = []
        self.replay: list[OperatorRequest] = []
        self.done: dict[int, str] = {}
        """Id of a request → what became of it."""
        numbers = set[tuple[str, int]]()
        for one in requests:
            if one.action is OperatorAction.RECOUNT:
                self.done[one.id] = "recount: done"
            elif one.action is not OperatorAction.REPLAY:
                self.of_sequences.append(one)
            elif one.refused:
                self.done[one.id] = f"replay: refused: {one.refused}"
            elif (one.scope, one.replayed) not in numbers:
                # A second one of its number waits for another group, which will refuse it.
                if one.replayed is not None:
                    numbers.add((one.scope, one.replayed))
                self.replay.append(one)

    def __repr__(self) -> str:
        sequences, replays = len(self.of_sequences), len(self.replay)
        return f"<OperatorRequests {sequences} of sequences, {replays} replays>"

    @property
    def scopes(self) -> set[str]:
        """The sequences that the group needs for them."""
        return {one.scope for one in (*self.of_sequences, *self.replay)}

    @property
    def recount(self) -> bool:
        """Whether another process has changed what the counts are of."""
        return "recount: done" in self.done.values()

    @property
    def dead(self) -> list[int]:
        """The messages to deliver from the dead letter."""
        return [one.number for one in self.replay if one.number is not None]

    def deliver_dead(self, group: CommitGroup, scopes: Mapping[str, Scope]) -> None:
        """Decide what leaves the dead letter: before the senders' requests, so that none of these
        contradicts what an operator has delivered.
        """
        for one in self.replay:
            group.replay(scopes[one.scope], one)
            self.done[one.id] = "replay: delivered"

    def act(self, group: CommitGroup, scopes: Mapping[str, Scope]) -> None:
        """Decide about sequences: after the senders' requests, which may be in the store already,
        where the answer of a commit was lost. After a reset they would be new.
        """
        for one in self.of_sequences:
            self.done[one.id] = group.act(scopes[one.scope], one)
