"""Who writes the landing table: delta-rs in this process, or a Spark session."""
