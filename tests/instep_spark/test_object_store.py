"""What Spark is told of an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from instep.errors import ConfigurationError
from instep_spark import Lake
from instep_spark.object_store import missing_connector, s3a_config
from instep_spark.options import DeltaOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_keys_of_s3_reach_spark_for_their_bucket_alone() -> None:
    options = {
        "AWS_REGION": "eu-central-1",
        "aws_access_key_id": "AK",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
    }
    at = "spark.hadoop.fs.s3a.bucket.my.bucket."
    assert s3a_config("s3a://my.bucket/lake", options) == {
        f"{at}endpoint.region": "eu-central-1",
        f"{at}access.key": "AK",
        f"{at}secret.key": "hunter2",
        f"{at}endpoint": "http://127.0.0.1:9000",
        f"{at}path.style.access": "true",
        f"{at}connection.ssl.enabled": "false",
    }
    assert s3a_config("file:///lake", options) == {}


def test_a_token_and_the_scheme_s3_need_words_of_their_own() -> None:
    found = s3a_config("s3://b/lake", {"AWS_SESSION_TOKEN": "t"})
    assert found.pop("spark.hadoop.fs.s3.impl").endswith("S3AFileSystem")
    at = "spark.hadoop.fs.s3a.bucket.b."
    assert found.pop(f"{at}aws.credentials.provider").endswith("TemporaryAWSCredentialsProvider")
    assert found == {f"{at}session.token": "t"}


def test_what_a_user_says_to_spark_comes_first() -> None:
    name = "spark.hadoop.fs.s3a.bucket.b.endpoint.region"
    url, storage = "s3a://b/lake", {"AWS_REGION": "eu-central-1"}
    assert DeltaOptions(url=url, storage_options=storage).session.config[name] == "eu-central-1"
    stated = DeltaOptions.read(
        {"url": url, "storage_options": storage, "spark": {"config": {name: "eu-west-1"}}}, "sink"
    )
    assert stated.session.config[name] == "eu-west-1"
    remote = DeltaOptions.read(
        {"url": url, "storage_options": storage, "spark": {"remote": "sc://host"}}, "sink"
    )
    assert remote.session == remote.spark


@pytest.mark.parametrize(
    ("url", "package"), [("s3a://b/l", "hadoop-aws:3"), ("abfss://c@a/l", "hadoop-azure:3")]
)
def test_the_package_of_a_missing_connector_is_named(url: str, package: str) -> None:
    missing = RuntimeError("java.lang.ClassNotFoundException: Class x.S3AFileSystem not found")
    assert package in (missing_connector(missing, url) or "")
    assert missing_connector(missing, "file:///lake") is None
    assert missing_connector(RuntimeError("403 Forbidden"), url) is None


@pytest.mark.spark
def test_a_lake_on_s3_without_the_connector_says_what_to_add(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"no connector for s3a://b/lake.*hadoop-aws:3"):
        Lake("s3a://b/lake", spark).run(once=True)
