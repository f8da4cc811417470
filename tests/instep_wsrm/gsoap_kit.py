"""A real source: gSOAP's WS-RM plugin, built from Debian's packages `gsoap` and `libgsoap-dev`.

The plugin is under the GPL, so nothing that is made from it is kept. For 1.0 it needs one change:
its header declares one function with another type than the plugin defines it with.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SHARE = Path("/usr/share/gsoap")
PEER = Path(__file__).resolve().parents[1] / "peers" / "wsrm"
IMPORTS = {"1.1": "wsrm.h", "1.0": "wsrm5.h"}


def build(folder: Path, version: str) -> Path:
    """The program `rm_source` for a version of WS-RM."""
    if not (SHARE / "plugin" / "wsrmapi.c").is_file() or not shutil.which("soapcpp2"):
        pytest.skip("gsoap and libgsoap-dev of Debian are not installed")
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    header = (PEER / "rm_source.h").read_text().replace("@RM@", IMPORTS[version])
    (folder / "rm_source.h").write_text(header)
    plugin = folder / "plugin"
    plugin.mkdir()
    for name in ("wsaapi.c", "wsaapi.h", "wsrmapi.c", "wsrmapi.h", "threads.c", "threads.h"):
        shutil.copy(SHARE / "plugin" / name, plugin)
    declared = plugin / "wsrmapi.h"
    wrong, right = (
        f"struct wsrm__TerminateSequence{kind} *res" for kind in ("Type", "ResponseType")
    )
    declared.write_text(declared.read_text().replace(wrong, right))
    run(folder, "soapcpp2", "-c", "-C", "-a", "-x", f"-I{SHARE}/import:{SHARE}", "rm_source.h")
    run(
        folder,
        # Without it, the plugin loses what is sent after the last message was acknowledged.
        *(
            "gcc",
            "-DSOAP_WSRM_FAST_ALLOC",
            "-w",
            "-O1",
            "-I.",
            f"-I{SHARE}",
            f"-I{SHARE}/plugin",
            f"-I{SHARE}/custom",
        ),
        *("-o", "rm_source", str(PEER / "rm_source.c"), "soapC.c", "soapClient.c"),
        *("plugin/wsaapi.c", "plugin/wsrmapi.c", "plugin/threads.c"),
        *(f"{SHARE}/custom/duration.c", "-lgsoap", "-lpthread"),
    )
    return folder / "rm_source"


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
