"""The distribution works as users get it: built, installed elsewhere, run from anywhere."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "saltwall_platform",
    "saltwall_engine",
    "saltwall_tenants",
    "saltwall_migrations",
    "saltwall_security",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that was built from it."""
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT],
        check=True,
        capture_output=True,
    )
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with our dependencies from this one, but not the checkout.

    A .pth file adds their directory without reading the .pth of the editable install in it.
    """
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", built[1])
    subprocess.run(pip, check=True)
    import cbor2

    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{Path(cbor2.__file__).parents[1]}\n")
    return environment


def run(environment: Path, where: Path, *arguments: str) -> str:
    """Runs a program of that environment in another directory; returns what it prints."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SALTWALL_"))}
    done = subprocess.run(
        [environment / "bin" / arguments[0], *arguments[1:]],
        cwd=where,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_five_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    """No tests, no `platform` that would shadow the standard library's."""
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)
    assert any(name.startswith("saltwall_migrations/versions/") for name in names)
    assert "saltwall_engine/vectors.json" in names
    assert "saltwall_security/report/page.html.j2" in names
    assert "saltwall_security/report/saltwall-audit-1.schema.json" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_source_distribution_holds_what_a_build_needs(built: tuple[Path, Path]) -> None:
    """And no data directory, environment or cache."""
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile"} <= names
    assert not [name for name in names if name.startswith((".saltwall", ".venv", ".mypy_cache"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_come_from_the_wheel(installed: Path, tmp_path: Path, package: str) -> None:
    """Not from the checkout."""
    where = run(installed, tmp_path, "python", "-c", f"import {package}; print({package}.__file__)")
    assert Path(where.strip()).is_relative_to(installed)


def test_the_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    """From another directory."""
    assert run(installed, tmp_path, "saltwall", "--version").startswith("saltwall ")


def test_the_installed_command_makes_a_database(installed: Path, tmp_path: Path) -> None:
    """Migrations are found inside the package, and state goes where the command is run."""
    assert run(installed, tmp_path, "saltwall", "db", "upgrade").startswith("revision")
    assert (tmp_path / ".saltwall" / "saltwall.db").exists()


def test_vllm_finds_the_plugin_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Both entry points, under the one name that VLLM_PLUGINS selects."""
    script = (
        "from importlib.metadata import entry_points; from importlib.util import find_spec\n"
        "for group in ('vllm.general_plugins', 'vllm.endpoint_plugins'):\n"
        "    (found,) = entry_points(group=group, name='saltwall')\n"
        "    print(find_spec(found.module).name)"  # not loaded: that takes vLLM, and seconds
    )
    assert run(installed, tmp_path, "python", "-c", script).split() == [
        "saltwall_engine.plugin",
        "saltwall_engine.control",
    ]


@pytest.mark.parametrize("how", [("-c",), ("-m", "timeit", "-n", "1", "-r", "1")])
def test_python_in_the_checkout_imports_the_standard_platform(how: tuple[str, ...]) -> None:
    """The folder `platform/` shadows nothing, for `-c` and `-m` alike, which look there first."""
    script = "import platform; assert platform.python_version(), platform"
    subprocess.run([sys.executable, *how, script], cwd=ROOT, check=True, capture_output=True)
