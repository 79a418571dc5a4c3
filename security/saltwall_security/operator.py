"""The platform's operator: the `saltwall` command, run as an operator runs it."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saltwall_security.errors import AuditError
from saltwall_security.target import Tenant

TIMEOUT_S = 60.0
VERDICTS = {0: "whole", 1: "tampered", 2: "unproven"}
"""What the exit codes of `saltwall log verify` mean."""
NO_ENGINE = '[{"name": "demo", "url": "http://127.0.0.1:9"}]'
"""For `SALTWALL_ENGINES`: nothing listens there."""
_NUMBER = re.compile(r"/\d+$")
KILLED = 128
"""From this exit code on a signal has ended the command, or `ssh` does not know."""
GONE = "there is no tenant"
_SECRET = re.compile(r"\bsw_\w+|[A-Za-z0-9_\-]{40,}")


class Declined(AuditError):
    """The command ended by itself, or could not be started, and did nothing."""


class CommandLine:
    """Runs `saltwall` in a process of its own, about a second a command; implements `Operator`.

    Calls block: coroutines put them on a thread. Tenants are addressed by id where it is known.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """
        Args:
            argv: how the command is started, such as `["saltwall"]`.
            environ: its whole environment: where the installation is (`SALTWALL_...`), `PATH`.
        """
        self.argv, self.environ = tuple(argv), dict(environ)
        self._created: dict[str, Tenant] = {}

    def create_tenant(self, name: str) -> Tenant:
        """A new tenant with a key."""
        self._created[name] = Tenant(name)  # a command that is killed may have done it
        try:
            made = self._json("tenant", "create", name)
        except Declined:
            del self._created[name]  # somebody else's may be called so
            raise
        tenant = Tenant(name, id=str(made["id"]))
        self._created[name] = tenant
        _, key = self.create_key(tenant)
        return Tenant(tenant.name, key, id=tenant.id)

    def delete_tenant(self, tenant: Tenant) -> None:
        """Deletes it with all that it has."""
        self._run("tenant", "delete", _named(tenant), "--yes")
        self._created.pop(tenant.name, None)

    def delete_leftovers(self) -> list[str]:
        """Deletes the tenants that it has created and nobody has deleted; what could not be done.

        For the end of a run, however it ended, also while a command created or deleted one.
        """
        problems = []
        for tenant in list(self._created.values()):
            try:
                self.delete_tenant(tenant)
            except AuditError as error:
                if GONE not in str(error):
                    problems.append(f"tenant {tenant.name} is left behind: {error}")
        return problems

    def create_key(self, tenant: Tenant, expires_s: float | None = None) -> tuple[str, str]:
        """A further key: its public id, and the key; good for `expires_s` seconds, or for ever."""
        expiry = [] if expires_s is None else ["--expires", f"{max(1, round(expires_s))}s"]
        made = self._json("key", "create", _named(tenant), *expiry)
        return str(made["id"]), str(made["key"])

    def revoke_key(self, public_id: str) -> None:
        """Takes effect within a second."""
        self._run("key", "revoke", public_id)

    def suspend(self, tenant: Tenant) -> None:
        """Takes effect within a second."""
        self._run("tenant", "suspend", _named(tenant))

    def resume(self, tenant: Tenant) -> None:
        """The tenant may go on."""
        self._run("tenant", "resume", _named(tenant))

    def rotate(self, tenant: Tenant, grace_s: float | None = None) -> None:
        """The tenant gets a new salt; requests under the old one may run on for `grace_s`.

        Raises:
            AuditError: also when no engine has acknowledged the new salt in the command's time.
        """
        grace = [] if grace_s is None else ["--grace", f"{round(grace_s)}s"]
        made = self._json("salt", "rotate", _named(tenant), *grace)
        if made["status"] != "current":
            raise AuditError(
                f"the new salt of {tenant.name} is {made['status']}: is the engine up?"
            )

    def set_quota(self, tenant: Tenant, **options: str | bool) -> None:
        """Options as on the command line: reserve, ceiling, weight, strict, store."""
        flags: list[str] = []
        for name, value in options.items():
            if isinstance(value, bool):
                flags.append(f"--{name}" if value else f"--no-{name}")
            else:
                flags += [f"--{name}", value]
        self._run("quota", "set", _named(tenant), *flags)

    def oversell(self, tenant: Tenant, blocks: int) -> None:
        """Reserves what engines may not have, as is possible while none of them can be asked.

        Raises:
            AuditError: also where the command does not hear that it is to ask none (over ssh).
        """
        given = ("quota", "set", _named(tenant), "--reserve", str(blocks))
        self._run(*given, SALTWALL_ENGINES=NO_ENGINE)

    def clear_quota(self, tenant: Tenant) -> None:
        """The tenant has the default quota again."""
        self._run("quota", "clear", _named(tenant))

    def replicas(self) -> int:
        """How many engines share the requests for one model, at most; they are numbered."""
        rows = self._json("quota", "show")
        labels = {str(engine["engine"]) for row in rows for engine in row["engines"]}
        shared = Counter(_NUMBER.sub("", label) for label in labels)
        return max(shared.values(), default=0)

    def enforced_quotas(self) -> Mapping[str, Mapping[str, float]]:
        """What the first engine that answers enforces, by tenant name.

        Reserve and ceiling in blocks, weight; a ceiling that is not there is left out.
        """
        found: dict[str, dict[str, float]] = {}
        for row in self._json("quota", "show"):
            now = next((engine["now"] for engine in row["engines"] if "now" in engine), None)
            if now is None:
                raise AuditError(f"no engine says what it enforces: {_problems(row)}")
            found[str(row["tenant"])] = {
                "weight": float(now["weight"]),
                **{
                    name: int(now[name]["blocks"])
                    for name in ("reserve", "ceiling")
                    if now[name] is not None
                },
            }
        return found

    def log_events(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest administrative acts, newest first, as `saltwall log list` has them."""
        found: Sequence[Mapping[str, Any]] = self._json("log", "list", "--limit", str(limit))
        return found

    def sign_log(self, database: Path, out: Path) -> None:
        """Adds a signed checkpoint of the log in an SQLite file to `out`."""
        given = ("log", "checkpoint", "--out", str(out))
        self._run(*given, SALTWALL_DATABASE_URL=f"sqlite:///{database}")

    def verify_log(self, database: Path, anchor: Path | None = None) -> Mapping[str, Any]:
        """What is said of the log in an SQLite file, against the checkpoints in `anchor`.

        Raises:
            AuditError: nothing is, or the exit code says otherwise.
        """
        given = ["log", "verify", "--json", *([] if anchor is None else ["--anchor", str(anchor)])]
        done = self._done(*given, SALTWALL_DATABASE_URL=f"sqlite:///{database}")
        try:
            found: Mapping[str, Any] = json.loads(done.stdout)
            agreed = VERDICTS[done.returncode] == found["verdict"]
        except (ValueError, KeyError, TypeError):
            said = _last_line(done.stderr) or f"exit code {done.returncode}"
            raise AuditError(f"{described(given)}: {said}") from None
        if not agreed:
            raise AuditError(f"{described(given)}: {found['verdict']}, but exits {done.returncode}")
        return found

    def printed(self, *arguments: str) -> str:
        """All that a command prints, also when it fails."""
        done = self._done(*arguments)
        return done.stdout + done.stderr

    @property
    def local(self) -> bool:
        """Whether what it starts surely runs on this machine, with `environ`.

        Through `ssh`, `docker`, `sudo` or `env` it would run elsewhere, or with other settings.
        """
        command, *rest = self.argv
        alone = Path(command).name == "saltwall" and not rest
        return alone or rest == ["-m", "saltwall_platform.cli"]

    def _json(self, *arguments: str) -> Any:
        try:
            return json.loads(self._run(*arguments, "--json"))
        except ValueError:
            raise AuditError(f"{described(arguments)} printed no JSON") from None

    def _run(self, *arguments: str, **environ: str) -> str:
        done = self._done(*arguments, **environ)
        if done.returncode:
            kind = Declined if 0 < done.returncode < KILLED else AuditError
            raise kind(f"{described(arguments)}: {_last_line(done.stderr) or done.returncode}")
        return done.stdout

    def _done(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        what = described(arguments)
        try:
            return subprocess.run(  # noqa: S603  # the command is the auditor's own configuration
                [*self.argv, *arguments],
                env=self.environ | environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise Declined(f"{what} cannot be run: {error.strerror}: {self.argv[0]}") from None
        except subprocess.TimeoutExpired:
            raise AuditError(f"{what} has not ended after {TIMEOUT_S:.0f} s") from None


def described(arguments: Sequence[str]) -> str:
    """A command in errors, without what may be secret."""
    return f"`saltwall {' '.join(arguments[:2])}`"


def _named(tenant: Tenant) -> str:
    return tenant.id or tenant.name


def _problems(row: Mapping[str, Any]) -> str:
    return "; ".join(str(engine.get("problem")) for engine in row["engines"]) or "there is none"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _SECRET.sub("...", lines[-1].removeprefix("saltwall: ")) if lines else ""
