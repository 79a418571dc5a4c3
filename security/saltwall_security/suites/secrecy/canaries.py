"""Words that nobody else uses, and what is searched for."""

import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from saltwall_security.abandonable import check_wanted
from saltwall_security.spelling import spell
from saltwall_security.target import Tenant

LETTERS = 20
SHORTEST = 8
"""Shorter keys could be any word of a text: they are not looked for."""
IDS, LEAST_ID, MOST_ID = 6, 300, 5000
"""Token ids that every common vocabulary has; as many in a row come together only by design."""
PROMPT, SCOPE, TOKEN_IDS = "a prompt", "a scope", "a prompt's token ids"
"""What a tenant may be told, of its own."""
ANYBODYS: Mapping[str, re.Pattern[bytes]] = {
    "a ticket": re.compile(rb"sw1\.[A-Za-z0-9_-]{100}"),
    "an API key": re.compile(rb"sw_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{40}"),
}
"""What a Saltwall secret looks like, whoever's it is."""


def word() -> str:
    """Lower-case letters that stay as they are in URLs and JSON."""
    return "".join(secrets.choice(string.ascii_lowercase) for _ in range(LETTERS))


@dataclass(frozen=True)
class Canaries:
    """One run's words.

    Args:
        prompt: in prompts, and wherever a client may write text.
        scope: in `cache_salt`, and what else names a part of a cache.
        credential: in keys that do not exist.
        ids: token ids of a prompt.
    """

    prompt: str = field(default_factory=word, repr=False)
    scope: str = field(default_factory=word, repr=False)
    credential: str = field(default_factory=word, repr=False)
    ids: Sequence[int] = field(
        default_factory=lambda: [
            LEAST_ID + secrets.randbelow(MOST_ID - LEAST_ID) for _ in range(IDS)
        ],
        repr=False,
    )


@dataclass(frozen=True)
class Needles:
    """What is searched for: spellings by the name of what they spell."""

    spellings: Mapping[str, frozenset[bytes]] = field(repr=False)

    @classmethod
    def of(
        cls, canaries: Canaries, tenants: Sequence[Tenant], others: Mapping[str, str | None]
    ) -> "Needles":
        """Canaries, the tenants' keys, and other secrets by name."""
        found = {
            PROMPT: spell(canaries.prompt),
            SCOPE: spell(canaries.scope),
            "a credential": spell(canaries.credential),
            TOKEN_IDS: _numbers(canaries.ids),
        }
        for tenant in tenants:
            found[f"the key of {tenant.name}"] = _spelled(tenant.key, _secret(tenant.key or ""))
            found[f"the salt of {tenant.name}"] = _spelled(tenant.cache_salt)
        found |= {name: _spelled(secret) for name, secret in others.items()}
        return cls({name: spellings for name, spellings in found.items() if spellings})

    def without(self, *names: str) -> "Needles":
        """The others."""
        return Needles({name: each for name, each in self.spellings.items() if name not in names})

    def within(self, content: bytes) -> list[str]:
        """The names of those that are in it, and of what looks like one of anybody's.

        Raises:
            Abandoned: nobody waits for this search any more.
        """

        def there(spelling: bytes) -> bool:
            check_wanted()  # no other thread runs while a very large file is searched for one
            return spelling in content

        found = [name for name, each in self.spellings.items() if any(map(there, each))]
        return found + [name for name, like in ANYBODYS.items() if like.search(content)]


def _spelled(*secrets: str | None) -> frozenset[bytes]:
    every = [spell(secret) for secret in secrets if secret and len(secret) >= SHORTEST]
    return frozenset[bytes]().union(*every)


def _secret(key: str) -> str:
    """The part of a key that must not be known; names and checksums around it may be.

    Of short keys less is left out: what remains must be no word.
    """
    middle = key.split("_", 3)[-1]
    return middle[: max(len(middle) - 6, min(len(middle) - 1, 16), 12)]


def _numbers(ids: Sequence[int]) -> frozenset[bytes]:
    return frozenset(
        separator.join(str(each) for each in ids).encode() for separator in (",", ", ", " ", "\n")
    )
