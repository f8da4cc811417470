"""`instep init` writes a file that `instep check` accepts, whatever the provider says."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from instep.config.json_schema import json_schema
from instep_tapi_provider import AuthSettings, Context, Provider, ProviderSettings, StreamSettings
from tests.instep.cli.cli_kit import started
from tests.instep_tapi.hostile_kit import CONTAINER, Peer, hostile, streams
from tests.json_names_kit import check_names

STREAMS = (StreamSettings("network"), StreamSettings("alarms", frozenset({"CONDITION_DETECTOR"})))
SECRET = 'right"${secret}'


@asynccontextmanager
async def provider(token: str = "") -> AsyncIterator[str]:
    auth = AuthSettings(tokens=frozenset({token} if token else ()))
    context = Context({"uuid": "c", "service-interface-point": [{"uuid": "s"}]})
    async with Provider(context, ProviderSettings(streams=STREAMS, auth=auth)) as served:
        yield served.url


async def instep(*arguments: str, **environ: str) -> tuple[int, str, str]:
    def run() -> tuple[int, str, str]:
        with started(*arguments, **environ) as process:
            out, err = process.communicate(timeout=60)
        if "jsonl" in arguments:
            check_names(arguments, out)
        return process.returncode, out.decode(), err.decode()

    return await asyncio.to_thread(run)


@pytest.mark.asyncio
async def test_the_file_names_the_streams_and_is_good(tmp_path: Path) -> None:
    path = tmp_path / "instep.toml"
    async with provider() as url:
        code, out, err = await instep("init", url, "--output", str(path), "--name", "east")
    assert (code, err) == (0, "")
    assert "written; 2 of 2 streams followed" in out
    text = path.read_text()
    [consumer] = tomllib.loads(text)["consumers"]
    assert consumer["name"] == "east"
    assert consumer["source"] == {"kind": "tapi", "endpoints": [url]}
    assert consumer["sink"] == {"kind": "sql", "url": "sqlite:///network.db"}
    assert "#   alarms: followed\n#     CONDITION_DETECTOR\n" in text
    assert text.startswith("#:schema ./instep.schema.json\n")
    assert max(map(len, text.splitlines())) <= 100
    assert (await instep("check", str(path)))[0] == 0


@pytest.mark.asyncio
async def test_the_result_may_be_a_json_line(tmp_path: Path) -> None:
    path = tmp_path / "instep.toml"
    async with provider() as url:
        code, out, _ = await instep("init", url, "--output", str(path), "--format", "jsonl")
    assert (code, json.loads(out)) == (0, {"file": str(path), "offered": 2, "followed": 2})


@pytest.mark.asyncio
async def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "instep.toml"
    path.write_text("mine")
    async with provider() as url:
        code, out, err = await instep("init", url, INSTEP_CONFIG=str(path))
        assert (code, out, path.read_text()) == (2, "", "mine")
        assert "the file exists already" in err
        assert "--force" in err
        assert (await instep("init", url, "--force", INSTEP_CONFIG=str(path)))[0] == 0
    assert "[[consumers]]" in path.read_text()


@pytest.mark.asyncio
async def test_a_token_is_a_variable_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "instep.toml"
    async with provider(SECRET) as url:
        code, _, _ = await instep("init", url, "--output", str(path), "--token", SECRET)
        assert code == 0
        assert "secret" not in path.read_text()
        assert (await instep("check", str(path), INSTEP_TOKEN="x"))[0] == 0
        # Nobody has to write where the token is, either.
        file = tmp_path / "token"
        file.write_text(SECRET)
        code, _, _ = await instep(
            "init", url, "-o", str(path), "--force", "--token-file", str(file)
        )
        assert code == 0
        [consumer] = tomllib.loads(path.read_text())["consumers"]
        assert consumer["source"]["auth"] == {"kind": "bearer", "token_file": str(file)}
        code, _, err = await instep("init", url, "-o", str(tmp_path / "no.toml"))
    assert code == 1
    assert "401" in err
    assert not (tmp_path / "no.toml").exists()


@pytest.mark.asyncio
async def test_what_a_provider_says_stays_a_comment(tmp_path: Path) -> None:
    evil = 'x"\n[consumers.sink]\x1b[2J\r\u2028url = "sqlite:///evil.db"'

    async def site(peer: Peer) -> None:
        if peer.target == CONTAINER:
            said = streams("ws://127.0.0.1/s", **{"stream-id": evil})
            await peer.answer(json.dumps(said).encode())
        else:
            await peer.answer(b"", status="404 Not Found")

    path = tmp_path / "instep.toml"
    async with hostile(site) as url:
        code, _, err = await instep("init", url, "-o", str(path))
    assert (code, err) == (0, "")
    text = path.read_text()
    assert "evil.db" in text
    assert all(line.isprintable() for line in text.split("\n"))
    [consumer] = tomllib.loads(text)["consumers"]
    assert consumer["sink"]["url"] == "sqlite:///network.db"
    assert (await instep("check", str(path)))[0] == 0


@pytest.mark.asyncio
async def test_the_schema_accepts_what_is_written(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="judges documents by the schema")
    path = tmp_path / "instep.toml"
    async with provider() as url:
        options = ("--store", "postgresql://u:${PGPASSWORD}@h/d", "--insecure")
        assert (await instep("init", url, "-o", str(path), *options))[0] == 0
    jsonschema.validate(tomllib.loads(path.read_text()), json_schema())
