"""The database of a store: dialect, worker thread, schema and bulk writes."""
