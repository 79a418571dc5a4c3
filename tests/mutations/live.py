"""The test build of the whole stack: one boot runs many mutants, one after the other."""

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx
from flood.targets import STACK_POOL
from mutants.switch import VARIABLE, Switch
from prompts import prompt, send
from running_stack import Stack, eventually, running_stack

from saltwall_platform.cli.prepared import PreparedCommandLine
from saltwall_security.target import Target

BUILD = Path(__file__).parent / "testbuild"
SETTLE_S = 60.0
KEPT = ("models",)
"""What of a data directory is made anew at some cost, and the same each time."""
TRACES = ("logs", "saltwall.db", "saltwall.db-wal")

_numbers = count(1)


class Live:
    """A running test build, with all defects off until `switch` turns one on."""

    def __init__(self, stack: Stack, switch: Switch) -> None:
        self.stack, self.switch = stack, switch
        engines = [{"name": stack.ready["model"], "url": stack.ready["engine_url"]}]
        self._environ = stack.environ | {"SALTWALL_ENGINES": json.dumps(engines)}

    @contextmanager
    def target(self) -> Iterator[Target]:
        """What a suite is given: tenants of its own, and everything that an operator has.

        At the end all defects are off.
        """
        number = next(_numbers)
        operator = PreparedCommandLine(self._environ)
        try:
            tenants = [operator.create_tenant(f"mutant-{number}-{who}") for who in "abc"]
            yield Target(
                self.stack.base_url,
                tenants,
                engine_url=self.stack.ready["engine_url"],
                control_secret=self.stack.secret,
                operator=operator,
                files=[path for path in map(self.stack.home.joinpath, TRACES) if path.exists()],
                engine_pid=self.stack.pid("engine"),
                model=self.stack.ready["model"],
                label="test build",
            )
        finally:
            self.switch.set("")
            operator.delete_leftovers()

    def trouble(self) -> str:
        """What a defect has left behind, seen with other tenants; empty when nothing."""
        try:
            eventually(self._idle, SETTLE_S)
            before = self.stack.usage()["alarms"]
            text = f"{secrets.token_hex(4)} {prompt()}"
            hits = [self._cached(who, text) for who in ("acme", "acme", "globex", "globex")]
            unsealed = self.stack.engine("POST", "/v1/completions", secret=False, content=b"{}")
            if [hit > 0 for hit in hits] != [False, True, False, True]:
                return f"cached tokens are {hits}"
            if unsealed.status_code != 403:
                return f"the engine answers {unsealed.status_code} without a seal"
            after = self.stack.usage()["alarms"]
            return "" if after == before else f"alarms: {before}, then {after}"
        except (AssertionError, httpx.HTTPError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    def _idle(self) -> bool:
        usage = self.stack.usage()
        busy = any(usage["requests"].values())
        return not busy and not any(row["pinned"] for row in usage["tenants"].values())

    def _cached(self, tenant: str, text: str) -> int:
        return send(self.stack, tenant, "completions", text, stream=False)


@contextmanager
def booted(directory: Path) -> Iterator[Live]:
    """Boots a test build on a fresh installation.

    Args:
        directory: where its data directory is; of an earlier one the model is kept.
    """
    home = directory / "home"
    for path in home.iterdir() if home.exists() else ():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    home.mkdir(parents=True, exist_ok=True)
    path = directory / "switch"
    switch = Switch(path)
    environment = {"PYTHONPATH": str(BUILD), VARIABLE: str(path)}
    with running_stack(home, *STACK_POOL, **environment) as stack:
        yield Live(stack, switch)
