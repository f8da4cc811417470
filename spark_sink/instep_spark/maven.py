"""Whether Maven coordinates can be had: Spark's own resolver is asked, which knows the
repositories, mirrors and caches of this machine. No host stands here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from instep_spark.jar import cache_folder

__all__ = ["can_resolve"]

_ANSWER_S: Final = 5.0
"""So long is waited for an answer, from when the resolver asks on …"""
_START_S: Final = 120.0
"""… so long for Java to start …"""
_FETCH_S: Final = 600.0
"""… and so long for the files, once something has answered."""
_REMEMBERED_S: Final = 86_400.0
_ASKING: Final = ":: resolving dependencies ::"
_FOUND: Final = "\tfound "
_SETTINGS: Final = "spark.jars."
"""Those of the resolver begin so: repositories, ivy, ivySettings, excludes."""


def can_resolve(
    coordinates: str,
    config: Mapping[str, str],
    cache: Path | None = None,
    now_s: float | None = None,
) -> bool:
    """Whether some repository that Spark would ask has these coordinates, and what they need; they
    are then in its cache. `config` is that of the session. The answer holds for a day.
    """
    settings = {name: config[name] for name in sorted(config) if name.startswith(_SETTINGS)}
    settings.pop("spark.jars.packages", None)
    asked = hashlib.sha256(repr((coordinates, settings)).encode()).hexdigest()[:32]
    folder = cache or cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = folder / f"maven-{asked}"
    now_s = time.time() if now_s is None else now_s
    with suppress(OSError):
        if 0 <= now_s - note.stat().st_mtime < _REMEMBERED_S:
            return note.read_text() == "found"
    found = _ask(coordinates, settings)
    note.write_text("found" if found else "nothing")
    return found


def _ask(coordinates: str, settings: Mapping[str, str]) -> bool:
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 — rarely needed

    home: str = _find_spark_home()  # type: ignore[no-untyped-call]
    stated = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    # It ends when it has resolved: there is no such class.
    run = ["--packages", coordinates, *stated, "--class", "instep.Nothing", "spark-internal"]
    resolver = subprocess.Popen(  # noqa: S603 — the user's own Spark
        [str(Path(home) / "bin" / "spark-submit"), *run],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "SPARK_HOME": home},
        text=True,
        errors="replace",
        start_new_session=True,
    )
    output = _ResolverOutput(resolver)
    try:
        output.asking.wait(_START_S)
        output.answered.wait(_ANSWER_S)
        if not output.found:
            return False
        resolver.wait(_FETCH_S)
        output.join()
    except subprocess.TimeoutExpired:
        return False
    finally:
        resolver.kill()
        resolver.wait()
    return not output.unresolved


class _ResolverOutput(threading.Thread):
    """What the resolver says."""

    def __init__(self, resolver: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True, name="instep-maven")
        self._resolver = resolver
        self.asking = threading.Event()
        self.answered = threading.Event()
        self.found = self.unresolved = False
        self.start()

    def run(self) -> None:
        assert self._resolver.stdout is not None
        with self._resolver.stdout as said:
            for line in said:
                if _ASKING in line:
                    self.asking.set()
                elif line.startswith(_FOUND):
                    self.found = True
                    self.answered.set()
                elif "UNRESOLVED DEPENDENCIES" in line or "FAILED DOWNLOADS" in line:
                    self.unresolved = True
        # It has ended: nobody waits for what it will not say.
        self.asking.set()
        self.answered.set()
