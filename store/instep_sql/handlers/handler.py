"""What a user declares: a function that is given each change of entities."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from sqlalchemy import Connection

from instep.errors import ConfigurationError
from instep.model.entities import Change, ChangeKind
from instep.ports.message_store import HandlerConnection
from instep.runtime.settings import IntakeSettings
from instep_sql.names import check_name

__all__ = ["ChangeHandler", "Handle"]

Handle: TypeAlias = (
    Callable[[Change, Connection], None] | Callable[[Change, HandlerConnection], Awaitable[None]]
)
"""`def handle(change, connection)` with SQLAlchemy's own connection, called in the store's thread;
or `async def handle(change, connection)`, called in the loop, with a `HandlerConnection`."""

_OF_PROOF = frozenset({ChangeKind.PROVEN, ChangeKind.UNPROVEN})


class ChangeHandler:
    """A function of the user that is given each change in the transaction that commits it.

    Promised:

    - What the function writes through its connection, the change and the position are one commit:
      after a crash all are stored, or none. So each change takes effect once.
    - Changes of one stream come in the order of their commits, so those of one entity do, too.
    - A change that the function fails at is undone alone. It comes again after a pause that
      doubles, `handler_attempts` times in all; the commit of the entities does not wait for it.
      Then `on_handler_failure` decides: BLOCK gives the function nothing more of that stream until
      the change is tried again or dropped (`SqlReader.retry_change`, `drop_change`); SKIP goes on.
    - What a process without the handler commits, it is given later, by a process that has it.

    Not promised: order between streams. Effects outside the connection may happen again.

    - `handle`: The function. It must not commit, nor keep the connection.
    - `name`: Under this name the store keeps how far the handler has come. One that is new begins
      with the oldest change that the journal keeps.
    - `classes`: Only changes of entities of these classes; empty: of all.
    - `proof`: Whether it is also told what is unproven, and proven again (A22).
    - `settings`: `handler_attempts`, `handler_retry_initial_s`, `handler_retry_max_s` and
      `on_handler_failure`; for an asynchronous function `handler_timeout_s`, too.

    Raises `ConfigurationError` for a name that no store can keep.
    """

    def __init__(
        self,
        handle: Handle,
        *,
        name: str,
        classes: Collection[str] = (),
        proof: bool = False,
        settings: IntakeSettings | None = None,
    ) -> None:
        check_name(name, "a handler", "ChangeHandler", "name")
        if isinstance(classes, str):
            raise ConfigurationError(
                f"classes is the text {classes!r}", where="ChangeHandler", hint=f"[{classes!r}]"
            )
        self.handle = handle
        self.name = name
        self.classes = frozenset(classes)
        self.proof = proof
        self.settings = settings or IntakeSettings()

    def __repr__(self) -> str:
        return f"<ChangeHandler {self.name}>"

    @property
    def is_async(self) -> bool:
        """Whether the function is awaited in the loop."""
        called = self.handle if inspect.isroutine(self.handle) else type(self.handle).__call__
        return inspect.iscoroutinefunction(self.handle) or inspect.iscoroutinefunction(called)

    def chooses(self, change: Change) -> bool:
        """Whether it is given this change."""
        if self.classes and change.entity_class not in self.classes:
            return False
        return self.proof or change.change not in _OF_PROOF
