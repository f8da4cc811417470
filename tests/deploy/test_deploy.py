"""The files in `deploy/` fit the command line, the distribution and the documentation."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from contextlib import ExitStack
from ctypes.util import find_library
from pathlib import Path

import psycopg
import pytest

from tests.deploy import sandbox_kit
from tests.deploy.sandbox_kit import settings
from tests.docs.snippets_kit import snippets
from tests.instep.cli.cli_kit import instep, small_provider
from tests.postgres_kit import Missing, serving

REPOSITORY = Path(__file__).resolve().parents[2]
UNIT = REPOSITORY / "deploy" / "instep.service"
CONTAINERFILE = REPOSITORY / "deploy" / "Containerfile"
HADOLINT = Path(sys.executable).parent / "hadolint"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each with its arguments on one line."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    found = [line.partition(" ") for line in lines if line.strip()]
    return [(name, arguments) for name, _, arguments in found]


def assert_options_exist(words: list[str]) -> None:
    """Every option of an `instep` command is one that its help names."""
    shown = instep(words[0], "--help").stdout
    for word in words[1:]:
        assert not word.startswith("--") or word in shown, word


def test_the_page_shows_the_unit_as_it_is() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    [shown] = [one.text for one in snippets(page) if one.value == "instep.service"]
    assert shown == UNIT.read_text()


def test_the_unit_runs_a_command_that_is_there() -> None:
    keys = settings(UNIT)
    [command] = keys["ExecStart"]
    program, *words = command.split()
    assert program.endswith("/instep")
    assert_options_exist(words)
    assert keys["RestartPreventExitStatus"] == ["2"]


HARDENED = {
    **dict.fromkeys(("LockPersonality", "MemoryDenyWriteExecute", "NoNewPrivileges"), "yes"),
    **dict.fromkeys(("PrivateDevices", "PrivateTmp", "PrivateUsers", "ProtectClock"), "yes"),
    **dict.fromkeys(("ProtectControlGroups", "ProtectHome", "ProtectHostname"), "yes"),
    **dict.fromkeys(("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"), "yes"),
    **dict.fromkeys(("RemoveIPC", "RestrictNamespaces", "RestrictRealtime"), "yes"),
    **dict.fromkeys(("RestrictSUIDSGID", "DynamicUser"), "yes"),
    "CapabilityBoundingSet": "",
    "ProcSubset": "pid",
    "ProtectProc": "invisible",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "StateDirectory": "instep",
    "StateDirectoryMode": "0700",
    "SystemCallArchitectures": "native",
    "UMask": "0077",
}


def test_the_unit_is_hardened() -> None:
    keys = settings(UNIT)
    assert {name: keys[name] for name in HARDENED} == {k: [v] for k, v in HARDENED.items()}
    assert keys["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    # What one consumer of several needs is bounded, and nobody waits long for a process.
    assert keys["MemoryMax"] == ["2G"]
    assert keys["OOMPolicy"] == ["continue"]
    assert int(keys["RestartSec"][0]) <= 2
    assert int(keys["RestartMaxDelaySec"][0]) <= 60
    assert keys["StartLimitIntervalSec"] == ["0"]  # else it is given up after five starts


def analyzed(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """What systemd says of the unit; its program need not be installed where it is looked for."""
    program = settings(UNIT)["ExecStart"][0].split()[0]
    copy = folder / UNIT.name
    copy.write_text(UNIT.read_text().replace(program, str(shutil.which("true"))))
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *command, str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here"
)


@needs_systemd
def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path) -> None:
    told = analyzed(tmp_path, "verify", "--recursive-errors=no").stderr.splitlines()
    # Before 254 it does not know these two.
    newer = r"Unknown key.* '(RestartSteps|RestartMaxDelaySec)'"
    assert [line for line in told if UNIT.name in line and not re.search(newer, line)] == []


@needs_systemd
def test_systemd_finds_little_that_the_service_is_exposed_to(tmp_path: Path) -> None:
    told = analyzed(tmp_path, "security", "--offline=true").stdout
    [exposure] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert float(exposure) < 1.5


# -- what the kernel enforces of it ------------------------------------------------------------


def seccomp_is_here() -> bool:
    return shutil.which("systemd-analyze") is not None and bool(find_library("seccomp"))


needs_seccomp = pytest.mark.skipif(
    not seccomp_is_here(), reason="libseccomp or systemd-analyze is not here"
)


def sandboxed(*command: str, folder: Path) -> subprocess.Popen[str]:
    """A program that may do what the unit lets it."""
    kit = [sys.executable, str(Path(sandbox_kit.__file__)), str(UNIT), sys.executable]
    return subprocess.Popen(
        [*kit, *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_seccomp
@pytest.mark.parametrize(
    "attempt",
    [
        "mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "os.sched_setaffinity(0, {0})",
        "os.chroot('.')",
    ],
)
def test_what_the_unit_forbids_is_refused(attempt: str, tmp_path: Path) -> None:
    program = f"import mmap, os, socket; print(os.getpid()); {attempt}"
    with sandboxed("-c", program, folder=tmp_path) as process:
        printed, error = process.communicate(timeout=60)
    assert printed
    assert process.returncode == 1
    assert re.search(r"\n(PermissionError|OSError: \[Errno (1|13)\])", error), error


@needs_seccomp
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_the_service_does_its_work_within_its_limits(store: str, tmp_path: Path) -> None:
    """A consumer with two workers, and a listener on a port; ended as systemd ends it."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/east.db"
        if store == "postgresql":
            try:
                server = stack.enter_context(serving())
            except Missing as missing:
                pytest.skip(str(missing))
            url = server.create()
            with psycopg.connect(url) as connection:
                [folder] = connection.execute("SHOW unix_socket_directories").fetchall()
            # By its socket; the provider is reached over TCP.
            url = f"postgresql://postgres@/{url.rpartition('/')[2]}?host={folder[0]}"
            url += f"&port={server.port}"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        provider = stack.enter_context(small_provider("--storm", "20"))
        (tmp_path / "instep.toml").write_text(f"""
            [[consumers]]
            name = "east"
            workers = 2
            source = {{ kind = "tapi", endpoints = ["{provider}"] }}
            sink = {{ kind = "sql", url = "{url}", journal = "bodies" }}

            [[consumers]]
            name = "messages"
            source = {{ kind = "wsrm", listen = "http://127.0.0.1:{port}/rm" }}
            sink = {{ kind = "sql", url = "sqlite:///messages.db" }}
        """)
        run = ["-c", "from instep.cli import main; main()", "run", "--format", "jsonl"]
        process = stack.enter_context(sandboxed(*run, folder=tmp_path))
        assert process.stdout is not None
        events: list[dict[str, str]] = []
        try:
            while sum(one.get("event") == "aligned" for one in events) < 2:
                line = process.stdout.readline()
                if not line:
                    break  # it has ended; its error is shown below
                events.append(json.loads(line))
            answer = urlopen_status(f"http://127.0.0.1:{port}/nothing")
        finally:
            process.terminate()
            _, error = process.communicate(timeout=60)
        assert answer == 404
        assert process.returncode == 0, error
        assert sum(one.get("event") == "worker-started" for one in events) == 2


def urlopen_status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not made for this platform")
def test_a_linter_finds_no_mistake_in_the_containerfile() -> None:
    told = subprocess.run(
        [HADOLINT, CONTAINERFILE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_the_container_is_built_from_what_is_there() -> None:
    found = instructions()
    assert [name for name, _ in found if name == "FROM"] == ["FROM", "FROM"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for name, arguments in found:
        if name == "COPY" and "--from" not in arguments:
            source = arguments.split()[0]
            assert (REPOSITORY / source).exists()
        if name == "FROM":
            minor = re.search(r"python:(3\.\d+)-", arguments)
            assert minor
            assert f"Programming Language :: Python :: {minor[1]}" in project["classifiers"]
    [extras] = re.findall(r"\.whl\)\[([a-z,]+)\]", " ".join(part for _, part in found))
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert (REPOSITORY / "constraints.txt").exists()


def test_the_container_runs_as_nobody_special_and_its_command_is_there() -> None:
    found = dict(instructions())
    assert int(found["USER"]) >= 1000
    assert json.loads(found["ENTRYPOINT"]) == ["instep"]
    assert_options_exist(json.loads(found["CMD"]))
    assert found["ENV"] == "INSTEP_CONFIG=/etc/instep/instep.toml"
