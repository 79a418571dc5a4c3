"""Takes out of a text what must not be in a report, whoever put it there."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from saltwall_security.spelling import spell
from saltwall_security.target import Target

GONE: Final = "[secret]"
SHORTEST: Final = 8
"""Shorter secrets could be any word of the text."""
_LOOKS_SECRET: Final = re.compile(
    r"\bsw_[a-z]+_[0-9A-Za-z_]{12,}|\bsw1\.[0-9A-Za-z_-]{20,}|(?<=Bearer )[^\s\"']{8,}"
    r"|(?<=://)[^\s\"']+(?=@)"
)

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What moves the cursor, breaks the line or turns the direction of writing."""


class Redaction:
    """Replaces known secrets, however they are written, and what looks like one: a Saltwall key, a
    ticket, a bearer token, whoever stands before the @ of a URL.
    """

    def __init__(self, secrets: Iterable[str | None]) -> None:
        long = {_plain(secret) for secret in secrets if secret and len(secret) >= SHORTEST}
        spelled = {_plain(each.decode(errors="replace")) for one in long for each in spell(one)}
        # The longest first: one may be part of another.
        self._known = sorted(long | spelled, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them, in one line, and without what terminals obey or no file holds."""
        text = _plain(text)
        for secret in self._known:
            text = text.replace(secret, GONE)
        return _LOOKS_SECRET.sub(GONE, text)


def redaction(target: Target) -> Redaction:
    """Of all that the auditor was given for a target."""
    secrets = [secret for t in target.tenants for secret in (t.key, t.cache_salt)]
    urls = (target.url, target.engine_url, target.admin_url)
    return Redaction([*secrets, target.control_secret, *passwords(urls)])


def _plain(text: str) -> str:
    whole = text.encode("utf-8", "replace").decode()
    return _CONTROL.sub(lambda found: " " if found[0].isspace() else "\ufffd", whole)


def passwords(urls: Iterable[str | None]) -> Iterator[str]:
    """Those in URLs, as they are written there and as they are sent."""
    for url in urls:
        with suppress(ValueError):  # it is no URL: the attack says so
            password = urlsplit(url or "").password or ""
            yield from (password, unquote(password))
