"""The engine's block hash is the described one, and a collision serves nobody else's KV."""

from typing import Any

from saltwall_security.check import Verdict


def test_the_engine_hashes_as_described(examined: Any) -> None:
    """With keys of every kind."""
    check = examined.checks["hasher"]
    assert check.verdict == Verdict.HELD, check.seen
    assert check.figures["blocks"] > 500


def test_stock_does_not_claim_to(examined: Any) -> None:
    """So it is not held against it."""
    assert examined.checks["stock hasher"].verdict == Verdict.NOT_TESTED


def test_a_scheduler_that_cannot_be_built_is_in_doubt(examined: Any) -> None:
    """Never held."""
    assert examined.checks["absent"].verdict == Verdict.INCONCLUSIVE


def test_a_collision_serves_no_stranger(examined: Any) -> None:
    """Where stock's pool serves a whole block of another tenant's."""
    check = examined.checks["ownership"]
    assert check.verdict == Verdict.HELD, check.seen
    assert check.figures["xxhash_cbor_stranger_tokens"] == 0
    assert "128 tokens" in check.control


def test_stock_serves_it(examined: Any) -> None:
    """The same blocks, put to stock vLLM as the target."""
    check = examined.checks["stock ownership"]
    assert check.verdict == Verdict.FAILED
    assert check.figures["xxhash_cbor_stranger_tokens"] == 128


def test_operators_see_all_four_algorithms(examined: Any) -> None:
    """With what each costs, and costs an attacker."""
    table = examined.checks["speed"].table
    assert [row["algorithm"] for row in table] == ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
    assert all(row["us_per_16_token_block"] > 0 for row in table)
    assert [row["for_several_tenants"] for row in table] == ["yes", "yes", "no", "no"]
