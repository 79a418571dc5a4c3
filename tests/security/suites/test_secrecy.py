"""The secrecy suite finds whatever a server says too much, in every spelling, and nothing else."""

import asyncio
import base64
import gzip
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from chatty_server import ChattyServer

from saltwall_security.check import Check, Verdict
from saltwall_security.spelling import spell
from saltwall_security.suite import Audit
from saltwall_security.suites.secrecy import SUITE, places
from saltwall_security.suites.secrecy.canaries import Canaries, Needles
from saltwall_security.target import Tenant

WORD = "qwertyuiopasdfghjkl"
TENANT_KEY = "key-of-one-0123456789abcdef"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written late here."""
    monkeypatch.setattr(places, "SETTLED_S", 0.01)


async def audited(server: ChattyServer, **more: Any) -> Mapping[str, Check]:
    """The suite's checks, by name."""
    async with server.running(), Audit(server.target(**more), "1", 60, lambda _: None) as audit:
        return {check.id.partition("/")[2]: check async for check in SUITE.run(audit)}


async def test_discretion_holds(tmp_path: Path) -> None:
    """A log that names routes only; what was not given to search is not tested."""
    checks = await audited(ChattyServer(tmp_path))
    assert {name: check.verdict for name, check in checks.items()} == {
        "errors": Verdict.HELD,
        "logs": Verdict.HELD,
        "traces": Verdict.NOT_TESTED,
        "database": Verdict.NOT_TESTED,
        "metrics": Verdict.NOT_TESTED,
        "commands": Verdict.NOT_TESTED,
        "processes": Verdict.NOT_TESTED,
    }, {name: check.seen for name, check in checks.items()}


@pytest.mark.parametrize(
    ("leak", "check", "said"),
    [
        ("prompts in the log", "logs", "a prompt in server.log"),
        ("prompts in base64", "logs", "a prompt in server.log"),
        ("token ids in the log", "logs", "a prompt's token ids in server.log"),
        ("unknown keys in the log", "logs", "a credential in server.log"),
        ("known keys in the log", "logs", "the key of one in server.log"),
        ("tickets in the log", "logs", "a ticket in server.log"),
        ("a database", "database", "a scope in server.db"),
        ("answers of others", "errors", "a prompt in an answer to another tenant"),
        ("answers repeat keys", "errors", "a credential in an answer"),
        ("errors quote", "errors", "a prompt in the error that refuses it"),
    ],
)
async def test_a_leak_is_found_and_named(tmp_path: Path, leak: str, check: str, said: str) -> None:
    """By what and where, without the secret itself."""
    server = ChattyServer(tmp_path, leak)
    checks = await audited(server)
    assert checks[check].verdict is Verdict.FAILED
    assert said in checks[check].seen
    assert not any(key in str(checks) for key in ("key-of-one", "key-of-two"))


async def test_a_gateway_that_exports_nothing_is_not_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is not said that none can be started."""

    async def none(*_: object) -> list[places.Found]:
        return []

    monkeypatch.setattr("saltwall_security.suites.secrecy.spans", none)
    check = (await audited(ChattyServer(tmp_path)))["traces"]
    assert check.verdict is Verdict.NOT_TESTED
    assert "no gateway was started here that exports spans" in check.seen


async def test_a_log_without_a_trace_of_the_run_tells_nothing(tmp_path: Path) -> None:
    """It may be another server's: that nothing is in it proves nothing."""
    (tmp_path / "other.log").write_text("words /completions one two\n")
    os.utime(tmp_path / "other.log", (0, 0))
    checks = await audited(ChattyServer(tmp_path, "silent"))
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE


async def test_a_log_that_cannot_be_read_leaves_doubt(tmp_path: Path) -> None:
    """It is named; what another one holds does not stand for it."""
    (tmp_path / "other.log").symlink_to("/proc/self/mem")
    checks = await audited(ChattyServer(tmp_path))
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE
    assert "Not read, or not as a whole: other.log." in checks["logs"].seen


async def test_of_a_very_large_log_the_rest_is_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only its end was searched."""
    monkeypatch.setattr(places, "MOST_BYTES", 100)
    checks = await audited(ChattyServer(tmp_path))
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE
    assert "not as a whole: server.log" in checks["logs"].seen


async def test_a_search_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files are left: the loop goes on beside it, and hears signals."""
    loop, given_up, read = asyncio.get_running_loop(), threading.Event(), []
    search = asyncio.create_task(audited(ChattyServer(tmp_path)))

    def files(*_: object) -> Iterator[places.Found]:
        loop.call_soon_threadsafe(search.cancel)
        for number in range(9):
            read.append(number)
            given_up.wait(10)
            yield places.Found("a.log", b"")

    monkeypatch.setattr(places, "read", files)
    with pytest.raises(asyncio.CancelledError):
        await search
    assert read == [0]
    given_up.set()


async def test_a_packed_log_is_searched(tmp_path: Path) -> None:
    """As logs are that have been rotated."""
    (tmp_path / "server.log.1").write_bytes(
        gzip.compress(f"{'words ' * 1000}{TENANT_KEY}".encode())
    )
    checks = await audited(ChattyServer(tmp_path))
    assert checks["logs"].verdict is Verdict.FAILED
    assert "the key of one in server.log.1" in checks["logs"].seen


async def test_what_cannot_be_unpacked_leaves_doubt(tmp_path: Path) -> None:
    """It is named."""
    (tmp_path / "other.log").write_bytes(b"\x28\xb5\x2f\xfd and so on")
    checks = await audited(ChattyServer(tmp_path))
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE
    assert "Not read, or not as a whole: other.log." in checks["logs"].seen


async def test_a_linked_directory_is_searched(tmp_path: Path) -> None:
    """Once, also where links lead around in a circle."""
    logs, releases = tmp_path / "logs", tmp_path / "releases"
    logs.mkdir()
    releases.mkdir()
    (logs / "current").symlink_to(releases)
    (releases / "back").symlink_to(logs)
    (releases / "app.log").write_text(TENANT_KEY)
    checks = await audited(ChattyServer(logs))
    assert checks["logs"].verdict is Verdict.FAILED
    assert "the key of one in app.log" in checks["logs"].seen
    assert checks["logs"].figures["places"] == 2


async def test_a_link_to_what_is_not_there_leaves_doubt(tmp_path: Path) -> None:
    """It may be elsewhere for those who write it."""
    (tmp_path / "other.log").symlink_to("/not/here.log")
    checks = await audited(ChattyServer(tmp_path))
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE
    assert "Not read, or not as a whole: other.log." in checks["logs"].seen


async def test_a_directory_of_very_many_files_leaves_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and so many are searched."""
    monkeypatch.setattr(places, "MOST_FILES", 3)
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(9):
        (logs / f"{number}.log").write_text("nothing")
    checks = await audited(ChattyServer(logs))
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE
    assert "Not read, or not as a whole: logs." in checks["logs"].seen


async def test_what_is_no_file_leaves_doubt(tmp_path: Path) -> None:
    """A pipe is not waited for, and a device has no end."""
    pipe = tmp_path / "pipe.log"
    os.mkfifo(pipe)
    log = tmp_path / "server.log"
    checks = await audited(ChattyServer(tmp_path), files=[log, pipe, Path("/dev/zero")])
    assert checks["logs"].verdict is Verdict.INCONCLUSIVE
    assert "Not read, or not as a whole: pipe.log, zero." in checks["logs"].seen


async def test_environments_that_cannot_be_read_leave_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's command lines can be read, its environments cannot."""
    genuine = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if path.name == "environ":
            raise PermissionError
        return genuine(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    argv = [sys.executable, "-c", "input()"]
    engine = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.PIPE)
    try:
        checks = await audited(ChattyServer(tmp_path), engine_pid=engine.pid)
    finally:
        await engine.communicate(b"\n")
    assert checks["processes"].verdict is Verdict.INCONCLUSIVE
    assert f"process {engine.pid}'s environ" in checks["processes"].seen


async def test_keys_in_the_environment_of_the_engine_are_found(tmp_path: Path) -> None:
    """And on its command line; the auditor's own environment is not looked at."""
    environ = {**os.environ, "TENANT_KEY": TENANT_KEY}
    argv = [sys.executable, "-c", "input()"]
    pipe = asyncio.subprocess.PIPE
    engine = await asyncio.create_subprocess_exec(*argv, stdin=pipe, env=environ)
    try:
        checks = await audited(ChattyServer(tmp_path), engine_pid=engine.pid)
    finally:
        await engine.communicate(b"\n")
    assert checks["processes"].verdict is Verdict.FAILED
    assert "the key of one in process" in checks["processes"].seen


@pytest.mark.parametrize(
    "written",
    [
        WORD,
        json.dumps(f"é {WORD}"),
        WORD.encode().hex(),
        WORD.encode().hex().upper(),
        "".join(f"%{ord(letter):02X}" for letter in WORD),
        quote(f"a/{WORD} b"),
        "".join(f"\\u{ord(letter):04x}" for letter in WORD),
        *(base64.b64encode(f"{'x' * i}{WORD} and so on".encode()).decode() for i in range(4)),
        *(base64.urlsafe_b64encode(f"{'~' * i}{WORD}".encode()).decode() for i in range(4)),
    ],
)
def test_a_word_is_found_however_it_is_written(written: str) -> None:
    """Escaped, encoded, within something longer or alone."""
    assert any(spelling in f"... {written} ...".encode() for spelling in spell(WORD))


def test_spellings_are_long_enough_to_mean_something() -> None:
    """None is so short that it could stand anywhere by chance."""
    assert min(len(spelling) for spelling in spell(WORD)) >= 15


def test_the_secret_part_of_a_key_is_found_without_its_name() -> None:
    """A log may name a key by its public part, and must not have the rest."""
    key = f"sw_live_{'p' * 12}_{'s' * 43}c0ffee"
    needles = Needles.of(Canaries(), [Tenant("acme", key)], {})
    assert needles.within(b"key " + b"p" * 12) == []
    assert needles.within(b"s" * 43) == ["the key of acme"]


@pytest.mark.parametrize("key", [f"key-{'s' * 9}", f"sk-{'s' * 14}", "s" * 40])
def test_a_key_is_found_without_its_end(key: str) -> None:
    """Of any kind, as long as what is left is no word."""
    needles = Needles.of(Canaries(), [Tenant("acme", key)], {})
    assert needles.within(key[:-1].encode()) == ["the key of acme"]


@pytest.mark.parametrize("key", ["dev", "EMPTY", "a_b_c_de"])
def test_a_key_that_could_be_any_word_is_not_looked_for(key: str) -> None:
    """Nor is an empty part of it."""
    needles = Needles.of(Canaries(), [Tenant("acme", key)], {"a secret": "x"})
    assert needles.within(b"a device is EMPTY, decoded, x") == []
