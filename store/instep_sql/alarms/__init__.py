"""Episodes of alarms, kept in the transaction of the entities (TR-548 4)."""
