"""What the domain refuses, each with its HTTP status and a message that says what to do."""


class DomainError(Exception):
    """Something the caller can put right; `status` is what an API answers with."""

    status = 500


class NotFound(DomainError):
    """What was named does not exist."""

    status = 404


class Conflict(DomainError):
    """The state of things does not allow it now."""

    status = 409


class Invalid(DomainError):
    """The request itself can never be done."""

    status = 422


class KeyUnavailable(DomainError):
    """A stored secret cannot be read or checked with the keys of this process."""
