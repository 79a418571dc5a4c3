"""An amount of KV cache has one text, and is the same number of blocks wherever it is converted."""

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import Amount, AmountError, Capacity, Unit

DEMO = Capacity(blocks=320, block_tokens=32, block_bytes=1_474_560)
HYBRID = Capacity(blocks=1000, block_tokens=16, block_bytes=2**20, groups=4)

SUFFIXES = {"": 0, " blocks": 0, "t": 0, " tokens": 0, "%": 6, "B": 0, "KiB": 3, "GiB": 6}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Amounts as people write them."""
    suffix = draw(st.sampled_from(sorted(SUFFIXES)))
    whole = draw(st.integers(0, 99 if suffix == "%" else 900_000))
    part = draw(st.text("0123456789", max_size=SUFFIXES[suffix]))
    if suffix in ("KiB", "GiB") and not whole:
        part = ""  # below a KiB there are whole bytes only
    return f"{whole}.{part}{suffix}" if part else f"{whole}{suffix}"


amounts = texts().map(Amount.parse)
capacities = st.builds(
    Capacity,
    st.integers(1, 10**7),
    st.sampled_from([1, 16, 32, 128]),
    st.integers(1, 10**8),
    st.integers(1, 5),
)


@pytest.mark.parametrize(
    ("text", "unit", "canonical", "blocks"),
    [
        ("30%", Unit.PERCENT, "30%", 96),
        ("12.50 %", Unit.PERCENT, "12.5%", 40),
        ("0.1%", Unit.PERCENT, "0.1%", 0),
        ("120", Unit.BLOCKS, "120 blocks", 120),
        ("120 Blocks", Unit.BLOCKS, "120 blocks", 120),
        ("1 block", Unit.BLOCKS, "1 blocks", 1),
        ("4096 tokens", Unit.TOKENS, "4096 tokens", 128),
        ("4096t", Unit.TOKENS, "4096 tokens", 128),
        ("4097t", Unit.TOKENS, "4097 tokens", 128),
        ("0.25GiB", Unit.BYTES, "256MiB", 182),
        ("2.5GiB", Unit.BYTES, "2.5GiB", 1820),
        ("1536MiB", Unit.BYTES, "1.5GiB", 1092),
        ("1474560B", Unit.BYTES, "1.40625MiB", 1),
        ("1474559B", Unit.BYTES, "1474559B", 0),
        (" 0 ", Unit.BLOCKS, "0 blocks", 0),
    ],
)
def test_what_operators_write(text: str, unit: Unit, canonical: str, blocks: int) -> None:
    """Each form is read, has one canonical text, and is rounded down to whole blocks."""
    amount = Amount.parse(text)
    assert (amount.unit, str(amount), amount.blocks(DEMO)) == (unit, canonical, blocks)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "30%"),
        ("lots", "2.5GiB"),
        ("-1", "4096 tokens"),
        ("+1", "4096 tokens"),
        ("1e3", "30%"),
        ("1_000", "30%"),
        ("NaN", "30%"),
        ("٣", "30%"),
        ("5 GB", "2.5GiB"),
        ("5 gib", "2.5GiB"),
        ("100.1%", "at most 100%"),
        ("1.5 blocks", "whole number"),
        ("0.5 tokens", "whole number"),
        ("1.5B", "whole bytes"),
        ("0.000001MiB", "whole bytes"),
        ("1.0000001%", "30%"),
        ("9999999999999999", "30%"),
        ("999999999999999GiB", "between 0"),
    ],
)
def test_what_is_no_amount_is_refused_with_what_to_write(text: str, advice: str) -> None:
    """The error shows a form that works."""
    with pytest.raises(AmountError, match=advice):
        Amount.parse(text)


@given(amounts)
def test_text_and_amount_are_the_same_thing(amount: Amount) -> None:
    """The canonical text reads back as the amount itself, and never as another."""
    assert Amount.parse(str(amount)) == amount


@given(amounts, amounts)
def test_equal_amounts_have_equal_texts(one: Amount, other: Amount) -> None:
    """Within a unit, texts agree exactly where values do."""
    same = (one.unit, one.value) == (other.unit, other.value)
    assert (str(one) == str(other)) == same


@given(amounts, capacities)
def test_conversion_is_the_exact_quotient_rounded_down(amount: Amount, capacity: Capacity) -> None:
    """Against rational arithmetic: no rounding on the way, whatever the sizes."""
    value = Fraction(amount.value)
    exact = {
        Unit.BLOCKS: value,
        Unit.TOKENS: value * capacity.groups / capacity.block_tokens,
        Unit.PERCENT: value * capacity.blocks / 100,
        Unit.BYTES: value / (capacity.block_bytes or 1),
    }
    assert amount.blocks(capacity) == exact[amount.unit].__floor__()


@given(st.lists(st.integers(0, 10_000), min_size=1), capacities)
def test_percentages_that_fit_on_paper_fit_every_engine(
    shares: list[int], capacity: Capacity
) -> None:
    """Rounded down, shares of 100 % in all never come to more than there is."""
    hundredths = [Decimal(share * 100) / max(sum(shares), 1) for share in shares]
    written = [Amount.parse(f"{int(share * 100) / 100:.2f}%") for share in hundredths]
    assert sum(amount.blocks(capacity) for amount in written) <= capacity.blocks


def test_bytes_need_an_engine_that_knows_its_own() -> None:
    """Where no memory is laid out, bytes are refused and every other unit works."""
    bare = replace(DEMO, block_bytes=None)
    with pytest.raises(AmountError, match="does not know the size of a block"):
        Amount.parse("1GiB").blocks(bare)
    assert Amount.parse("50%").blocks(bare) == 160


def test_a_token_takes_a_block_of_every_group() -> None:
    """4,096 tokens on four groups of 16-token blocks need 1,024 blocks, and back."""
    assert Amount.parse("4096t").blocks(HYBRID) == 1024
    assert HYBRID.tokens(1024) == 4096


@pytest.mark.parametrize(
    ("capacity", "blocks", "text"),
    [
        (DEMO, 96, "96 blocks = 3072 tokens = 30% = 135MiB"),
        (DEMO, 1, "1 block = 32 tokens = 0.31% = 1.4MiB"),
        (DEMO, 0, "0 blocks = 0 tokens = 0% = 0B"),
        (replace(DEMO, block_bytes=None), 320, "320 blocks = 10240 tokens = 100%"),
    ],
)
def test_blocks_are_shown_in_every_unit(capacity: Capacity, blocks: int, text: str) -> None:
    """What people read: rounded down to two decimals, bytes where they are known."""
    assert capacity.describe(blocks) == text


@given(capacities)
def test_capacity_arrives_as_sent(capacity: Capacity) -> None:
    """Through JSON and back, and a newer engine's fields are ignored."""
    document = json.loads(json.dumps(capacity.document()))
    assert Capacity.of(document) == capacity
    assert Capacity.of({**document, "nodes": 2}) == capacity


@pytest.mark.parametrize("field", ["blocks", "block_tokens", "block_bytes", "groups"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9", [], 10**18, "missing"])
def test_what_is_no_capacity_is_refused(field: str, value: object) -> None:
    """Every count is a whole number above 0."""
    document = dict(DEMO.document())
    document[field] = value  # type: ignore[assignment]
    if value == "missing":
        del document[field]
    with pytest.raises(AmountError):
        Capacity.of(document)


@pytest.mark.parametrize("value", [None, [], "320", 320])
def test_other_json_is_no_capacity(value: object) -> None:
    """It is an object."""
    with pytest.raises(AmountError):
        Capacity.of(value)
