"""Saltwall, spoken to as its gateway and API process do: tickets, and calls into EngineCore.

Nothing of Saltwall is imported: the ticket is sealed anew from its description, the calls are
looked up by name as vLLM's utility calls are, and vLLM's own loader loads the plugin.
"""

import json
import os
import secrets
import struct
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from saltwall_security.bench.dialect import Holding, Quota
from saltwall_security.collision.cbor import encode

NAME = "bench"
PLUGIN = "saltwall"
SCHEDULER = "saltwall_engine.scheduler.scheduler_class"
LEASE_S = 10.0**9
_KEY_ID = 1
_BODY = struct.Struct(">16sI32sI")
_PAGE = 1000
_CALLS = 1000


class Saltwall:
    """The dialect of Saltwall's scheduler, and of any that is told things as it is."""

    has_tenants = True

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._key, self._seal_key = secrets.token_bytes(32), secrets.token_bytes(32)

    def prepare(self, directory: Path) -> None:
        """Sets what `saltwall engine` sets, with keys made for this examination alone."""
        path = directory / "engine-bench.json"
        document = {
            "version": 1,
            "name": NAME,
            "tickets": {str(_KEY_ID): _text(self._key)},
            "seals": {str(_KEY_ID): _text(self._seal_key)},
            "control": _text(secrets.token_bytes(32)),
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(document))
        for name in [name for name in os.environ if name.startswith("SALTWALL_")]:
            del os.environ[name]  # an operator's own settings are not under examination
        os.environ |= {
            "VLLM_PLUGINS": PLUGIN,
            "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",
            "SALTWALL_ENGINE_KEYS": str(path),
        }
        os.environ.pop("PYTHONHASHSEED", None)

    def install(self) -> None:
        """Loads the plugin as each vLLM process does."""
        from vllm.plugins import load_general_plugins

        load_general_plugins()

    def config(self) -> Mapping[str, Any]:
        """Its scheduler refuses to start under another name."""
        return {"scheduler_cls": SCHEDULER}

    def open(self, core: Any) -> None:
        """Renews the lease, without which nothing is served."""
        core.saltwall_renew(LEASE_S)

    def lapse(self, core: Any) -> None:
        """Lets the lease run out."""
        core.saltwall_renew(0.0)

    def tenant_id(self, tenant: str) -> UUID:
        """The tenant's id."""
        return UUID(bytes=sha256(f"{self._seed}/tenant/{tenant}".encode()).digest()[:16])

    def salt(self, tenant: str, generation: int) -> bytes:
        """The 32 bytes that its tickets carry."""
        return sha256(f"{self._seed}/salt/{tenant}/{generation}".encode()).digest()

    def credential(self, tenant: str, generation: int) -> str | None:
        """A genuine ticket of now."""
        return self.ticket(tenant, generation)

    def ticket(
        self,
        tenant: str,
        generation: int,
        *,
        name: str = NAME,
        age_s: int = 0,
        key: bytes | None = None,
        key_id: int = _KEY_ID,
    ) -> str:
        """A ticket, genuine unless something is asked for that makes it otherwise."""
        nonce = secrets.token_bytes(12)
        issued = int(time.time()) - age_s
        body = _BODY.pack(
            self.tenant_id(tenant).bytes, generation, self.salt(tenant, generation), issued
        )
        sealed = AESGCMSIV(key or self._key).encrypt(
            nonce, body, encode(["saltwall/ticket/1", name])
        )
        return "sw1." + _text(bytes([key_id]) + nonce + sealed)

    def authorise(self, core: Any, tenants: Mapping[str, frozenset[int]]) -> None:
        """Pushes the change, and purges what was lost, as the API process does."""
        changes = [[self.tenant_id(t).hex, sorted(gens)] for t, gens in tenants.items()]
        lost = core.saltwall_authorise(changes)
        self._purge(core, lost)

    def set_quotas(self, core: Any, quotas: Mapping[str, Quota]) -> None:
        """Pushes them in this order, and trims as long as there is something to trim."""
        core.saltwall_set_quotas(
            [
                [self.tenant_id(tenant).hex, quota.reserve, quota.ceiling, quota.weight, True]
                for tenant, quota in quotas.items()
            ]
        )
        for _ in range(_CALLS):
            if not core.saltwall_trim():
                break

    def purge(self, core: Any, tenant: str) -> None:
        """Purges all generations of the tenant."""
        self._purge(core, core.saltwall_owners(self.tenant_id(tenant).hex))

    def _purge(self, core: Any, owners: list[Any]) -> None:
        for _ in range(_CALLS if owners else 0):
            if not core.saltwall_purge(owners)[1]:
                break

    def holdings(self, core: Any, tenants: Iterable[str]) -> Mapping[str, Holding] | None:
        """As `GET /saltwall/v1/usage` says it."""
        rows = {row[0]: row for row in core.saltwall_usage(0, _PAGE)["tenants"]}
        nothing = [None, 0, 0]
        found = {tenant: rows.get(self.tenant_id(tenant).hex, nothing) for tenant in tenants}
        return {tenant: Holding(row[1], row[2]) for tenant, row in found.items()}


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
