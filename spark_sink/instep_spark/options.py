"""What a user may set for a Delta sink, checked with names and places."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypedDict
from urllib.parse import urlsplit

import msgspec

from instep.config.options import read_table
from instep.errors import ConfigurationError
from instep_spark.lake.typed_views import typed_classes
from instep_spark.object_store import s3a_config
from instep_spark.place import LakePlace, Layout
from instep_spark.session import SparkOptions

__all__ = ["SCHEMES", "DeltaOptions", "DeltaSinkOptions"]

SCHEMES: Final = ("file", "s3", "s3a", "gs", "az", "abfs", "abfss", "adl")
"""Where a lake may be: a local or mounted folder, or an object store."""
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_DATABASE: Final = r"^[A-Za-z_]\w{0,127}(\.[A-Za-z_]\w{0,127}){0,2}\Z"
_SECRET_MIN_CHARS: Final = 4


class DeltaSinkOptions(TypedDict, total=False):
    """The keyword arguments of `DeltaSink`: those of `DeltaOptions`, as a program writes them."""

    writer: Literal["rust", "spark"]
    storage_options: Mapping[str, str]
    spark: Mapping[str, Any]
    database: str
    managed: bool
    layout: Layout
    typed_classes: Sequence[str]
    upkeep_share: float
    audit_reading: str
    audit_interval_s: float
    shared: bool
    commit_interval_s: float | None
    commit_records: int
    group_records: int
    compact_every_commits: int
    log_retention_hours: int
    quarantine_max_records: int
    quarantine_max_bytes: int
    quarantine_total_records: int
    quarantine_total_bytes: int


class DeltaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a Delta sink, and the keys of `[consumers.sink]` with `kind = "delta"`."""

    url: str
    """The folder that holds the tables: `file:///var/lib/lake`, `s3://bucket/lake`, `gs://…`,
    `abfss://…`."""
    writer: Literal["rust", "spark"] = "rust"
    """`rust`: delta-rs in this process, milliseconds a commit, no Java. `spark`: a SparkSession,
    for catalogues and clusters."""
    storage_options: dict[str, str] = {}
    """Keys of the object store, as delta-rs names them (`AWS_REGION` …); those of S3 reach Spark,
    too. The process's environment serves as well. Never shown."""
    spark: SparkOptions = SparkOptions()
    """Which Spark, for the `spark` writer and for `instep lake`."""
    database: str = ""
    """`spark` writer: the database of the session's catalogue that names the tables
    (`catalog.schema`); empty: they are known by their URL alone. `instep lake` makes its tables
    there, too."""
    managed: bool = False
    """The catalogue chooses where the files of a new table of `database` are. Else they are under
    `url`, where any engine finds them."""
    layout: Layout = "copy-on-write"
    """What a change does to the files of the tables that `instep lake run` keeps. `copy-on-write`
    rewrites them: every engine reads such tables. `merge-on-read` marks rows in deletion vectors:
    large tables change faster, and not every engine reads them. `auto`: `merge-on-read` from
    32 MiB on where the driver merges, and from 128 MiB on where Spark does; a table that it has
    changed so remains it. Looked at when a run begins."""
    typed_classes: tuple[str, ...] = ()
    """Classes such as `NODE` for which `instep lake run` keeps a table with a column for each
    member that their data model has: `typed_node`."""
    upkeep_share: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.1
    """`instep lake run` spends this share of its time at most on joining small files, once a day
    deleting files that no version of the last week needs, and on audits. 0: it does none of it."""
    audit_reading: str = ""
    """The URL of a lake into which a second consumer lands the same streams: `instep lake run`
    compares `entities` with it now and then, and adds what it finds to `reconciliation`."""
    audit_interval_s: Annotated[float, msgspec.Meta(ge=60)] = 86_400.0
    """Shortest time between two such audits."""
    shared: bool = False
    """Several consumers land in these tables. Else they belong to the consumer that made them."""
    commit_interval_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None
    """Shortest time between the beginnings of two commits: the oldest age of a record that waits
    for others. None: 0.5 with `rust`, 2 with `spark`."""
    commit_records: _Positive = 5_000
    """A batch of this many records waits for no others."""
    group_records: _Positive = 100_000
    """Most records of several streams that one commit takes together."""
    compact_every_commits: Annotated[int, msgspec.Meta(ge=0)] = 200
    """`rust`: small files are joined, and the log is tidied, after this many commits; 0: never."""
    log_retention_hours: _Positive = 48
    """How long the table keeps the log of its versions: a reader may be away for that long."""
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

    def __repr__(self) -> str:
        return f"DeltaOptions({self.url!r}, writer={self.writer!r})"

    @property
    def interval_s(self) -> float:
        """`commit_interval_s`, or its default for the writer."""
        if self.commit_interval_s is not None:
            return self.commit_interval_s
        return 0.5 if self.writer == "rust" else 2.0

    @property
    def session(self) -> SparkOptions:
        """`spark`, with what it has to know of the object store."""
        if self.spark.remote:
            return self.spark  # the server's own
        config = {**s3a_config(self.url, self.storage_options), **self.spark.config}
        return msgspec.structs.replace(self.spark, config=config)

    def location(self, table: str) -> str:
        """The URL of one table of the lake."""
        return f"{self.url.rstrip('/')}/{table}"

    @property
    def place(self) -> LakePlace:
        """Where the tables are, and what SQL calls them."""
        return LakePlace(self.url, self.database, self.managed)

    def redact(self, text: str) -> str:
        """A message without any value of the storage's or Spark's configuration."""
        for value in (*self.storage_options.values(), *self.spark.config.values()):
            if len(value) >= _SECRET_MIN_CHARS:
                text = text.replace(value, "***")
        return text

    @classmethod
    def read(cls, options: Mapping[str, Any], where: str) -> DeltaOptions:
        """Options from plain data. Raises `ConfigurationError` naming the key, where it stands and
        what fits.
        """
        read = read_table(cls, options, where, required={"url": "file:///var/lib/lake"})
        _check(read, where)
        return read


def _check(options: DeltaOptions, where: str) -> None:
    problem = _url_problem(options.url)
    if problem:
        raise ConfigurationError(
            f"the key 'url' is not usable: {problem}",
            where=where,
            hint=_url_hint(options.url),
            key="url",
        )
    if options.database and not re.search(_DATABASE, options.database):
        raise ConfigurationError(
            "the key 'database' is not the name of a database",
            where=where,
            hint='for example database = "network" or "main.network"',
            key="database",
        )
    if options.database and options.writer != "spark":
        raise ConfigurationError(
            "the key 'database' needs Spark as the writer",
            where=where,
            hint='add writer = "spark", or leave database out',
            key="database",
        )
    if unknown := set(options.typed_classes) - typed_classes().keys():
        raise ConfigurationError(
            f"the key 'typed_classes' names a class of no known data model: {min(unknown)}",
            where=where,
            hint=f"known are {', '.join(typed_classes())}",
            key="typed_classes",
        )
    if options.managed and not options.database:
        raise ConfigurationError(
            "the key 'managed' needs a database",
            where=where,
            hint="name the database, or leave managed out",
            key="managed",
        )
    if options.database and not options.managed and re.search(r"['\\$]", options.url):
        raise ConfigurationError(
            "the URL of tables with a name has a character that SQL may read otherwise",
            where=where,
            hint="leave out quotes, backslashes and dollars, or let the catalogue choose: "
            "managed = true",
            key="url",
        )
    if options.spark.master and options.spark.remote:
        raise ConfigurationError(
            "spark.master and spark.remote are both given",
            where=where,
            hint="leave one of them out",
            key="spark",
        )


def _url_hint(url: str) -> str:
    if not url or ":" in url:
        return 'for example url = "file:///var/lib/lake" or "s3://bucket/lake"'
    return f'write url = "{Path(url).absolute().as_uri()}", or "s3://bucket/lake"'


def _url_problem(url: str) -> str:
    try:
        parts = urlsplit(url)
        named = parts.username is not None and parts.password is not None
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in SCHEMES:
        return f"it begins with none of {', '.join(f'{scheme}:' for scheme in SCHEMES)}"
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        return "a local folder is written with three slashes and its whole path"
    if named or parts.query or parts.fragment:
        return "keys belong into storage_options or the environment"
    if "`" in url or not parts.path.strip("/"):
        return "it names no folder"
    return ""
