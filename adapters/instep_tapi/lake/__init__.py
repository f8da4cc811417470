"""What TAPI brings to a lake: tables, views, and the facts once more as Spark SQL, for the bulk."""
