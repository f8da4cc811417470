"""Runs a program as `deploy/instep.service` lets it run, without systemd: what of its lines the
kernel enforces by itself (seccomp, no new privileges, no memory that is written and executed).

    python sandbox_kit.py UNIT PROGRAM ARGUMENTS…
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

_NO_NEW_PRIVILEGES, _DENY_WRITE_EXECUTE = 38, 65  # of prctl
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # of libseccomp; the error is added to the second
_EQUAL = 4


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
    )


def settings(unit: Path) -> dict[str, list[str]]:
    """The values of each key of a unit, in order; a key may stand more than once."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text(encoding="utf-8").splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found[key].append(value)
    return found


def allowed_calls(filters: list[str]) -> set[str]:
    """The system calls that these lines of SystemCallFilter allow, as this systemd knows them."""
    told = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    sets: dict[str, list[str]] = defaultdict(list)
    name = ""
    for line in told.splitlines():
        if line.startswith("@"):
            name = line
        elif line.startswith("    ") and not line.strip().startswith("#"):
            sets[name].append(line.strip())

    def calls(names: list[str]) -> set[str]:
        found: set[str] = set()
        for one in names:
            found |= calls(sets[one]) if one.startswith("@") else {one}
        return found

    # The first line says what is allowed, the others what of it is not.
    allowed = calls(filters[0].split()) | calls(["@default"])
    for line in filters[1:]:
        assert line.startswith("~")
        allowed -= calls(line.removeprefix("~").split())
    return allowed


def enter(unit: Path) -> None:
    """Restrict this process, and all that it starts."""
    keys = settings(unit)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, wanted in (
        (_NO_NEW_PRIVILEGES, keys["NoNewPrivileges"]),
        (_DENY_WRITE_EXECUTE, keys["MemoryDenyWriteExecute"]),
    ):
        if wanted == ["yes"] and libc.prctl(option, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl {option}")
    allowed = allowed_calls(keys["SystemCallFilter"])
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(_REFUSE | errno.EPERM))

    def rule(action: int, call: str, *comparisons: _Comparison) -> None:
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # else this machine has no such call
            array = (_Comparison * len(comparisons))(*comparisons)
            assert not seccomp.seccomp_rule_add_array(
                context, action, number, len(comparisons), array
            )

    # RestrictNamespaces has nobody use clone3, whose flags a filter cannot see.
    rule(_REFUSE | errno.ENOSYS, "clone3")
    for call in sorted(allowed - {"socket", "clone3"}):
        rule(_ALLOW, call)
    for family in " ".join(keys["RestrictAddressFamilies"]).split():
        rule(_ALLOW, "socket", _Comparison(0, _EQUAL, getattr(socket, family), 0))
    assert not seccomp.seccomp_load(context)


if __name__ == "__main__":
    enter(Path(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
