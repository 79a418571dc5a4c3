"""Stock vLLM: no tenants and no quotas; each caller writes its own salt."""

import os
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from saltwall_security.bench.dialect import Holding, Quota


class Stock:
    """The dialect of vLLM's own schedulers, with a salt for each tenant."""

    has_tenants = False

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def prepare(self, directory: Path) -> None:
        """Keeps plugins out."""
        os.environ["VLLM_PLUGINS"] = ""

    def install(self) -> None:
        """Nothing to install."""

    def config(self) -> Mapping[str, Any]:
        """Nothing besides."""
        return {}

    def open(self, core: Any) -> None:
        """It serves at once."""

    def salt(self, tenant: str, generation: int) -> bytes:
        """The bytes of the salt that the tenant writes."""
        return sha256(f"{self._seed}/{tenant}/{generation}".encode()).hexdigest().encode()

    def credential(self, tenant: str, generation: int) -> str | None:
        """The salt itself."""
        return self.salt(tenant, generation).decode()

    def authorise(self, core: Any, tenants: Mapping[str, frozenset[int]]) -> None:
        """Everybody may do anything."""

    def set_quotas(self, core: Any, quotas: Mapping[str, Quota]) -> None:
        """There are none."""

    def purge(self, core: Any, tenant: str) -> None:
        """It forgets nothing of one tenant alone."""

    def holdings(self, core: Any, tenants: Iterable[str]) -> Mapping[str, Holding] | None:
        """It does not say."""
        return None
