"""Run by Alembic: migrates over the connection that `instep_sql.engine.schema` passes."""

from alembic import context

from instep_sql.engine.schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
