"""One micro-batch: its records, its statistics, and how far each table has come."""
