"""The user's own tables, filled from the entities in the transaction of their commit."""
