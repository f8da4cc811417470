"""The threads of a process that runs for long share one heap."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import ctypes, sys, threading
from instep.cli.heap import share_one_heap
if sys.argv[2] == "one":
    share_one_heap()
held, all_have, libc = [], threading.Barrier(8), ctypes.CDLL(None)
def take():
    held.append(bytes(50_000))
    all_have.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p] * 2
libc.fclose.argtypes, libc.malloc_info.argtypes = [ctypes.c_void_p], [ctypes.c_int, ctypes.c_void_p]
file = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
@pytest.mark.parametrize(("given", "one"), [("one", True), ("several", False)])
def test_all_threads_share_one_heap(given: str, one: bool, tmp_path: Path) -> None:
    told = tmp_path / "heaps"
    subprocess.run([sys.executable, "-c", _PROGRAM, str(told), given], check=True, timeout=60)
    assert (told.read_text().count("<heap nr=") == 1) is one
