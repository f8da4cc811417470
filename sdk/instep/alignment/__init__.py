"""Alignment with a log that has opaque tokens. Pure: no I/O, clock or randomness.

`machine` holds the theory of operation and the state machine; the other files are what it
decides by:

- where to resume, what an attempt makes of the position: `resume` (A5, A7, A8)
- whether the log goes on where we left it: `continuity` (A2)
- what an attempt proves to be absent, and what it does not: `absence` (A17, A19)
- when a sweep is due: `sweep_trigger` (A5)
- lag, watermark, fidelity: `lag` (A8)
- position and batch of a commit: `commit_batches` (A1)
- partial updates of CHANGE_ONLY streams: `change_only` (TR-548 3.8.2.2)
- the same stream at another instance: `stream_identity` (TR-548 ST-4.2)
- what an audit proves: `audit` (A12)
- phases and what moves them: `transitions`; requests to the driver: `effects`; knobs: `settings`
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.alignment.absence import is_held
    from instep.alignment.machine import Alignment
    from instep.alignment.settings import AlignmentSettings

__all__ = ["Alignment", "AlignmentSettings", "is_held"]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.alignment.absence": ("is_held",),
            "instep.alignment.machine": ("Alignment",),
            "instep.alignment.settings": ("AlignmentSettings",),
        },
    )
