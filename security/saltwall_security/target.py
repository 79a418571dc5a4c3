"""What is attacked, and what the auditor was given to attack it with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol


class Access(StrEnum):
    """What a suite may need beyond the URL and two tenants."""

    ENGINE = "engine"
    """The engine's own port (`--engine`)."""
    OPERATOR = "operator"
    """Someone who creates tenants, sets quotas and rotates salts (`--home` or `--operator`)."""
    CONTROL = "control"
    """The engine's control secret, to read what it counts (`--home` or `--engine-keys`)."""
    FILES = "files"
    """Logs and databases to search (`--home` or `--files`)."""
    PROCESS = "process"
    """The engine's process on this machine (`--home` or `--engine-pid`)."""
    SCHEDULER = "scheduler"
    """vLLM and the scheduler class to examine, installed here (`--scheduler`)."""
    RESTART = "restart"
    """Something that restarts the engine (`--restart`)."""


@dataclass(frozen=True)
class Tenant:
    """Whom the auditor speaks as.

    Args:
        key: the API key; None where the server asks for none.
        cache_salt: sent with each request, for servers where the caller writes the salt.
        id: the platform's id of the tenant, where known.
    """

    name: str
    key: str | None = field(default=None, repr=False)
    cache_salt: str | None = field(default=None, repr=False)
    id: str | None = None


class Operator(Protocol):
    """What an operator of the platform can do, from outside.

    Each may raise `AuditError` with what the command said. Changes are live once it returns as far
    as the platform promises: the caller measures that, and polls.
    """

    def create_tenant(self, name: str) -> Tenant:
        """A new tenant with a key."""

    def delete_tenant(self, tenant: Tenant) -> None:
        """Deletes it with all that it has."""

    def create_key(self, tenant: Tenant, expires_s: float | None = None) -> tuple[str, str]:
        """A further key: its public id, and the key; good for `expires_s` seconds, or for ever."""

    def revoke_key(self, public_id: str) -> None:
        """Takes effect within a second."""

    def suspend(self, tenant: Tenant) -> None:
        """Takes effect within a second."""

    def resume(self, tenant: Tenant) -> None:
        """The tenant may go on."""

    def rotate(self, tenant: Tenant, grace_s: float | None = None) -> None:
        """The tenant gets a new salt; requests under the old one may run on for `grace_s`."""

    def set_quota(self, tenant: Tenant, **options: str | bool) -> None:
        """Options as on the command line: reserve, ceiling, weight, strict."""

    def oversell(self, tenant: Tenant, blocks: int) -> None:
        """Reserves what engines may not have, as is possible while none of them can be asked."""

    def clear_quota(self, tenant: Tenant) -> None:
        """The tenant has the default quota again."""

    def replicas(self) -> int:
        """How many engines share the requests for one model, at most."""

    def enforced_quotas(self) -> Mapping[str, Mapping[str, float]]:
        """What the engine enforces, by tenant name: reserve and ceiling in blocks, weight.

        A ceiling that is not there is left out.
        """

    def log_events(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest administrative acts in the audit log, newest first."""

    def sign_log(self, database: Path, out: Path) -> None:
        """Adds a signed checkpoint of the log in an SQLite file to the file `out`."""

    def verify_log(self, database: Path, anchor: Path | None = None) -> Mapping[str, Any]:
        """Its `verdict` is "whole", "tampered" (its `problems` say where) or "unproven"."""

    def printed(self, *arguments: str) -> str:
        """All that a command prints, also when it fails."""


@dataclass(frozen=True)
class Target:
    """One deployment to attack.

    Args:
        url: the base of the OpenAI routes, ending in "/v1".
        tenants: at least two; the first is usually the victim.
        model: None for the first one listed.
        engine_url: the engine's own port, without a path.
        control_secret: for the engine's control routes.
        files: logs and databases, searched for canaries.
        engine_pid: a process on this machine whose memory, and children's, can be read.
        scheduler: "module:name" of the scheduler class or factory to examine.
        label: what reports call it.
        admin_url: where operators see health and metrics, without a path.
        restart: asks for a restart of the engine; may return before that begins.
    """

    url: str
    tenants: Sequence[Tenant]
    model: str | None = None
    engine_url: str | None = None
    control_secret: str | None = field(default=None, repr=False)
    operator: Operator | None = None
    files: Sequence[Path] = ()
    engine_pid: int | None = None
    scheduler: str | None = None
    label: str = "target"
    admin_url: str | None = None
    restart: Callable[[], None] | None = None

    def access(self) -> frozenset[Access]:
        """What there is to attack it with."""
        given = {
            Access.ENGINE: self.engine_url,
            Access.OPERATOR: self.operator,
            Access.CONTROL: self.control_secret and self.engine_url,
            Access.FILES: self.files,
            Access.PROCESS: self.engine_pid,
            Access.SCHEDULER: self.scheduler,
            Access.RESTART: self.restart,
        }
        return frozenset(access for access, value in given.items() if value)

    def with_model(self, model: str) -> "Target":
        """The same, with the model that is asked for."""
        return replace(self, model=model)
