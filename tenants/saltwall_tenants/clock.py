"""The time: always timezone-aware UTC."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The current time."""
    return datetime.now(UTC)
