"""The manifests for Kubernetes, by the schemas of its API, and against what instep serves."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import aiohttp
import kubernetes_validate
import pytest
import yaml

from instep.metrics.port import OperationsPort
from tests.deploy.test_deploy import REPOSITORY, instructions
from tests.instep.cli.cli_kit import instep
from tests.instep.metrics.test_port import WELL, Said

FILES = sorted((REPOSITORY / "deploy" / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def manifests(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def of_kind(file: Path, *kinds: str) -> dict[str, Any]:
    [found] = [one for one in manifests(file) if one["kind"] in kinds]
    return found


def pod(file: Path) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind(file, "StatefulSet", "Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_takes_them(file: Path, version: str) -> None:
    for one in manifests(file):
        kubernetes_validate.validate(one, version, strict=True)


def test_a_mistake_is_found() -> None:
    broken = of_kind(FILES[0], "StatefulSet")
    broken["spec"]["template"]["spec"]["containers"][0]["livenes"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_configuration_is_good(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = of_kind(file, "ConfigMap")["data"]["instep.toml"]
    path = tmp_path / "instep.toml"
    path.write_text(text)
    for env in pod(file)["containers"][0]["env"]:
        is_store = env["name"] == "STORE_URL"
        monkeypatch.setenv(env["name"], "postgresql://i@db:5432/n" if is_store else "secret")
    checked = instep("check", str(path))
    assert checked.exit_code == 0, checked.output
    listens = tomllib.loads(text)["operations"]["listen"]
    [port] = pod(file)["containers"][0]["ports"]
    assert listens == f"0.0.0.0:{port['containerPort']}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_container_is_that_of_the_containerfile(file: Path) -> None:
    found = dict(instructions())
    told = pod(file)
    [container] = told["containers"]
    assert str(told["securityContext"]["runAsUser"]) == found["USER"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {found["WORKDIR"], "/tmp"} <= mounts  # the rest of the file system takes no writes
    assert str(Path(found["ENV"].partition("=")[2]).parent) in mounts
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert container["image"] == f"instep:{project['version']}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_probes_ask_for_pages_that_are_served(file: Path) -> None:
    [container] = pod(file)["containers"]
    probes = [probe for name, probe in container.items() if name.endswith("Probe")]
    assert len(probes) >= 2

    async def ask() -> None:
        async with (
            OperationsPort(lambda: [Said(WELL)], "127.0.0.1:0", "test") as port,
            aiohttp.ClientSession(port.address) as session,
        ):
            for probe in probes:
                async with session.get(probe["httpGet"]["path"]) as answer:
                    assert answer.status == 200

    asyncio.run(ask())


def test_the_selectors_find_the_pods() -> None:
    for file in FILES:
        workload = of_kind(file, "StatefulSet", "Deployment")["spec"]
        labels = workload["template"]["metadata"]["labels"]
        assert workload["selector"]["matchLabels"] == labels
        assert of_kind(file, "Service")["spec"]["selector"] == labels
