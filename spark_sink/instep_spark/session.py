"""One way to a Spark session that knows Delta, wherever Delta's JVM part comes from.

In this order: a session given by the user; jars or packages that are configured; the coordinates of
the Delta that is installed for Python, where a repository of Maven answers (`instep_spark.maven`);
an installed provider of the jar (`instep_spark.jar`). Where none works, one error names the ways
out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.errors import ConfigurationError
from instep_spark.error_text import first_line
from instep_spark.jar import installed_jar, is_carved
from instep_spark.maven import can_resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ONE_MACHINE",
    "ONE_TASK",
    "SparkOptions",
    "check_session",
    "configured",
    "delta_source",
    "driver_memory_bytes",
    "forget_dead_session",
    "is_connect",
    "is_gone",
    "is_running",
    "java_version",
    "open_session",
    "own_session",
]

_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_JAVA: Final = (17, 21)
"""What Spark 4.0 runs on (https://spark.apache.org/docs/4.0.0/)."""
ONE_TASK: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
"""So a statement over few rows is one job, whatever it joins: of several, each waits for the one
before, and each costs more than the rows do."""
ONE_MACHINE: Final = {
    # 200 and 50 by default, for clusters: most of the tasks of a micro-batch would find nothing.
    "spark.sql.shuffle.partitions": "8",
    "spark.databricks.delta.snapshotPartitions": "2",
    # 10,000 by default: a VACUUM makes as many tasks, however few folders it looks into.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
}
"""What a Spark of one machine is told, unless the user says otherwise."""
_GONE: Final = re.compile(
    r"Answer from Java side is empty|Connection refused|Connection reset|UNAVAILABLE"
    r"|SESSION_NOT_FOUND|SESSION_CLOSED|SESSION_CHANGED|NO_ACTIVE_SESSION|OPERATION_NOT_FOUND"
    r"|stopped SparkContext"
    r"|while (sending|receiving)|Broken pipe|trying to connect to the Java server"
)
_WAYS_OUT: Final = (
    'name the jar: spark.jars = ["/path/delta-spark_2.13-4.0.1.jar", "…/delta-storage-4.0.1.jar"]; '
    'or install a provider of it: pip install "jsoniq==3.0.2"; or let Maven reach a repository: '
    'spark.config = { "spark.jars.repositories" = "https://mirror/maven2" }'
)


class SparkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key `spark` of a Delta sink: which Spark to use. `master` or `remote`, not both."""

    master: str = ""
    """`local[2]`, `spark://host:7077` …; empty: `local[*]`. Needs Java 17 or 21 here."""
    remote: str = ""
    """`sc://host:15002`: Spark Connect. Needs no Java here; Delta is the server's own."""
    jars: tuple[str, ...] = ()
    """Delta's jars (delta-spark_2.13 and delta-storage), and any others."""
    packages: tuple[str, ...] = ()
    """Maven coordinates instead, such as `io.delta:delta-spark_2.13:4.0.1`."""
    config: dict[str, str] = {}
    """Any configuration of Spark."""

    def __repr__(self) -> str:
        # `config` may hold keys of an object store, `remote` a token.
        place = self.remote.partition(";")[0].rpartition("@")[2] or self.master or "local[*]"
        return f"SparkOptions({place!r})"


def open_session(
    options: SparkOptions | None = None,
    *,
    session: SparkSession | None = None,
    app: str = "instep",
) -> SparkSession:
    """A session with Delta. One that runs already in this process is used as it is.

    Raises `ConfigurationError`: no pyspark, no Java or a wrong one, no jar, a session without
    Delta, a master or server that is not reached.
    """
    options = options or SparkOptions()
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 — half a second to import
    except ImportError as error:
        raise ConfigurationError(
            f"Spark is not installed: {error}",
            where="spark",
            hint='install it with: pip install "instep[spark]"',
        ) from None
    session = session or SparkSession.getActiveSession()
    if session is None:
        if options.master and options.remote:
            raise ConfigurationError(
                "master and remote are both given", where="spark", hint="leave one of them out"
            )
        builder = SparkSession.builder.appName(app)
        try:
            session = _configured(builder, options).getOrCreate()
        except ConfigurationError:
            raise
        except Exception as error:
            # Py4J raises what the JVM threw, gRPC what the server did; they share no base.
            raise _not_started(options, error) from error
    return check_session(session)


def check_session(session: SparkSession | None) -> SparkSession:
    """Return the session. Raises `ConfigurationError` where it is none, was stopped, or does not
    know Delta.
    """
    if session is None or not hasattr(session, "sql"):
        raise ConfigurationError(
            f"{type(session).__name__} is not a Spark session",
            where="spark",
            hint="open one: from instep_spark import open_session; spark = open_session()",
        )
    if _is_stopped(session):
        raise ConfigurationError(
            "the Spark session was stopped",
            where="spark",
            hint="open another one: from instep_spark import open_session; spark = open_session()",
        )
    _check_delta(session)
    return session


def _is_stopped(session: Any) -> bool:
    if is_connect(session):
        return bool(session.is_stopped)
    context = getattr(session, "_sc", None)
    return context is not None and context._jsc is None  # noqa: SLF001 — no public word for it


def _configured(builder: Any, options: SparkOptions) -> Any:
    for key, value in _defaults(options).items():
        builder = builder.config(key, value)
    if options.remote:
        return builder.remote(options.remote)
    check_java()
    if _is_local(options):
        # Spark's Python workers would be whatever `python3` is, without instep.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = builder.master(options.master or "local[*]")
    jars, packages = list(options.jars), list(options.packages)
    if not jars and not packages and "spark.jars.packages" not in options.config:
        coordinates, jar = _delta_coordinates(), installed_jar()
        if jar is None or can_resolve(coordinates, options.config):
            packages = [coordinates]
        else:
            jars = [str(jar)]
    missing = [jar for jar in jars if "://" not in jar and not Path(jar).is_file()]
    if missing:
        raise ConfigurationError(
            f"there is no jar {missing[0]!r}", where="spark.jars", hint=_WAYS_OUT
        )
    if jars:
        builder = builder.config("spark.jars", ",".join(jars))
    if packages:
        builder = builder.config("spark.jars.packages", ",".join(packages))
    return builder


def _delta_coordinates() -> str:
    """Those of the Delta that is installed for Python, which states them itself."""
    from delta import configure_spark_with_delta_pip  # noqa: PLC0415 — half a second to import
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = configure_spark_with_delta_pip(SparkSession.Builder())
    stated: dict[str, str] = builder._options  # noqa: SLF001 — it has no getter
    return stated["spark.jars.packages"]


def _defaults(options: SparkOptions) -> Mapping[str, str]:
    if options.remote:
        return {"spark.sql.session.timeZone": "UTC", **options.config}
    return {
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(ONE_MACHINE if _is_local(options) else {}),
        **options.config,
    }


def _is_local(options: SparkOptions) -> bool:
    return not options.master.startswith(("spark:", "yarn", "k8s:"))


def _check_delta(session: SparkSession) -> None:
    from pyspark.errors import ParseException, PySparkException  # noqa: PLC0415 — half a second

    # The configuration tells nothing: platforms have it built in, and a session that began without
    # the jar names the extension all the same. Only Delta's parser knows this statement.
    try:
        session.sql("VACUUM delta.`/instep/is/delta/there` DRY RUN")
    except ParseException:
        raise ConfigurationError(
            "the Spark session has no Delta",
            where="spark",
            hint="let instep_spark.open_session() open it before any other, or start it with "
            f'spark.sql.extensions = "{_EXTENSION}", '
            f'spark.sql.catalog.spark_catalog = "{_CATALOG}", and the jar; or {_WAYS_OUT}',
        ) from None
    except PySparkException:
        pass  # there is no such table


def delta_source(session: SparkSession) -> str:
    """Where the Delta of a session comes from, in words."""
    if is_connect(session):
        return "the server's own"
    stated = session.sparkContext.getConf()
    jars = stated.get("spark.jars", "") or ""
    # Spark adds to the jars what it has fetched.
    packages = stated.get("spark.jars.packages", "")
    if packages:
        return f"{packages}, by Maven"
    if is_carved(jars):
        return f"{jars}, because no repository of Maven answered"
    return jars or "built in"


def _not_started(options: SparkOptions, error: Exception) -> ConfigurationError:
    hint = (
        "is the server there, with Delta in its jars?"
        if options.remote
        else f"is the master there? If Delta could not be found (see above): {_WAYS_OUT}"
    )
    return ConfigurationError(
        f"Spark does not start: {first_line(error, None)}", where=repr(options), hint=hint
    )


def check_java() -> None:
    """Raise `ConfigurationError` unless a Java is here that this Spark runs on."""
    found = java_version()
    hint = "install OpenJDK 17 or 21, or let JAVA_HOME name one; or use spark.remote (Connect)"
    if found is None:
        raise ConfigurationError("there is no Java", where="spark", hint=hint)
    if found not in _JAVA:
        raise ConfigurationError(
            f"Java {found} is not one that Spark 4.0 runs on", where="spark", hint=hint, found=found
        )


def java_version() -> int | None:
    """The feature release of the Java that Spark would start; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 — the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def own_session(session: SparkSession) -> SparkSession:
    """A session of its own on the same Spark, with the settings of `session`: what is set in it,
    and its temporary views, are not seen in the other. Over Spark Connect, `session` itself.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 — half a second to import

    if is_connect(session):
        return session  # a client opens sessions by a URL, which it does not keep
    own = session.newSession()
    known = own.conf.getAll
    for key, value in session.conf.getAll.items():
        if known.get(key) != value:
            with suppress(PySparkException):  # what no session may change is the same in all
                own.conf.set(key, value)
    return own


@contextmanager
def configured(session: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Within this, the session has these settings."""
    before: dict[str, Any] = {name: session.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, known)


def is_connect(session: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def driver_memory_bytes(session: SparkSession) -> int | None:
    """What the driver was given; None over Spark Connect, where no client is told."""
    if is_connect(session):
        return None
    stated = session.sparkContext.getConf().get("spark.driver.memory", "1g")
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", (stated or "").strip().lower())
    if found is None:
        return None
    number, unit = found.groups()
    return int(number) << 10 * " kmgt".index(unit or "m")


def is_running() -> bool:
    """Whether this process has a Spark of its own already."""
    from pyspark import SparkContext  # noqa: PLC0415 — half a second to import

    return SparkContext._active_spark_context is not None  # noqa: SLF001


def is_gone(error: Exception) -> bool:
    """Whether an error means that the JVM or the server of a session is gone.

    Py4J, gRPC and Spark each have words of their own for it.
    """
    return isinstance(error, (ConnectionError, EOFError)) or bool(_GONE.search(str(error)))


def forget_dead_session() -> None:
    """Let the next `open_session` start a new JVM after this process's own was killed.

    PySpark keeps one JVM a process and has no public way to leave one that is gone.
    """
    from pyspark import SparkContext  # noqa: PLC0415 — half a second to import
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway: Any = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        with suppress(Exception):  # the JVM or the server is gone already
            gateway.shutdown()
    state: Any = SparkContext
    state._gateway = state._jvm = state._active_spark_context = None  # noqa: SLF001
    sessions: Any = SparkSession
    sessions._instantiatedSession = None  # noqa: SLF001
