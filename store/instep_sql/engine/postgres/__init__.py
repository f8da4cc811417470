"""PostgreSQL: connections, SQL on the hot path, errors."""
