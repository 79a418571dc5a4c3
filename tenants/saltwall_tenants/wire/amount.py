"""Amounts of KV cache as operators write them, and what they are in one engine's blocks.

Exact decimals throughout: what is stored, hashed and compared is never a float.
"""

import re
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

MAX_COUNT = 10**15
"""Above any block, token or byte count of a real engine: bounds what a document can make us do."""

_BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_FORMS = "30%, 120 blocks, 4096 tokens or 2.5GiB"
_TEXT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?\s*([A-Za-z%]*)")
_DECIMALS, _SHOWN = Decimal("0.000001"), Decimal("0.01")


class AmountError(ValueError):
    """An amount, quota or capacity that cannot be; the message says what to write instead."""


class Unit(StrEnum):
    """What an amount counts."""

    BLOCKS = "blocks"
    TOKENS = "tokens"
    PERCENT = "percent"
    BYTES = "bytes"


_SUFFIXES = {
    "": Unit.BLOCKS,
    "block": Unit.BLOCKS,
    "blocks": Unit.BLOCKS,
    "t": Unit.TOKENS,
    "token": Unit.TOKENS,
    "tokens": Unit.TOKENS,
    "%": Unit.PERCENT,
}


@dataclass(frozen=True)
class Capacity:
    """One engine's KV cache: what amounts in other units are converted with.

    Args:
        blocks: N, all blocks but vLLM's null block.
        block_tokens: tokens that one block holds, of one KV cache group.
        block_bytes: bytes of one block on one worker; None where no memory was laid out.
        groups: KV cache groups; each token takes a place in a block of every group. Groups that
            keep a window of the tokens only need fewer blocks than this counts.
    """

    blocks: int
    block_tokens: int
    block_bytes: int | None = None
    groups: int = 1

    def document(self) -> dict[str, int | None]:
        """As JSON has it."""
        return {
            "blocks": self.blocks,
            "block_tokens": self.block_tokens,
            "block_bytes": self.block_bytes,
            "groups": self.groups,
        }

    @classmethod
    def of(cls, document: Any) -> "Capacity":
        """Reads what `document` wrote; fields that a newer engine adds are ignored.

        Raises:
            AmountError: it is no capacity.
        """
        try:
            fields = {name: document[name] for name in cls.__dataclass_fields__}
        except (KeyError, TypeError):
            raise AmountError("not a capacity") from None
        counts = [count for name, count in fields.items() if (name, count) != ("block_bytes", None)]
        if any(type(count) is not int or not 1 <= count <= MAX_COUNT for count in counts):
            raise AmountError("a capacity holds whole numbers above 0")
        return cls(**fields)

    def tokens(self, blocks: int) -> int:
        """The tokens that so many blocks hold."""
        return blocks * self.block_tokens // self.groups

    def percent(self, blocks: int) -> Decimal:
        """So many blocks as a share of all, rounded down to two decimals."""
        return (Decimal(blocks * 100) / self.blocks).quantize(_SHOWN, ROUND_FLOOR)

    def bytes_(self, blocks: int) -> int | None:
        """The bytes of so many blocks."""
        return None if self.block_bytes is None else blocks * self.block_bytes

    def describe(self, blocks: int) -> str:
        """So many blocks in every unit, for people."""
        parts = [
            f"{blocks} block{'' if blocks == 1 else 's'}",
            f"{self.tokens(blocks)} tokens",
            f"{plain(self.percent(blocks))}%",
        ]
        size = self.bytes_(blocks)
        if size is not None:
            parts.append(readable_bytes(size))
        return " = ".join(parts)


@dataclass(frozen=True)
class Amount:
    """How much KV cache: `value` of `unit`, exactly.

    Raises:
        AmountError: it is negative, too large, a part of a block, token or byte, or above 100 %.
    """

    value: Decimal
    unit: Unit

    def __post_init__(self) -> None:
        """Holds every amount, however it was made, to what the text form can say."""
        if not 0 <= self.value <= MAX_COUNT:
            raise AmountError(f"an amount is between 0 and {MAX_COUNT}")
        if self.unit is Unit.PERCENT and self.value > 100:
            raise AmountError(f"{plain(self.value)}% is more than all: write at most 100%")
        if self.unit in (Unit.BLOCKS, Unit.TOKENS) and self.value != self.value.to_integral():
            raise AmountError(f"there is no part of a {self.unit[:-1]}: write a whole number")
        if self.unit is Unit.PERCENT and self.value != self.value.quantize(_DECIMALS):
            raise AmountError("write at most six decimals")
        if self.unit is Unit.BYTES and _byte_unit(self.value) is None:
            raise AmountError("below 1KiB there are whole bytes only")

    @classmethod
    def parse(cls, text: str) -> "Amount":
        """Reads `30%`, `12.5%`, `120 blocks`, `120`, `4096 tokens`, `4096t`, `512MiB`, `2.5GiB`.

        Raises:
            AmountError: it is none of these.
        """
        return _parse(text.strip())

    def __str__(self) -> str:
        """The one text of this amount: equal amounts of one unit have equal texts."""
        match self.unit:
            case Unit.PERCENT:
                return f"{plain(self.value)}%"
            case Unit.BYTES:
                name = _byte_unit(self.value) or "B"
                return f"{plain(self.value / _BYTES[name])}{name}"
            case _:
                return f"{plain(self.value)} {self.unit}"

    def blocks(self, capacity: Capacity) -> int:
        """What it is in an engine's blocks, rounded down.

        Raises:
            AmountError: it is in bytes, and the engine does not know those of a block.
        """
        value = self.value
        match self.unit:
            case Unit.BLOCKS:
                return int(value)
            case Unit.TOKENS:
                return int(value) * capacity.groups // capacity.block_tokens
            case Unit.PERCENT:
                return int(value * capacity.blocks // 100)
            case Unit.BYTES:
                if capacity.block_bytes is None:
                    raise AmountError(f"{self}: this engine does not know the size of a block")
                return int(value // capacity.block_bytes)


NOTHING = Amount(Decimal(0), Unit.BLOCKS)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Amount:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise AmountError(f"{text[:40]!r} is not an amount: write {_FORMS}")
    whole, part, suffix = found.groups()
    value = Decimal(f"{whole}.{part}" if part else whole)
    if suffix in _BYTES:
        return Amount(value * _BYTES[suffix], Unit.BYTES)
    unit = _SUFFIXES.get(suffix.lower())
    if unit is None:
        raise AmountError(f"{text[:40]!r} has an unknown unit: write {_FORMS}")
    return Amount(value, unit)


def plain(value: Decimal) -> str:
    """A decimal without exponent or trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _byte_unit(value: Decimal) -> str | None:
    """The largest unit that says this many bytes exactly, in at most six decimals."""
    for name, size in _BYTES.items():
        share = value / size
        if name == "B":
            return name if share == share.to_integral() else None
        if share >= 1 and share == share.quantize(_DECIMALS):
            return name
    return None


def readable_bytes(size: int) -> str:
    """A size for people, rounded down to two decimals of its largest unit."""
    name = next((name for name, unit in _BYTES.items() if size >= unit), "B")
    return f"{plain((Decimal(size) / _BYTES[name]).quantize(_SHOWN, ROUND_FLOOR))}{name}"
