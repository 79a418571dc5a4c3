"""Alembic environment and revisions, run from the installed package."""
