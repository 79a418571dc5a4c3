"""A quota says what can be enforced, arrives as it was sent, and adds up on its engine."""

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_tenants.wire import (
    Amount,
    AmountError,
    BlockShare,
    Capacity,
    Quota,
    Quotas,
    Refusal,
    WireError,
)
from saltwall_tenants.wire.quota import parse_weight

ACME, GLOBEX = UUID(int=0xACE), UUID(int=0x610BE)
DEMO = Capacity(blocks=320, block_tokens=32, block_bytes=2**20)


def quota(reserve: str = "0", ceiling: str | None = None, **fields: Any) -> Quota:
    """A quota of written amounts."""
    return Quota(Amount.parse(reserve), ceiling and Amount.parse(ceiling), **fields)  # type: ignore[arg-type]


weights = st.decimals("0.01", 1000, places=2)
elastic = st.builds(
    lambda low, more, weight, store: quota(f"{low}%", f"{low + more}%", weight=weight, store=store),
    st.integers(0, 50),
    st.integers(1, 50),
    weights,
    st.booleans(),
)
strict = st.builds(
    lambda blocks, weight: quota(f"{blocks} blocks", weight=weight, strict=True),
    st.integers(1, 10_000),
    weights,
)
open_ended = st.builds(lambda size: quota(f"{size}MiB"), st.integers(0, 10_000))
quotas = elastic | strict | open_ended
sections = st.builds(Quotas, st.integers(1, 2**62), st.dictionaries(st.uuids(), quotas, max_size=8))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"reserve": "50%", "ceiling": "30%"}, "ceiling 30% is below the reserve 50%"),
        ({"reserve": "9", "ceiling": "8"}, "below"),
        ({"ceiling": "0%"}, "suspend"),
        ({"strict": True}, "strict needs a reserve"),
        ({"reserve": "5%", "ceiling": "9%", "strict": True}, "leave it out"),
        ({"weight": Decimal(0)}, "0.01 to 1000"),
        ({"weight": Decimal("0.001")}, "0.01 to 1000"),
        ({"weight": Decimal(1001)}, "0.01 to 1000"),
        ({"weight": Decimal(-1)}, "0.01 to 1000"),
        ({"weight": Decimal("1.0000001")}, "six decimals"),
    ],
)
def test_what_cannot_be_enforced_is_refused(parts: dict[str, Any], message: str) -> None:
    """Contradictions are refused where they are made, with what to do."""
    with pytest.raises(AmountError, match=message):
        quota(**parts)


@pytest.mark.parametrize("text", ["", "-1", "1e2", "two", "NaN", "Infinity", "1.2.3", "1" * 30])
def test_what_is_no_weight_is_refused(text: str) -> None:
    """A weight is a plain decimal."""
    with pytest.raises(AmountError, match=r"write 2 or 0\.5"):
        parse_weight(text)


@pytest.mark.parametrize(
    ("given_", "share"),
    [
        (quota(), BlockShare(0, None)),
        (quota("30%", "50%"), BlockShare(96, 160)),
        (quota("1%", "1.9%"), BlockShare(3, 6)),
        (quota("30%", strict=True), BlockShare(96, 96)),
        (quota("0.1%", strict=True), BlockShare(0, 0)),
        (quota("0", "31 tokens"), BlockShare(0, 1)),
        (quota("64 tokens", "30%"), BlockShare(2, 96)),
        (quota("10%", "32MiB"), BlockShare(32, 32)),
    ],
    ids=str,
)
def test_blocks_are_rounded_down_and_a_ceiling_never_to_nothing(
    given_: Quota, share: BlockShare
) -> None:
    """An elastic ceiling leaves at least a block; a strict one is the reserve, whatever that is."""
    assert given_.blocks(DEMO) == share


def test_mixed_units_are_compared_where_they_can_be() -> None:
    """10 % under 16 MiB contradict each other on one engine, and not on a smaller one."""
    mixed = quota("10%", "16MiB")
    with pytest.raises(AmountError, match=r"16MiB is 16 blocks here, below the reserve 10%.* 32"):
        mixed.blocks(DEMO)
    assert mixed.blocks(Capacity(100, 32, 2**20)) == BlockShare(10, 16)


@given(quotas)
def test_a_share_holds_what_the_ledger_needs(quota: Quota) -> None:
    """0 <= reserve <= ceiling on any engine that can keep the quota at all."""
    share = quota.blocks(Capacity(10_000, 16, 2**20))
    assert share.reserve >= 0
    assert share.ceiling is None or share.reserve <= share.ceiling
    assert not quota.strict or share.ceiling == share.reserve


@given(sections)
def test_section_arrives_as_sent(section: Quotas) -> None:
    """Through JSON and back, and no number in it is a float."""
    text = json.dumps(section.document())
    assert Quotas.of(json.loads(text, parse_float=lambda _: pytest.fail("a float"))) == section


@given(sections, sections)
def test_digest_is_of_epoch_and_content(one: Quotas, other: Quotas) -> None:
    """Digests agree only where epoch and content do; the order of tenants does not matter."""
    assert (one.digest == other.digest) == (one == other)
    assert Quotas(one.epoch, dict(reversed(list(one.tenants.items())))).digest == one.digest


SECTION = Quotas(1000, {ACME: quota("30%", "50%", weight=Decimal(2)), GLOBEX: quota("9 blocks")})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("epoch",), 0),
        (("epoch",), 1001),
        (("epoch",), True),
        (("digest",), "0" * 64),
        (("tenants",), []),
        (("tenants",), None),
        (("tenants", str(ACME)), {}),
        (("tenants", ACME.hex), None),
        (("tenants", ACME.hex), []),
        (("tenants", ACME.hex, "reserve"), None),
        (("tenants", ACME.hex, "reserve"), 30),
        (("tenants", ACME.hex, "reserve"), "30.0%"),
        (("tenants", ACME.hex, "reserve"), "30 %"),
        (("tenants", ACME.hex, "reserve"), "60%"),
        (("tenants", ACME.hex, "ceiling"), "lots"),
        (("tenants", ACME.hex, "ceiling"), 50),
        (("tenants", ACME.hex, "weight"), 2),
        (("tenants", ACME.hex, "weight"), "2.0"),
        (("tenants", ACME.hex, "weight"), "0"),
        (("tenants", ACME.hex, "weight"), "NaN"),
        (("tenants", ACME.hex, "strict"), 0),
        (("tenants", ACME.hex, "strict"), True),
        (("tenants", ACME.hex, "store"), "yes"),
        (("tenants", ACME.hex, "store"), False),
        (("tenants", ACME.hex, "burst"), 1),
        (("extra",), 1),
    ],
)
def test_altered_section_is_refused(path: tuple[str, ...], value: object) -> None:
    """Any part altered, added, or written otherwise than canonically."""
    document: Any = json.loads(json.dumps(SECTION.document()))
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(WireError) as error:
        Quotas.of(document)
    assert error.value.refusal is Refusal.MALFORMED


@pytest.mark.parametrize("part", ["epoch", "digest", "tenants"])
def test_missing_part_is_refused(part: str) -> None:
    """Nothing of a section is optional."""
    document = SECTION.document()
    del document[part]
    with pytest.raises(WireError):
        Quotas.of(document)


def test_reserves_are_added_up_on_the_engine() -> None:
    """Up to the last block they fit; beyond it they are refused with the numbers."""
    whole = Quotas(1, {ACME: quota("200"), GLOBEX: quota("120")})
    assert {t: s.reserve for t, s in whole.blocks(DEMO).items()} == {ACME: 200, GLOBEX: 120}
    beyond = Quotas(1, {ACME: quota("200"), GLOBEX: quota("121"), UUID(int=1): quota()})
    with pytest.raises(WireError, match=f"321 of 320 blocks: {ACME} 200, {GLOBEX} 121$") as error:
        beyond.blocks(DEMO)
    assert error.value.refusal is Refusal.QUOTA


def test_errors_name_the_largest_reserves_only() -> None:
    """With ten thousand tenants the message stays a line."""
    many = Quotas(1, {UUID(int=i): quota(str(i % 7 + 1)) for i in range(10_000)})
    with pytest.raises(WireError, match="9995 others") as error:
        many.blocks(DEMO)
    assert len(str(error.value)) < 400


def test_a_quota_that_an_engine_cannot_keep_names_its_tenant() -> None:
    """The message says whose it is."""
    section = Quotas(1, {ACME: quota("1GiB")})
    with pytest.raises(WireError, match=f"tenant {ACME}: 1GiB"):
        section.blocks(Capacity(320, 32))


def test_successors_go_by_epoch_and_digest() -> None:
    """As for the authorisation: newer or the same; older and contradicting are refused."""
    SECTION.check_successor(None)
    SECTION.check_successor(Quotas(999, {}))
    SECTION.check_successor(Quotas(1000, dict(SECTION.tenants)))
    with pytest.raises(WireError, match="stale_epoch"):
        SECTION.check_successor(Quotas(1001, SECTION.tenants))
    with pytest.raises(WireError, match="epoch_conflict"):
        SECTION.check_successor(Quotas(1000, {}))
