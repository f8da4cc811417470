"""Numbered messages: order, duplicates, gaps, cancel and fill, expiry. Pure: no I/O, clock or
randomness. The rules S1 to S12 are in the documentation (topics: sequences).
"""

from instep.sequencing.effects import (
    AskResend,
    Decision,
    RealignSequence,
    ReportFault,
    ReportLoss,
    SequenceEffect,
    SequenceFailed,
)
from instep.sequencing.gaps import GapPolicy, LastResort
from instep.sequencing.outbox import Outbox, OutboxSettings, OutboxState
from instep.sequencing.sequencer import Sequencer
from instep.sequencing.settings import FaultPolicy, IncompleteBehavior, SequencerSettings
from instep.sequencing.state import SequencerState
from instep.sequencing.transitions import Refusal, SequencePhase, SequenceRefusedError

__all__ = [
    "AskResend",
    "Decision",
    "FaultPolicy",
    "GapPolicy",
    "IncompleteBehavior",
    "LastResort",
    "Outbox",
    "OutboxSettings",
    "OutboxState",
    "RealignSequence",
    "Refusal",
    "ReportFault",
    "ReportLoss",
    "SequenceEffect",
    "SequenceFailed",
    "SequencePhase",
    "SequenceRefusedError",
    "Sequencer",
    "SequencerSettings",
    "SequencerState",
]
