"""Delta tables and the pipelines on Spark; nothing is here yet."""
