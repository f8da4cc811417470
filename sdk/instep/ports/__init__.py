"""The interfaces that plug-ins implement: sources, sinks, listeners, stores of messages,
readers.
"""

from typing import TYPE_CHECKING

from instep.model.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from instep.ports.audit import AuditMarks
    from instep.ports.derivation import (
        Changes,
        Column,
        ColumnType,
        EntityColumns,
        EntityDerivation,
        EntityTable,
        Index,
        ProjectedEntity,
        Query,
        ReadyTable,
        ReplaceRule,
        Row,
        StatementDerivation,
        Statements,
        StatementTable,
        Update,
        View,
        ViewColumn,
    )
    from instep.ports.lease import Lease
    from instep.ports.listener import (
        EnvelopeReceipt,
        Intake,
        IntakeEvent,
        Listener,
        Receipt,
        ReceiptOutcome,
        ReconfigurableListener,
    )
    from instep.ports.lookups import EntityRows, RowKey
    from instep.ports.message_store import MessageStore, OutboxStore
    from instep.ports.plugin import SinkPlugin, SourcePlugin, Verifier, VerifierPlugin
    from instep.ports.publish_target import PublishTarget
    from instep.ports.reader import (
        LeaseReader,
        MessageReader,
        RetirementReader,
        StoreReader,
        SweepReader,
    )
    from instep.ports.sink import Sink
    from instep.ports.source import Feed, Source

__all__ = [
    "AuditMarks",
    "Changes",
    "Column",
    "ColumnType",
    "EntityColumns",
    "EntityDerivation",
    "EntityRows",
    "EntityTable",
    "EnvelopeReceipt",
    "Feed",
    "Index",
    "Intake",
    "IntakeEvent",
    "Lease",
    "LeaseReader",
    "Listener",
    "MessageReader",
    "MessageStore",
    "OutboxStore",
    "ProjectedEntity",
    "PublishTarget",
    "Query",
    "ReadyTable",
    "Receipt",
    "ReceiptOutcome",
    "ReconfigurableListener",
    "ReplaceRule",
    "RetirementReader",
    "Row",
    "RowKey",
    "Sink",
    "SinkPlugin",
    "Source",
    "SourcePlugin",
    "StatementDerivation",
    "StatementTable",
    "Statements",
    "StoreReader",
    "SweepReader",
    "Update",
    "Verifier",
    "VerifierPlugin",
    "View",
    "ViewColumn",
]
if not TYPE_CHECKING:  # a type checker would believe every name of `__getattr__`
    __getattr__, __dir__ = lazy_exports(
        globals(),
        {
            "instep.ports.audit": ("AuditMarks",),
            "instep.ports.derivation": (
                "Changes",
                "Column",
                "ColumnType",
                "EntityColumns",
                "EntityDerivation",
                "EntityTable",
                "Index",
                "ProjectedEntity",
                "Query",
                "ReadyTable",
                "ReplaceRule",
                "Row",
                "StatementDerivation",
                "StatementTable",
                "Statements",
                "Update",
                "View",
                "ViewColumn",
            ),
            "instep.ports.lease": ("Lease",),
            "instep.ports.lookups": ("EntityRows", "RowKey"),
            "instep.ports.listener": (
                "EnvelopeReceipt",
                "Intake",
                "IntakeEvent",
                "Listener",
                "Receipt",
                "ReceiptOutcome",
                "ReconfigurableListener",
            ),
            "instep.ports.message_store": (
                "MessageStore",
                "OutboxStore",
            ),
            "instep.ports.plugin": (
                "SinkPlugin",
                "SourcePlugin",
                "Verifier",
                "VerifierPlugin",
            ),
            "instep.ports.publish_target": ("PublishTarget",),
            "instep.ports.reader": (
                "LeaseReader",
                "MessageReader",
                "RetirementReader",
                "StoreReader",
                "SweepReader",
            ),
            "instep.ports.sink": ("Sink",),
            "instep.ports.source": (
                "Feed",
                "Source",
            ),
        },
    )
