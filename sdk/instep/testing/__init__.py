"""Helpers for the tests of a plug-in, or of a program around a consumer.

- `check_sink`, `check_source`, `check_message_store`, `check_derivation`: check that a plug-in
  keeps the promises of its port. A failure names the promise, where it is written, and what was
  seen.
- `ScriptedSource`: a source that plays a script, errors and silences too.
- `MemorySink`: a sink in memory, which keeps the promises of a real one.

It needs no test framework: checks are coroutines that raise `BrokenPromiseError`, an
`AssertionError`.
"""

from instep.testing.derivation_contract import DERIVATION_PROMISES, check_derivation
from instep.testing.memory_sink import MemorySink, MemoryStore
from instep.testing.message_store_contract import MESSAGE_STORE_PROMISES, check_message_store
from instep.testing.promises import BrokenPromiseError
from instep.testing.scripted_source import (
    SILENT,
    ConnectionRefused,
    ScriptedFeed,
    ScriptedSource,
    Step,
    log_script,
)
from instep.testing.sink_contract import SINK_PROMISES, check_sink
from instep.testing.source_contract import SESSION_PROMISES, SOURCE_PROMISES, check_source

__all__ = [
    "DERIVATION_PROMISES",
    "MESSAGE_STORE_PROMISES",
    "SESSION_PROMISES",
    "SILENT",
    "SINK_PROMISES",
    "SOURCE_PROMISES",
    "BrokenPromiseError",
    "ConnectionRefused",
    "MemorySink",
    "MemoryStore",
    "ScriptedFeed",
    "ScriptedSource",
    "Step",
    "check_derivation",
    "check_message_store",
    "check_sink",
    "check_source",
    "log_script",
]
