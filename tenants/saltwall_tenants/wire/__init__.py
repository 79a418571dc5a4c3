"""What Saltwall's processes say to each other: ticket, seal, policy, attestation and salt label.

Standard library, `cryptography` and `cbor2` only, so that the engine can import it inside vLLM.
"""

from saltwall_tenants.wire.amount import Amount, AmountError, Capacity, Unit
from saltwall_tenants.wire.attestation import ALGORITHM, VECTOR_DIGEST, Attestation
from saltwall_tenants.wire.errors import Refusal, WireError
from saltwall_tenants.wire.keys import EngineKeys, KeyFileError, TicketRoot
from saltwall_tenants.wire.policy import Authorisation, Lease, Policy
from saltwall_tenants.wire.quota import BlockShare, Quota, Quotas
from saltwall_tenants.wire.salt import MAX_SCOPE_BYTES, derive_kv_salt, salt_label
from saltwall_tenants.wire.seal import SEAL_HEADER, check_seal, embed_ticket, make_seal, read_ticket
from saltwall_tenants.wire.ticket import (
    MAX_CLOCK_SKEW_S,
    MAX_TICKET_AGE_S,
    TICKET_CHARS,
    Ticket,
    make_ticket,
    open_ticket,
)

__all__ = [
    "ALGORITHM",
    "MAX_CLOCK_SKEW_S",
    "MAX_SCOPE_BYTES",
    "MAX_TICKET_AGE_S",
    "SEAL_HEADER",
    "TICKET_CHARS",
    "VECTOR_DIGEST",
    "Amount",
    "AmountError",
    "Attestation",
    "Authorisation",
    "BlockShare",
    "Capacity",
    "EngineKeys",
    "KeyFileError",
    "Lease",
    "Policy",
    "Quota",
    "Quotas",
    "Refusal",
    "Ticket",
    "TicketRoot",
    "Unit",
    "WireError",
    "check_seal",
    "derive_kv_salt",
    "embed_ticket",
    "make_seal",
    "make_ticket",
    "open_ticket",
    "read_ticket",
    "salt_label",
]
