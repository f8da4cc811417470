"""The pipeline on Spark: from the landing table `changes` to state, history and alarms."""
