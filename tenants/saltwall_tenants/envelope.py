"""The envelope in which a secret is stored: AES-256-GCM twice, so that only keys are re-wrapped."""

import os
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from saltwall_tenants.errors import KeyUnavailable
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.wire.keys import KEY_BYTES

_NONCE_BYTES = 12


@dataclass(frozen=True)
class Envelope:
    """A secret under a data key of its own, which is under the key-encryption key `kek_id`."""

    kek_id: str
    wrapped_key: bytes = field(repr=False)
    sealed: bytes = field(repr=False)


def seal(keyring: Keyring, place: bytes, secret: bytes) -> Envelope:
    """Seals a secret so that it opens only in its place, such as one row of one table."""
    data_key = os.urandom(KEY_BYTES)
    return Envelope(
        kek_id=keyring.current_kek,
        wrapped_key=_encrypt(keyring.keks[keyring.current_kek], place, data_key),
        sealed=_encrypt(data_key, place, secret),
    )


def unseal(keyring: Keyring, place: bytes, envelope: Envelope) -> bytes:
    """Opens an envelope.

    Raises:
        KeyUnavailable: the keyring lacks its key, or it was altered or moved from its place.
    """
    kek = keyring.keks.get(envelope.kek_id)
    if kek is None:
        raise KeyUnavailable(
            f"a stored secret is sealed with {envelope.kek_id!r}, which is not in gateway.json:"
            " restore the key file that belongs to this database"
        )
    try:
        data_key = _decrypt(kek, place, envelope.wrapped_key)
        return _decrypt(data_key, place, envelope.sealed)
    except (InvalidTag, ValueError):
        raise KeyUnavailable(
            f"a stored secret does not open with {envelope.kek_id!r}: its row was altered or moved,"
            " or gateway.json is not the one that belongs to this database; restore both together"
        ) from None


def _encrypt(key: bytes, place: bytes, data: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, place)


def _decrypt(key: bytes, place: bytes, data: bytes) -> bytes:
    return AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place)
