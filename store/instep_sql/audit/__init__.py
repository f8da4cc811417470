"""The marks of an audit, and their comparison with what is stored."""
