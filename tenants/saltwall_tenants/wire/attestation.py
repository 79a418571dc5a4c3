"""What an engine says of itself, and what a gateway demands before it routes there."""

import json
from dataclasses import dataclass, fields
from typing import Any

from saltwall_tenants.wire.amount import AmountError, Capacity
from saltwall_tenants.wire.errors import Refusal, WireError

ALGORITHM = "sha256_cbor"
VECTOR_DIGEST = "1878ed3acace9c0c2d6d16b32d4a0bb9c689d422ca3add6ec439cc0151ab6572"
VLLM_VERSIONS = ((0, 32), (0, 34))


@dataclass(frozen=True)
class Attestation:
    """An engine's block hash algorithm, its test-vector result and its versions.

    `vector_digest` is SHA-256 over the block hashes that the engine computed at start for the
    published vectors, in order. `capacity` is what quotas are converted with; an engine of an older
    release has none, and takes no quotas.
    """

    name: str
    algorithm: str
    vector_digest: str
    vllm: str
    saltwall: str
    capacity: Capacity | None = None

    def problems(self, name: str) -> list[str]:
        """Why a gateway must not route to this engine as `name`; empty when it may."""
        found = []
        if self.name != name:
            found.append(f"it is {self.name!r}, not {name!r}")
        if self.algorithm != ALGORITHM:
            found.append(f"its block hash is {self.algorithm!r}, not {ALGORITHM!r}")
        if self.vector_digest != VECTOR_DIGEST:
            found.append("its block hashes differ from the published test vectors")
        if not supported_vllm(self.vllm):
            found.append(f"its vLLM {self.vllm} is outside {vllm_range()}")
        return found

    def encode(self) -> bytes:
        """The JSON body of `GET /saltwall/v1/attestation`."""
        document: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        if self.capacity is not None:
            document["capacity"] = self.capacity.document()
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, body: bytes) -> "Attestation":
        """Raises:
        WireError: not an attestation. Fields that a newer engine adds are ignored.
        """
        try:
            document = json.loads(body)
            texts = {name: document[name] for name in _TEXTS}
            capacity = document.get("capacity")
            if any(type(text) is not str for text in texts.values()):
                raise TypeError
            return cls(**texts, capacity=None if capacity is None else Capacity.of(capacity))
        except (AmountError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise WireError(Refusal.MALFORMED, "not an attestation") from None


_TEXTS = tuple(field.name for field in fields(Attestation) if field.name != "capacity")


def supported_vllm(version: str) -> bool:
    """Whether a vLLM release, such as 0.32.0 or 0.33.1+cpu, is in the tested range."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        return False
    low, high = VLLM_VERSIONS
    return low <= (major, minor) < high


def vllm_range() -> str:
    """The tested range, in pip's notation."""
    (a, b), (c, d) = VLLM_VERSIONS
    return f">={a}.{b},<{c}.{d}"
