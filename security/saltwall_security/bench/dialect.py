"""How tenants, their salts and their quotas are told to a scheduler under examination."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Quota:
    """What a tenant is promised: blocks it keeps, blocks it may hold (None: any), and a weight."""

    reserve: int = 0
    ceiling: int | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Holding:
    """What a scheduler says that a tenant holds: referenced blocks and cached, idle ones."""

    pinned: int
    idle: int


class Dialect(Protocol):
    """Speaks to one kind of scheduler; every method is called on the scheduler's thread.

    Tenants are names. A method that the scheduler has no notion for does nothing.
    """

    has_tenants: bool
    """Whether it knows tenants, quotas and credentials at all."""

    def prepare(self, directory: Path) -> None:
        """Sets what must stand in the environment before vLLM is imported.

        Args:
            directory: for files, as long as the process lives.
        """

    def install(self) -> None:
        """Puts the scheduler's hooks into vLLM, as its processes do at start."""

    def config(self) -> Mapping[str, Any]:
        """What its `SchedulerConfig` needs besides."""

    def open(self, core: Any) -> None:
        """Lets a new engine serve."""

    def salt(self, tenant: str, generation: int) -> bytes:
        """The secret that the tenant's blocks are hashed with."""

    def credential(self, tenant: str, generation: int) -> str | None:
        """What stands in the `cache_salt` of the tenant's requests; always fresh."""

    def authorise(self, core: Any, tenants: Mapping[str, frozenset[int]]) -> None:
        """Allows these generations of these tenants, from now on; none at all revokes."""

    def set_quotas(self, core: Any, quotas: Mapping[str, Quota]) -> None:
        """Changes what tenants are promised."""

    def purge(self, core: Any, tenant: str) -> None:
        """Forgets what the tenant has cached."""

    def holdings(self, core: Any, tenants: Iterable[str]) -> Mapping[str, Holding] | None:
        """What it says that these tenants hold; None if it does not say."""
