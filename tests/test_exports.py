"""The public names: adding one is a decision, removing one breaks somebody."""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "instep": [
        "Alignment",
        "AlignmentSettings",
        "AuditError",
        "AuditReport",
        "AuthenticationError",
        "BaselineError",
        "Batch",
        "Census",
        "Change",
        "ChangeKind",
        "CommitResult",
        "ConfigurationError",
        "Consumer",
        "ConsumerEvent",
        "ConsumerSettings",
        "ConsumerState",
        "Delivery",
        "DiscoveryError",
        "Environment",
        "Feed",
        "FencedError",
        "Finding",
        "FrameTooBigError",
        "Group",
        "Health",
        "InstepError",
        "JournalOffError",
        "Kind",
        "LeaseLostError",
        "Mode",
        "NoStreamError",
        "PairHealth",
        "Phase",
        "Position",
        "Quarantined",
        "Record",
        "Reference",
        "Role",
        "Sink",
        "SinkError",
        "SinkPlugin",
        "Source",
        "SourceError",
        "SourcePlugin",
        "Start",
        "StoreReader",
        "StoreUnavailableError",
        "StoreVersionError",
        "StoredEntity",
        "StreamGoneError",
        "StreamHealth",
        "StreamInfo",
        "StreamState",
        "StreamStatus",
        "SweepHeldError",
        "SweepStep",
        "TlsError",
        "TokenRefusedError",
        "UnreachableError",
        "Unreadable",
        "Verdict",
        "Zone",
        "process_error",
    ],
    "instep_sql": [
        "Journal",
        "SqlOptions",
        "SqlReader",
        "SqlStore",
    ],
    "instep_tapi": [
        "DEVIATIONS",
        "Options",
        "Reader",
        "TapiSource",
        "read_options",
    ],
    "instep_tapi.testing": [
        "Aliases",
        "AuthSettings",
        "CONDITIONS",
        "Condition",
        "Context",
        "Counters",
        "DiscoveryStyle",
        "Faults",
        "IdentityStyle",
        "Log",
        "LogRecord",
        "LogSettings",
        "Provider",
        "ProviderSettings",
        "RecordStyle",
        "ScaledClock",
        "Start",
        "Stream",
        "StreamSettings",
        "Wrapper",
        "default_streams",
        "topology_context",
    ],
}


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_are_these(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == NAMES[module]


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_is_there(module: str) -> None:
    imported = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(imported, name)] == []
