"""The database's schema, revision by revision; runs from the installed package."""

from saltwall_migrations.runner import current, head, upgrade

__all__ = ["current", "head", "upgrade"]
