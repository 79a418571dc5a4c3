"""The file with one engine's keys: made where the keyring is, copied to where the engine runs."""

from pathlib import Path
from urllib.parse import quote

from saltwall_platform.stack.errors import StackError
from saltwall_tenants.keyring import FILE_NAME, Keyring, write_engine_keys
from saltwall_tenants.wire import EngineKeys


def location(directory: Path, name: str) -> Path:
    """Where `write_engine_keys` puts the keys of the engine called `name`."""
    return directory / f"engine-{quote(name, safe='')}.json"


def write(directory: Path, name: str) -> Path:
    """Makes the key file from the keyring in `directory`.

    Raises:
        StackError: there is no keyring on this machine.
    """
    if not (directory / FILE_NAME).exists():
        raise StackError(
            f"there is no keyring in {directory}: run this on the gateway's machine, "
            "after its first `saltwall tenant create`"
        )
    return write_engine_keys(directory, name, Keyring.load(directory))


def ready(directory: Path, name: str, given: Path | None) -> Path:
    """Makes sure that the engine called `name` has its keys; returns their file.

    Args:
        directory: the keys directory of this machine.
        given: the file named by the operator; None for its place in `directory`.

    Raises:
        StackError: they are not here, or belong to another engine.
        KeyFileError: the file is readable by others, or not a key file.
    """
    if given is None and (directory / FILE_NAME).exists():
        return write(directory, name)  # anew each time: keys rotate
    path = given or location(directory, name)
    if not path.exists():
        raise StackError(
            f"{path} is missing. On the gateway's machine run "
            f"`saltwall engine --name {name} --write-keys`, then copy the file here, "
            "readable by you alone (0600)"
        )
    keys = EngineKeys.read(path)
    if keys.name != name:
        raise StackError(
            f"{path} holds the keys of engine {keys.name!r}, not of {name!r}: "
            f"start with `--name {keys.name}`, or name another file with --keys"
        )
    return path
