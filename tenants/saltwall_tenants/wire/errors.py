"""Why a message between processes was refused."""

from enum import StrEnum


class Refusal(StrEnum):
    """The reason, safe to log and to count: it never holds any part of the message."""

    MALFORMED = "malformed"
    VERSION = "version"
    UNKNOWN_KEY = "unknown_key"
    FORGED = "forged"
    EXPIRED = "expired"
    FUTURE = "future"
    SEAL = "seal"
    STALE_EPOCH = "stale_epoch"
    EPOCH_CONFLICT = "epoch_conflict"
    QUOTA = "quota"
    UNKNOWN_TENANT = "unknown_tenant"
    UNKNOWN_GENERATION = "unknown_generation"
    NO_POLICY = "no_policy"
    LEASE_EXPIRED = "lease_expired"
    NOT_READY = "not_ready"


class WireError(ValueError):
    """A message that must not be acted on; `refusal` says why."""

    def __init__(self, refusal: Refusal, detail: str = "") -> None:
        super().__init__(f"{refusal.value}: {detail}" if detail else refusal.value)
        self.refusal = refusal
