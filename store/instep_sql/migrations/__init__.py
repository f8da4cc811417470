"""The schema of the store, as a chain of Alembic revisions shipped with the package."""
