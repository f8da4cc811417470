"""Texts of Spark SQL: literals, JSON fields, the comparison of rule A3."""
