"""Delta tables and the pipelines on Spark."""

from instep_spark.lake.lake import Lake
from instep_spark.lake.views import create_views
from instep_spark.landing.sink import DeltaSink
from instep_spark.session import SparkOptions, open_session

__all__ = ["DeltaSink", "Lake", "SparkOptions", "create_views", "open_session"]
