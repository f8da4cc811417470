"""Reading a lake without Spark, and a store as a stream of Spark."""
