"""Whom an audit speaks as: the tenants that `--keys` names."""

import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from saltwall_platform.cli.errors import CliError
from saltwall_security.target import Tenant

KEYLESS: Final = "none"
SALTED: Final = "salts"
MOST_BYTES: Final = 2**20
_PAIR: Final = ("tenant-a", "tenant-b")


def tenants(given: Sequence[str]) -> list[Tenant]:
    """The tenants of all `--keys`.

    Each is `none` (two without key, who are one to the server), `salts` (two without key, each
    with a random `cache_salt`), `NAME=KEY`, `NAME=@FILE`, `NAME=env:VARIABLE`, or a JSON file.

    Raises:
        CliError: one of them cannot be read.
    """
    found: dict[str, Tenant] = {}
    for each in given:
        for tenant in _read(each):
            if not tenant.name.isprintable():
                raise CliError(f"--keys: {tenant.name!a} cannot be printed: give another name")
            key = tenant.key or ""
            if not (key.isascii() and key.isprintable()):
                raise CliError(f"--keys: the key of {tenant.name} cannot be sent: it is not ASCII")
            if tenant.name in found:
                raise CliError(f"--keys names {tenant.name!r} twice: give each tenant one key")
            found[tenant.name] = tenant
    return list(found.values())


def without_keys(argument: str) -> str:
    """The same argument as a report may show it."""
    name, equals, value = argument.partition("=")
    return f"{name}=..." if equals and not value.startswith(("@", "env:")) else argument


def _read(given: str) -> list[Tenant]:
    if given == KEYLESS:
        return [Tenant(name) for name in _PAIR]
    if given == SALTED:
        return [Tenant(name, cache_salt=secrets.token_urlsafe(32)) for name in _PAIR]
    if os.path.exists(given):  # without an error where a key is too long for a name
        return _from_file(Path(given))
    name, _, value = given.partition("=")
    if not name or not value.strip("="):
        raise CliError(
            f"--keys {_file_name(given)}: there is no such file; or write NAME=@FILE, "
            "NAME=env:VARIABLE, none, or salts"
        )
    return [Tenant(name, _key(name, value))]


def _key(name: str, value: str) -> str:
    if value.startswith("@"):
        key = _text(Path(value[1:])).strip()
        source = value[1:]
    elif value.startswith("env:"):
        source = value[4:]
        key = os.environ.get(source, "").strip()
    else:
        source, key = "it", value
        print(
            f"saltwall: the key of {name} shows in the process list: use {name}=@FILE or "
            f"{name}=env:VARIABLE instead",
            file=sys.stderr,
        )
    if not key:
        raise CliError(f"--keys {name}: {source} is empty")
    return key


def _file_name(given: str) -> str:
    """What was given if it is the name of a key file; otherwise it may be a key."""
    return given if given.endswith(".json") else "..."


def _from_file(path: Path) -> list[Tenant]:
    try:
        document = json.loads(_text(path))
        if not isinstance(document, dict) or not document:
            raise ValueError
        return [_tenant(name, entry) for name, entry in document.items()]
    except (ValueError, TypeError, RecursionError):
        raise CliError(
            f'{path} is not a key file: it holds {{"name": "key"}}, or '
            '{"name": {"key": ..., "cache_salt": ...}}'
        ) from None


def _text(path: Path) -> str:
    """Of a file that may also be a pipe, or a device without an end.

    Raises:
        CliError: it holds no text, or too much.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise CliError(f"{path} is too long for a key file")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CliError(f"{path} is no text: it should hold a key, or keys as JSON") from None


def _tenant(name: str, entry: Any) -> Tenant:
    if isinstance(entry, str):
        return Tenant(name, entry)
    if not isinstance(entry, Mapping) or entry.keys() - {"key", "cache_salt", "id"}:
        raise TypeError
    fields = {field: value for field, value in entry.items() if value is not None}
    if not all(isinstance(value, str) for value in fields.values()):
        raise TypeError
    return Tenant(name, **fields)
