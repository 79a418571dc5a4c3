"""What can never fit a ceiling is refused with the numbers; an open answer is clamped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_engine.fit import DoesNotFit, fit

BLOCK = 16


def full(tokens: int) -> int:
    """The blocks of one full-attention group."""
    return -(-tokens // BLOCK)


def hybrid(tokens: int) -> int:
    """Those of a full group beside a window of 64 tokens."""
    return full(tokens) + min(full(tokens), 5)


counts = st.integers(0, 3000)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "extra", "fits"),
    [
        (160, 1, 0, True),  # the one answer token is never computed on
        (161, 1, 0, False),
        (150, 11, 0, True),
        (150, 12, 0, False),
        (150, 11, 1, False),
        (1, 160, 0, True),
        (1, 161, 0, False),
    ],
)
def test_explicit_requests_fit_to_the_last_token(
    prompt: int, max_tokens: int, extra: int, fits: bool
) -> None:
    """Ten blocks of 16 tokens hold 160 computed tokens, and not one more."""
    if fits:
        assert fit(prompt, max_tokens, True, 10, full, extra) == max_tokens
        return
    with pytest.raises(DoesNotFit) as refused:
        fit(prompt, max_tokens, True, 10, full, extra)
    assert (refused.value.blocks, refused.value.limit_blocks) == (11, 10)


def test_the_refusal_has_all_the_numbers() -> None:
    """Prompt, answer, blocks needed, and the ceiling in blocks and tokens."""
    with pytest.raises(DoesNotFit) as refused:
        fit(180, 20, True, 10, full)
    assert str(refused.value) == (
        "180 prompt tokens and 20 to generate need 13 KV cache blocks, and you may use 10,"
        " which hold 160 tokens: shorten the prompt."
    )
    with pytest.raises(DoesNotFit) as refused:
        fit(180, 300, False, 10, full)
    assert str(refused.value) == (
        "180 prompt tokens need 12 KV cache blocks, and you may use 10, which hold 160 tokens:"
        " shorten the prompt."
    )


def test_the_refusal_says_the_one_thing_that_helps() -> None:
    """What fits where only the answer is too long; that number is taken, and one more is not."""
    with pytest.raises(DoesNotFit) as refused:
        fit(100, 80, True, 10, full)
    assert str(refused.value) == (
        "100 prompt tokens and 80 to generate need 12 KV cache blocks, and you may use 10,"
        " which hold 160 tokens: lower max_tokens to 61 or less."
    )
    assert fit(100, 61, True, 10, full) == 61
    with pytest.raises(DoesNotFit, match="lower max_tokens to 61 or less"):
        fit(100, 62, True, 10, full)
    with pytest.raises(DoesNotFit, match="and you may use 1, which holds 16 tokens: lower"):
        fit(10, 9, True, 1, full)


@given(counts, st.integers(1, 3000), st.integers(0, 60), st.integers(0, 9), st.booleans())
def test_an_open_answer_gets_exactly_what_fits(
    prompt: int, wanted: int, limit: int, extra: int, windowed: bool
) -> None:
    """The result fits, one token more would not, and never more than was allowed is given."""
    blocks_for = hybrid if windowed else full
    need = prompt + extra - 1
    try:
        given_ = fit(prompt, wanted, False, limit, blocks_for, extra)
    except DoesNotFit:
        assert blocks_for(need + 1) > limit
        return
    assert 1 <= given_ <= wanted
    assert blocks_for(need + given_) <= limit
    assert given_ == wanted or blocks_for(need + given_ + 1) > limit


@given(counts, st.integers(1, 3000), st.integers(0, 60), st.integers(0, 9))
def test_an_explicit_answer_is_kept_or_refused(
    prompt: int, wanted: int, limit: int, extra: int
) -> None:
    """Nobody who asked for a number gets less."""
    fits = full(prompt + extra - 1 + wanted) <= limit
    if fits:
        assert fit(prompt, wanted, True, limit, full, extra) == wanted
    else:
        with pytest.raises(DoesNotFit):
            fit(prompt, wanted, True, limit, full, extra)


def test_without_a_bound_the_limit_is_the_bound() -> None:
    """None means as much as fits."""
    assert fit(100, None, False, 10, full) == 61


def test_a_tenant_that_may_hold_nothing_is_refused_everything() -> None:
    """Nothing that the client changes helps, so it is told who can."""
    with pytest.raises(DoesNotFit) as refused:
        fit(12, 4, True, 0, full)
    assert str(refused.value) == (
        "12 prompt tokens and 4 to generate need 1 KV cache block, and no KV cache is left for you"
        " beside others' reserves: ask your operator."
    )
    with pytest.raises(DoesNotFit, match="12 prompt tokens need 1 KV cache block, and no"):
        fit(12, None, False, 0, full)
