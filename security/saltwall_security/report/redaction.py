"""Takes out of a text what must not be in a report, whoever put it there."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

GONE: Final = "[secret]"
SHORTEST: Final = 8
"""Shorter secrets could be any word of the text."""
_LOOKS_SECRET: Final = re.compile(
    r"\bsw_[a-z]+_[0-9A-Za-z_]{12,}|\bsw1\.[0-9A-Za-z_-]{20,}|(?<=Bearer )[^\s\"']{8,}"
    r"|(?<=://)[^\s\"']+(?=@)"
)


class Redaction:
    """Replaces known secrets, and what looks like one: a Saltwall key, a ticket, a bearer token,
    whoever stands before the @ of a URL.
    """

    def __init__(self, secrets: Iterable[str | None]) -> None:
        long = {secret for secret in secrets if secret and len(secret) >= SHORTEST}
        # The longest first: one may be part of another.
        self._known = sorted(long, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them, and without half characters, which no file can hold."""
        text = text.encode("utf-8", "replace").decode()
        for secret in self._known:
            text = text.replace(secret, GONE)
        return _LOOKS_SECRET.sub(GONE, text)


def passwords(urls: Iterable[str | None]) -> Iterator[str]:
    """Those in URLs, as they are written there and as they are sent."""
    for url in urls:
        with suppress(ValueError):  # it is no URL: the attack says so
            password = urlsplit(url or "").password or ""
            yield from (password, unquote(password))
