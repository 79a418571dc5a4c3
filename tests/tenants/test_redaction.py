"""No value that holds a secret shows it when printed, logged or formatted."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from uuid import UUID

import pytest

import saltwall_tenants
from saltwall_tenants import envelope
from saltwall_tenants.api_keys import ApiKey, NewKey
from saltwall_tenants.audit_checkpoints import SigningKey
from saltwall_tenants.clock import utc_now
from saltwall_tenants.key_format import KeyParts
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.salts import SaltSecret
from saltwall_tenants.wire import EngineKeys, Ticket, TicketRoot

SECRET = bytes(range(100, 132))
TEXT = "canaryCANARYcanaryCANARYcanaryCANARYcanary1"
RECORD = ApiKey("aaaaaaaaaaaa", UUID(int=1), "ci", None, utc_now())
HOLDERS = [
    Keyring({"kek-1": SECRET}, "kek-1", {1: SECRET}, 1, TicketRoot(SECRET)),
    TicketRoot(SECRET),
    EngineKeys("demo", {1: SECRET}, {1: SECRET}, TEXT),
    Ticket(UUID(int=1), 1, SECRET, 0),
    SaltSecret(1, SECRET),
    NewKey(RECORD, TEXT),
    KeyParts("aaaaaaaaaaaa", TEXT),
    envelope.Envelope("kek-1", SECRET, SECRET),
    SigningKey(SECRET),
]
SECRET_FIELDS = {
    *("keks", "peppers", "secret", "tickets", "seals", "control", "salt", "plaintext"),
    *("wrapped_key", "sealed"),
}


def modules() -> Iterator[ModuleType]:
    """Every module of the package."""
    for found in pkgutil.walk_packages(saltwall_tenants.__path__, "saltwall_tenants."):
        yield importlib.import_module(found.name)


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_secret_is_not_shown(holder: object) -> None:
    """Neither repr, str nor format shows the secret, as text, hex or a bytes literal."""
    for shown in (repr(holder), str(holder), f"{holder}", repr([holder]), repr({1: holder})):
        assert TEXT not in shown
        assert repr(SECRET)[2:-1] not in shown
        assert SECRET.hex() not in shown
        assert type(holder).__name__ in shown


def test_every_holder_of_a_secret_is_tested() -> None:
    """A dataclass with a secret's field or any bytes, wherever in the package, is in this test."""
    holders = {
        value
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and dataclasses.is_dataclass(value)
        and any(
            field.name in SECRET_FIELDS or "bytes" in str(field.type)
            for field in dataclasses.fields(value)
        )
    }
    assert holders == {type(holder) for holder in HOLDERS}


def test_secret_fields_are_declared_so() -> None:
    """Every field with a secret's name is left out of its class's repr."""
    for holder in HOLDERS:
        for field in dataclasses.fields(holder):  # type: ignore[arg-type]
            assert field.repr == (field.name not in SECRET_FIELDS), (holder, field.name)
