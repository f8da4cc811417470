"""An S3 server in a process of its own."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pytest

pytest.importorskip("moto.server", reason="no S3 server: pip install 'moto[server]'")
_boto3: Any = pytest.importorskip("boto3")

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter22", "AWS_REGION": "us-east-1"}


@contextmanager
def s3() -> Iterator[dict[str, str]]:
    """The storage options of a server with a bucket `lakes`."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        try:
            deadline_s = time.monotonic() + 60
            while not made_bucket(port):
                assert server.poll() is None, "it does not start"
                assert time.monotonic() < deadline_s, "it does not answer"
                time.sleep(0.1)
            place = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true"}
            yield {**KEYS, **place}
        finally:
            server.kill()


def made_bucket(port: int) -> bool:
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        server.request("PUT", "/lakes")
        return server.getresponse().status == 200
    except OSError:
        return False
    finally:
        server.close()


def upload(folder: Path, storage: Mapping[str, str], prefix: str) -> None:
    """Put all files of a folder into the bucket, under a prefix."""
    client = _boto3.client(
        "s3",
        endpoint_url=storage["AWS_ENDPOINT_URL"],
        region_name=storage["AWS_REGION"],
        aws_access_key_id=storage["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=storage["AWS_SECRET_ACCESS_KEY"],
    )
    for path in folder.rglob("*"):
        if path.is_file():
            client.upload_file(
                str(path), "lakes", f"{prefix}/{path.relative_to(folder).as_posix()}"
            )
