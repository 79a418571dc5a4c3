"""What stands in `Request.cache_salt` once a ticket is open: a label that carries its grant."""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from saltwall_tenants.wire import Ticket, salt_label


class Owner(NamedTuple):
    """Whose a cached block is: a tenant, and the generation of its salt."""

    tenant: UUID
    generation: int


@dataclass(frozen=True, slots=True)
class Grant:
    """A verified ticket's content: the owner of a request's blocks, and its 32-byte KV salt."""

    owner: Owner
    salt: bytes = field(repr=False)

    @classmethod
    def of(cls, ticket: Ticket) -> "Grant":
        """The grant that a ticket, already verified, gives."""
        return cls(Owner(ticket.tenant, ticket.generation), ticket.salt)


class SaltLabel(str):
    """The salt's public label; stock code, logs and errors see this text and nothing else.

    The grant is an attribute of the string itself, so it goes wherever the request goes and
    nowhere else: a copy, pickle or message of it is the bare text, which the hasher refuses.
    """

    __slots__ = ("grant",)

    grant: Grant

    def __new__(cls, grant: Grant) -> "SaltLabel":
        label = super().__new__(cls, salt_label(grant.salt))
        label.grant = grant
        return label

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def grant_of(cache_salt: object) -> Grant | None:
    """The grant that a request's `cache_salt` carries, or None for whatever is not a label."""
    return cache_salt.grant if type(cache_salt) is SaltLabel else None
