"""PostgreSQL: connections, statements on the hot path, errors."""
