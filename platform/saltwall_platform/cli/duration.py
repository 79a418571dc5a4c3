"""Times as operators write them: `90s`, `15m`, `12h`, `30d`, or a date for an expiry."""

import re
from datetime import UTC, datetime, timedelta

import typer

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """Reads `90s`, `15m`, `12h` or `30d`; nothing is `0`, with or without a unit."""
    if text.strip() == "0":
        return timedelta()
    match = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time span such as 90s, 15m, 12h or 30d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def moment(text: str) -> datetime:
    """Reads a time span from now, or an ISO date or time (UTC unless it says otherwise)."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC) + duration(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
