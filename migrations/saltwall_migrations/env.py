"""What Alembic runs for every command: the revisions, on the connection it was given."""

from alembic import context

from saltwall_tenants.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite cannot alter most of a table
)
with context.begin_transaction():
    context.run_migrations()
