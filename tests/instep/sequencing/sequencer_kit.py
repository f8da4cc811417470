"""Short words for the tests of the sequencer."""

from __future__ import annotations

from instep.model.messages import MessageHeader
from instep.sequencing.effects import Decision
from instep.sequencing.events import SequencerInput
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.transitions import Refusal

US = 1_000_000
T0_US = 1_700_000_000 * US


def numbered(*numbers: int, content: bytes = b"", expires_at_us: int = 0) -> list[MessageHeader]:
    """Messages with these numbers; content that is equal for equal numbers, if none is given."""
    return [MessageHeader(n, content or b"content %d" % n, 10, expires_at_us) for n in numbers]


def committed(sequencer: Sequencer) -> Sequencer:
    """Commit the state of the sequencer, and return it."""
    sequencer.committed(sequencer.checkpoint())
    return sequencer


def received(sequencer: Sequencer, *numbers: int, now_us: int = T0_US) -> Decision:
    """Receive these numbers, one after the other, and commit."""
    outcome = sequencer.receive(numbered(*numbers), now_us)
    committed(sequencer)
    return outcome


def decide(sequencer: Sequencer, event: SequencerInput, now_us: int = T0_US) -> Decision:
    """Let one event happen alone."""
    return sequencer.apply([event], now_us)


def refusals(outcome: Decision) -> list[tuple[int, Refusal]]:
    return [(message.number, refusal) for message, refusal in outcome.refused]
