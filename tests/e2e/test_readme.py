"""Every command in the README does what the README says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from running_stack import Stack, free_ports

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)


def block(containing: str) -> str:
    """The one block that holds this text."""
    (found,) = [text for text in BLOCKS if containing in text]
    return str(found)


@pytest.fixture
def shell(stack: Stack) -> "Shell":
    """A shell in which the README's commands reach the running stack."""
    return Shell(stack)


class Shell:
    """Runs blocks as typed, but for the ports, which tests choose."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._ports = {"8080": stack.base_url, "8081": stack.ready["admin_url"]}

    def run(self, text: str, **environment: str) -> str:
        """Runs a script with bash; returns what it prints.

        Raises:
            CalledProcessError: the script failed.
        """
        for port, url in self._ports.items():
            text = text.replace(f"127.0.0.1:{port}", url.split("/")[2])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", text],
            env=self._stack.environ | {"PATH": path} | environment,
            cwd=self._stack.home,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def test_each_block_is_run_by_a_test_here() -> None:
    """A block that is added to the README needs a test of its own."""
    tested = {
        block(text)
        for text in (
            "make up",
            "make test",
            "key create acme",
            'ask "$ACME"\nask "$ACME"',
            "salt rotate acme",
            "tenant suspend globex",
            "quota set acme",
            "tenant show acme",
            "audit run",
            "--write-keys",
            "engine --print",
            "saltwall gateway",
        )
    }
    assert tested == set(BLOCKS)


@pytest.mark.parametrize("target", ["up", "test"])
def test_the_two_commands_are_targets(target: str) -> None:
    """`make up` and `make test` exist; what they run is what the other tests run."""
    assert block(f"make {target}") == f"make {target}\n"
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"up": "saltwall up", "test": "pytest"}[target] in done.stdout


def test_the_tour(shell: Shell) -> None:
    """Hits for the tenant's own repeat only, none after rotation; suspension, quota, the rest."""
    setup = block("key create acme")
    asks = block('ask "$ACME"\nask "$ACME"')
    counts = [int(line.split(":")[1]) for line in shell.run(setup + asks).split()]
    assert counts[0] == counts[2] == 0
    assert min(counts[1], counts[3]) >= 384
    again = shell.run(setup + block("salt rotate acme"))
    assert again.strip().endswith(":0")
    suspended = shell.run(setup + block("tenant suspend globex"))
    assert "suspended" in suspended
    quotas = shell.run(block("quota set acme"))
    shell.run("saltwall quota clear acme")
    assert "30%" in quotas
    assert "60%" in quotas
    shown = shell.run(block("tenant show acme"))
    assert "acme" in shown
    assert "# TYPE" in shown


def test_the_audit(shell: Shell, stack: Stack) -> None:
    """It finds what runs, needs nothing else, and leaves reports; here with one suite alone.

    Which ends when it is done: the budget is for busy machines.
    """
    short = "audit run --suite recovery --budget 5m"
    said = shell.run(block("audit run").replace("audit run", short))
    assert "All that was tested held" in said
    written = {path.name for path in (stack.home / "saltwall-audit").iterdir()}
    assert written == {"report.json", "report.html", "report.xml", "report.sarif"}


def test_an_engine_and_a_gateway_on_machines_of_their_own(shell: Shell, tmp_path: Path) -> None:
    """In the order of the README, from nothing: keys, the engine's command, a gateway that starts.

    The command keeps every flag of the operator's; the gateway says which engine it cannot reach.
    """
    port, admin_port = free_ports(2)
    environment = {
        "SALTWALL_HOME": str(tmp_path / "home"),
        "SALTWALL_PORT": str(port),
        "SALTWALL_ADMIN_PORT": str(admin_port),
    }
    made = shell.run(block("--write-keys"), **environment)
    assert "sw_live_" in made
    assert (tmp_path / "home" / "keys" / "engine-chat.json").stat().st_mode & 0o077 == 0
    text = block("engine --print")
    command = shlex.split(shell.run(text, **environment).strip().splitlines()[-1])
    given = shlex.split(text.strip().splitlines()[-1].split(" -- vllm serve ")[1])
    assert set(given) <= set(command)
    assert "sha256_cbor" in command
    started = block("saltwall gateway").replace(
        "saltwall gateway",
        f"timeout --preserve-status 90 saltwall gateway & "
        f"until curl -s http://localhost:{admin_port}/readyz; do sleep 0.2; done; kill $!; wait",
    )
    assert "no engine is routable" in shell.run(started, **environment)
