"""Fuzzes one target guided by coverage: `python -m tests.fuzz reader -max_total_time=600 [CORPUS]`.

Needs Atheris (`pip install atheris`), which is not there for every Python and system: the tests do
without it. Options are libFuzzer's. A crash is written to a file that reproduces it when named.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main() -> None:
    try:
        # It must come before what it instruments.
        import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        sys.exit("Atheris is not installed: pip install atheris, or use `make fuzz`")
    packages = ["instep_tapi", "instep_didcomm", "instep_http"]
    packages += ["instep_soap", "instep_wsrm", "instep_wsr", "instep_sdpi"]
    with atheris.instrument_imports(include=packages):
        from tests.fuzz.seeds import SEEDS, WORDS  # noqa: PLC0415
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"name one of {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as folder:
        seeds = Path(folder, "seeds")
        seeds.mkdir()
        for number, seed in enumerate(SEEDS[name]):
            (seeds / str(number)).write_bytes(seed)
        words = Path(folder, "words")
        words.write_text("\n".join(f'"{_escaped(word)}"' for word in WORDS if len(word) < 100))
        # What is found goes into the first folder that is named, the seeds are only read.
        found = Path(folder, "found")
        found.mkdir()
        given = sys.argv[2:]
        folders = [] if any(not option.startswith("-") for option in given) else [str(found)]
        target = TARGETS[name]
        atheris.Setup([sys.argv[0], f"-dict={words}", *given, *folders, str(seeds)], target)
        atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
