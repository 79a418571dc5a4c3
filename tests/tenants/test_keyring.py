"""The gateway's key file: made once, private, never overwritten, refused when damaged."""

import json
import multiprocessing
import stat
from pathlib import Path

import pytest

from saltwall_tenants.errors import Invalid
from saltwall_tenants.keyring import Keyring, write_engine_keys
from saltwall_tenants.wire import EngineKeys, KeyFileError


def test_keys_read_back(tmp_path: Path) -> None:
    """What was made is what is loaded, with 32 random bytes each."""
    made = Keyring.create(tmp_path / "keys")
    assert Keyring.load(tmp_path / "keys") == made
    secrets = [*made.keks.values(), *made.peppers.values(), made.ticket_root.secret]
    assert [len(secret) for secret in secrets] == [32, 32, 32]
    assert len(set(secrets)) == 3


def test_file_and_directory_are_private(tmp_path: Path) -> None:
    """Nobody else may read the file or list the directory; nothing else is left in it."""
    Keyring.create(tmp_path / "keys")
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["gateway.json"]
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "keys/gateway.json").stat().st_mode) == 0o600


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    """Making keys where there are some is refused, and leaves them as they were."""
    made = Keyring.create(tmp_path)
    with pytest.raises(KeyFileError, match=r"gateway\.json exists"):
        Keyring.create(tmp_path)
    assert Keyring.load(tmp_path) == made
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.json"]


def test_two_installations_share_nothing(tmp_path: Path) -> None:
    """Each keyring has its own secrets, and its own name for its key-encryption key."""
    first, second = Keyring.create(tmp_path / "a"), Keyring.create(tmp_path / "b")
    assert first.current_kek != second.current_kek
    assert first.ticket_root != second.ticket_root


def test_load_or_create_makes_and_then_loads(tmp_path: Path) -> None:
    """The first call makes the keys, the next ones load them."""
    assert Keyring.load_or_create(tmp_path) == Keyring.load_or_create(tmp_path)


def _load_or_create(directory: Path) -> Keyring:
    return Keyring.load_or_create(directory)


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    """Several processes that find no keys end up with the same ones."""
    with multiprocessing.get_context("fork").Pool(4) as processes:
        keyrings = processes.map(_load_or_create, [tmp_path] * 8, chunksize=1)
    assert all(keyring == keyrings[0] for keyring in keyrings)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """Loading from nowhere names the file."""
    with pytest.raises(KeyFileError, match=r"gateway\.json: No such file"):
        Keyring.load(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    """A key file with any permission for others is refused, with the command that helps."""
    Keyring.create(tmp_path)
    (tmp_path / "gateway.json").chmod(mode)
    for load in (Keyring.load, Keyring.load_or_create):
        with pytest.raises(KeyFileError, match="chmod 600"):
            load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"keks": {}},
        {"keks": {"kek-1": "c2hvcnQ"}},
        {"keks": ["kek-1"]},
        {"current_kek": "kek-unknown"},
        {"current_kek": ["kek"]},
        {"peppers": {"one": "A" * 43}},
        {"current_pepper": 2},
        {"ticket_root": "A" * 42},
        {"ticket_root": 7},
        {"ticket_key_ids": []},
        {"ticket_key_ids": ["x"]},
        {"ticket_key_ids": [256]},
    ],
)
def test_damaged_file_is_refused_without_showing_it(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """A wrong field anywhere: restore it, says the error, and shows none of it."""
    Keyring.create(tmp_path)
    path = tmp_path / "gateway.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | change))
    with pytest.raises(KeyFileError, match="restore") as refusal:
        Keyring.load(tmp_path)
    assert document["ticket_root"] not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("content", ["", "{", "null", "[]", "{}", '"text"', "\udc80"])
def test_other_content_is_refused(tmp_path: Path, content: str) -> None:
    """Anything else in the file is no keyring, and no crash."""
    Keyring.create(tmp_path)
    (tmp_path / "gateway.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(KeyFileError, match="is not a keyring"):
        Keyring.load(tmp_path)


@pytest.mark.parametrize("name", ["demo", "org/Model-1.5", "..", "a b", "modèle"])
def test_engine_gets_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    """The engine's file is inside the directory, private, and holds that engine's keys."""
    keyring = Keyring.create(tmp_path)
    path = write_engine_keys(tmp_path, name, keyring)
    assert path.parent == tmp_path
    assert path.name.startswith("engine-")
    assert path.suffix == ".json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert EngineKeys.read(path) == keyring.ticket_root.engine_keys(name)
    assert write_engine_keys(tmp_path, name, keyring) == path


def test_engines_never_share_a_file(tmp_path: Path) -> None:
    """Different names, also ones that differ in odd characters only, get different files."""
    keyring = Keyring.create(tmp_path)
    names = ["a/b", "a_b", "a%2Fb", "a-b", "A/B"]
    assert len({write_engine_keys(tmp_path, name, keyring) for name in names}) == len(names)


def test_engine_needs_a_name(tmp_path: Path) -> None:
    """No name, no file."""
    keyring = Keyring.create(tmp_path)
    with pytest.raises(Invalid, match="needs a name"):
        write_engine_keys(tmp_path, "", keyring)
