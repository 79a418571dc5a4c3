"""What can stop an audit before it has found anything."""


class AuditError(Exception):
    """The audit cannot be run as asked; the message says what to do."""


class Unreachable(AuditError):
    """The target does not answer, or not as an OpenAI-compatible server does."""
