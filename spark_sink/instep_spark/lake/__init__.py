"""The pipeline on Spark: from the landing table `changes` to tables of state, history and alarms."""
