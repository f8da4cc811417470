"""Numbered messages: order, duplicates, gaps, cancel and fill, expiry. Pure: no I/O, clock or
randomness. The rules S1 to S14 are in the documentation (topics: sequences).

It can be used alone, without a listener or a store of instep: everything that a driver needs is
named here (how-to: sequencer).
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.model.messages import MessageHeader
    from instep.model.ranges import RangeMap, Ranges
    from instep.sequencing.claims import Claims
    from instep.sequencing.effects import (
        AskResend,
        Decision,
        OwedEffect,
        RealignSequence,
        ReportFault,
        ReportLoss,
        SequenceEffect,
        SequenceEnded,
        SequenceFailed,
    )
    from instep.sequencing.ends import (
        DecidedBy,
        EndedNumbers,
        NumberEnd,
        RecordedEnd,
        resolve_ends,
    )
    from instep.sequencing.events import (
        Announce,
        Cancel,
        Changed,
        Close,
        Fault,
        Fill,
        GiveUp,
        Last,
        Realigned,
        Receive,
        Renew,
        Replayed,
        Reset,
        Resume,
        SequencerInput,
        Terminate,
    )
    from instep.sequencing.gaps import GapPolicy, LastResort
    from instep.sequencing.outbox import Outbox, OutboxSettings, OutboxState
    from instep.sequencing.sequencer import Sequencer
    from instep.sequencing.settings import (
        ChangedContentPolicy,
        FaultPolicy,
        IncompleteBehavior,
        SequencerSettings,
        TimeoutBehavior,
    )
    from instep.sequencing.state import BufferedMessage, SequencerState, decode_state
    from instep.sequencing.transitions import Refusal, SequencePhase, SequenceRefusedError

__all__ = [
    "Announce",
    "AskResend",
    "BufferedMessage",
    "Cancel",
    "Changed",
    "ChangedContentPolicy",
    "Claims",
    "Close",
    "DecidedBy",
    "Decision",
    "EndedNumbers",
    "Fault",
    "FaultPolicy",
    "Fill",
    "GapPolicy",
    "GiveUp",
    "IncompleteBehavior",
    "Last",
    "LastResort",
    "MessageHeader",
    "NumberEnd",
    "Outbox",
    "OutboxSettings",
    "OutboxState",
    "OwedEffect",
    "RangeMap",
    "Ranges",
    "RealignSequence",
    "Realigned",
    "Receive",
    "RecordedEnd",
    "Refusal",
    "Renew",
    "Replayed",
    "ReportFault",
    "ReportLoss",
    "Reset",
    "Resume",
    "SequenceEffect",
    "SequenceEnded",
    "SequenceFailed",
    "SequencePhase",
    "SequenceRefusedError",
    "Sequencer",
    "SequencerInput",
    "SequencerSettings",
    "SequencerState",
    "Terminate",
    "TimeoutBehavior",
    "decode_state",
    "resolve_ends",
]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.model.messages": ("MessageHeader",),
            "instep.model.ranges": (
                "RangeMap",
                "Ranges",
            ),
            "instep.sequencing.claims": ("Claims",),
            "instep.sequencing.effects": (
                "AskResend",
                "Decision",
                "OwedEffect",
                "RealignSequence",
                "ReportFault",
                "ReportLoss",
                "SequenceEffect",
                "SequenceEnded",
                "SequenceFailed",
            ),
            "instep.sequencing.ends": (
                "DecidedBy",
                "EndedNumbers",
                "NumberEnd",
                "RecordedEnd",
                "resolve_ends",
            ),
            "instep.sequencing.events": (
                "Announce",
                "Cancel",
                "Changed",
                "Close",
                "Fault",
                "Fill",
                "GiveUp",
                "Last",
                "Realigned",
                "Receive",
                "Renew",
                "Replayed",
                "Replayed",
                "Reset",
                "Resume",
                "SequencerInput",
                "Terminate",
            ),
            "instep.sequencing.gaps": (
                "GapPolicy",
                "LastResort",
            ),
            "instep.sequencing.outbox": (
                "Outbox",
                "OutboxSettings",
                "OutboxState",
            ),
            "instep.sequencing.sequencer": ("Sequencer",),
            "instep.sequencing.settings": (
                "ChangedContentPolicy",
                "FaultPolicy",
                "IncompleteBehavior",
                "SequencerSettings",
                "TimeoutBehavior",
            ),
            "instep.sequencing.state": (
                "BufferedMessage",
                "SequencerState",
                "decode_state",
            ),
            "instep.sequencing.transitions": (
                "Refusal",
                "SequencePhase",
                "SequenceRefusedError",
            ),
        },
    )
