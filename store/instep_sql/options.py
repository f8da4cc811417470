"""The options of a SQL store, checked with names and places."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from itertools import chain
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import fields as fields_of
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from instep.config.derivations import ready_tables, table_derivations
from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep_sql.names import check_name

__all__ = ["Journal", "SqlOptions", "options_type"]

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_URL: Final = r"^(sqlite://(/.+)?|postgresql(\+\w+)?://.*)$"
"""Read by editors (`instep config --schema`); `check_url` refuses more, with texts of its own."""
_SCHEMA: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,62}\Z"


class Journal(StrEnum):
    """How much of each committed change the journal keeps for subscribers."""

    OFF = "off"
    CHANGES = "changes"
    """Which entity changed, and how."""
    BODIES = "bodies"
    """As CHANGES, with the body after the change."""
    PREVIOUS = "previous"
    """As CHANGES, with the bodies before and after the change."""

    def keeps_more_than(self, other: Journal) -> bool:
        """Whether a reader of this journal needs what the other one has not kept."""
        if other is Journal.OFF:
            return self is not Journal.OFF
        return other is Journal.CHANGES and self in (Journal.BODIES, Journal.PREVIOUS)


class SqlOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a SQL store, and the keys of `[consumers.sink]` in `instep.toml`."""

    url: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": _URL})]
    """`sqlite:///file.db` (relative), `sqlite:////var/lib/file.db` (absolute) or `sqlite://`
    (memory); `postgresql://user:password@host:5432/database`, with libpq's options in its query
    (`?sslmode=verify-full&sslrootcert=ca.pem`)."""
    journal: Journal = Journal.OFF
    """How much of each change the journal keeps for subscribers."""
    journal_retention_records: _Positive = 1_000_000
    """The number of newest changes kept; older changes are removed when new ones are appended."""
    journal_retention_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Changes older than this are removed, too; None: only `journal_retention_records` applies."""
    class_index: bool | None = None
    """Whether the store has an index by class, so that questions about one class need not read
    all entities. A new entity then costs a tenth more. None: as it does already, and a new store
    does not."""
    projections: tuple[str, ...] = ()
    """Ready tables that the store fills from its entities, in the transaction of each commit."""
    quarantine_max_records: _Positive = 10_000
    """Records of one stream in quarantine; when full, commits that bring more are refused."""
    quarantine_max_bytes: _Positive = 256 << 20
    """The same bound in bytes, as they were received."""
    quarantine_total_records: _Positive = 50_000
    """Records of all streams of a consumer in quarantine; when full, commits that bring more are
    refused.
    """
    quarantine_total_bytes: _Positive = 1 << 30
    """The same bound in bytes, as they were received."""
    lease_s: Annotated[float, msgspec.Meta(ge=0.5, le=3600)] | None = None
    """Several processes may run under one consumer name: one holds the lease and consumes; when it
    has been silent for this long at most, another takes over. None: no lease, only one process may
    run.
    """
    holder: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    """The name of this process while it holds the lease; None: its host and process id."""
    messages_retention_records: _Positive | None = None
    """Delivered messages kept in `instep_message`, the newest ones; None: all."""
    messages_retention_bytes: _Positive = 16 << 30
    """The same in bytes: about, because bodies, and 300 bytes for each, are counted from time to
    time."""
    messages_retention_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Delivered messages older than this are removed; None: age does not matter."""
    dedup_max_records: _Positive = 1_000_000
    """How many identifiers of unsequenced messages are kept to detect duplicates, the newest ones.
    """
    dedup_retention_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """How long these identifiers are kept; None: age does not matter."""
    numbers_retention_s: Annotated[float, msgspec.Meta(gt=0)] = 90 * 86_400.0
    """How long it is kept what became of each number: of a sequence that is forgotten, and what a
    known one ended otherwise than by delivery. Totals stay.
    """
    numbers_retention_records: _Positive = 1_000_000
    """How many ranges of all forgotten sequences are kept at most, the newest ones."""
    numbers_retention_ranges: _Positive = 10_000
    """How many ranges of each known sequence are kept at most."""
    synchronous: Literal["full", "normal"] = "full"
    """`normal` may lose the last commits (data and position together) when the power fails, or the
    PostgreSQL server."""
    cache_bytes: Annotated[int, msgspec.Meta(ge=1 << 20)] = 128 << 20
    """SQLite: page cache of the writing connection."""
    busy_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    """SQLite: how long to wait for another writer of the same file."""
    schema: Annotated[str, msgspec.Meta(pattern=_SCHEMA)] | None = None
    """PostgreSQL: the schema of the tables, created if it does not exist; None: the user's default.
    The URL may name it, too: `?schema=instep`.
    """
    readers: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=63)], ...] = ()
    """PostgreSQL: roles that may read the public views, and the tables of projections. They are
    granted what they lack when the store is opened."""
    statement_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    """PostgreSQL: the server ends a statement that takes longer."""

    @property
    def place(self) -> URL:
        """The parsed URL. Its `str` and `repr` do not show the password."""
        return make_url(self.url)

    def __repr__(self) -> str:
        # The URL may hold a password.
        return f"SqlOptions({self.place.set(query={})!r}, journal={self.journal.value!r})"

    @classmethod
    def read(cls, options: Mapping[str, Any], where: str, *, derived: bool = True) -> SqlOptions:
        """Read options from plain data. Raises `ConfigurationError`, which names the key, its place
        and the values allowed.

        With `derived` those of derivations are among them (`options_type`). Who only reads a store
        has none, and imports none.
        """
        known = options_type() if derived else cls
        read = read_table(known, options, where, required={"url": "sqlite:///network.db"})
        check_name(read.url, "a store", where, "url")
        check_name(read.holder or "", "a holder", where, "holder")
        for role in read.readers:
            check_name(role, "a role", where, "readers")
        for derivation in table_derivations() if derived else ():
            for key in derivation.options.__struct_fields__:
                names = getattr(read, key)
                for name in chain.from_iterable(names.items()) if isinstance(names, dict) else ():
                    check_name(name, "what it names", where, key)
        check_url(read.url, where)
        place = read.place
        in_memory = place.get_backend_name() == "sqlite" and place.database in {
            None,
            "",
            ":memory:",
        }
        if read.lease_s is not None and in_memory:
            raise ConfigurationError(
                "a store in memory belongs to one process: it keeps no lease",
                where=where,
                hint="leave lease_s out, or name a file or a server",
                key="lease_s",
            )
        return read


@cache
def options_type() -> type[SqlOptions]:
    """`SqlOptions` with the keys of each derivation, and the names of the ready tables."""
    added = [one.options for one in table_derivations()]
    fields: list[Any] = [
        (field.name, field.type, field.default)
        if field.default_factory is msgspec.NODEFAULT
        else (field.name, field.type, msgspec.field(default_factory=field.default_factory))
        for options in added
        for field in fields_of(options)
    ]
    names = tuple(ready_tables())
    if names:
        fields.append(("projections", tuple[Literal[names], ...], ()))  # type: ignore[valid-type]
    # Their texts are found through `documented_by`.
    made: type[Any] = msgspec.defstruct(
        "SqlOptions",
        fields,
        bases=(SqlOptions,),
        namespace={"documented_by": (*added, SqlOptions), "__doc__": SqlOptions.__doc__},
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return made


def check_url(url: str, where: str) -> None:
    """Raise `ConfigurationError` for a URL that this package does not support."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "the key 'url' is not a database URL",
            where=where,
            hint=(
                'for example url = "postgresql://user@host:5432/database"'
                if url.startswith("postgres")
                else 'for example url = "sqlite:///network.db"'
            ),
            key="url",
        ) from None
    if backend == "postgres":
        raise ConfigurationError(
            "the key 'url' begins with postgres:",
            where=where,
            hint="write postgresql:// in its place",
            key="url",
        )
    if backend not in {"sqlite", "postgresql"}:
        raise ConfigurationError(
            f"databases of kind {backend!r} are not supported",
            where=where,
            hint='use a URL such as "sqlite:///network.db" or "postgresql://user@host/database"',
            key="url",
        )
    if backend == "sqlite" and parsed.host:
        raise ConfigurationError(
            "the key 'url' has the file in the place of a host",
            where=where,
            hint=f'write three slashes: url = "sqlite:///{parsed.host}{_below(parsed)}"',
            key="url",
        )
    if parsed.port is not None and not 0 < parsed.port < 1 << 16:
        raise ConfigurationError(
            f"the key 'url' is not usable: there is no port {parsed.port}",
            where=where,
            hint="a port is a number from 1 to 65535; without one, PostgreSQL's own is used",
            key="url",
        )
    schema = parsed.query.get("schema", "x")
    if not (isinstance(schema, str) and re.search(_SCHEMA, schema)):
        raise ConfigurationError(
            "the key 'url' is not usable: its schema is no plain name",
            where=where,
            hint="letters, digits and underscores, for example ?schema=instep",
            key="url",
        )


def _below(url: URL) -> str:
    return f"/{url.database}" if url.database else ""
