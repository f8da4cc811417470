"""What Spark has to know of an object store: keys by the names of Hadoop's connectors, and which
connector is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

__all__ = ["missing_connector", "s3a_config"]

_S3A_KEYS: Final = {
    "aws_access_key_id": "access.key",
    "aws_secret_access_key": "secret.key",
    "aws_session_token": "session.token",
    "aws_region": "endpoint.region",
    "aws_default_region": "endpoint.region",
    "aws_endpoint_url": "endpoint",
    "aws_endpoint": "endpoint",
}
"""delta-rs's names of options, in lower case, and those of `fs.s3a.bucket.NAME.…`."""
_TRUE: Final = {"true", "1", "yes", "y", "on", "t"}
_CONNECTORS: Final = {
    "s3": "org.apache.hadoop:hadoop-aws:{}",
    "s3a": "org.apache.hadoop:hadoop-aws:{}",
    "abfs": "org.apache.hadoop:hadoop-azure:{}",
    "abfss": "org.apache.hadoop:hadoop-azure:{}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector (one for Hadoop {})",
}
_MISSING: Final = re.compile(
    r"ClassNotFoundException: Class \S+ not found|No FileSystem for scheme|"
    r"UnsupportedFileSystemException"
)


def s3a_config(url: str, storage_options: Mapping[str, str]) -> dict[str, str]:
    """The options of a lake on S3 as Spark's configuration, for its bucket alone; for lakes that
    are elsewhere, none.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("s3", "s3a"):
        return {}
    options = {name.lower(): value for name, value in storage_options.items()}
    known = {_S3A_KEYS[name]: value for name, value in options.items() if name in _S3A_KEYS}
    if "endpoint" in known:
        hosted = options.get("aws_virtual_hosted_style_request", "false").lower() in _TRUE
        known["path.style.access"] = str(not hosted).lower()
        plain = urlsplit(known["endpoint"]).scheme == "http"
        known["connection.ssl.enabled"] = str(not plain).lower()
    if "session.token" in known:
        known["aws.credentials.provider"] = (
            "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        )
    config = {
        f"spark.hadoop.fs.s3a.bucket.{parts.netloc}.{name}": value for name, value in known.items()
    }
    if parts.scheme == "s3":
        config["spark.hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    return config


def missing_connector(error: Exception, url: str) -> str | None:
    """The package that has what Spark needs to reach `url`, where the error says that it is not
    there; else None.
    """
    coordinates = _CONNECTORS.get(urlsplit(url).scheme)
    if coordinates is None or not _MISSING.search(str(error)):
        return None
    return coordinates.format(_hadoop_version())


def _hadoop_version() -> str:
    """That of the client in pyspark: a connector must have the same."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for jar in (Path(spec.origin).parent / "jars").glob("hadoop-client-api-*.jar"):
        return jar.stem.removeprefix("hadoop-client-api-")
    return "VERSION"
