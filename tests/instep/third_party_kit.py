"""Installs a distribution of somebody else for the length of a test: modules and entry points."""

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, modules: Mapping[str, str], entry_points: str) -> None:
    """Lay it out as an installer would; the folder has to be on the path."""
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    info = folder / "thirdparty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thirdparty\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


SOURCE = """
from instep.errors import ConfigurationError

class Plugin:
    deviations = {"odd": "it is odd (TR-548 3.10)"}

    def check(self, options, where):
        if options.get("token") == "s3cret":
            raise ConfigurationError("the token 's3cret' is no token", where=where)

    build = check

source = Plugin()
"""
