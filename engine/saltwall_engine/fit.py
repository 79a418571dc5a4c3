"""Whether a request can ever fit what its tenant may hold, and how much it may generate there."""

from collections.abc import Callable

_UNBOUNDED = 2**31
"""More tokens than any context: where searches end."""


class DoesNotFit(ValueError):
    """A request that could wait for ever; the message has the numbers, for the client.

    Args:
        prompt_tokens: the prompt's length.
        max_tokens: what it would generate; None when it leaves that to us, and nothing fits.
        blocks: the KV blocks that it needs for that.
        limit_blocks: the blocks that its tenant may hold at most.
        limit_tokens: the tokens that those hold.
        most_tokens: what could be generated after this prompt; 0 when not even the prompt fits.
        parameter: the request's that asks for `max_tokens`.
    """

    def __init__(
        self,
        prompt_tokens: int,
        max_tokens: int | None,
        blocks: int,
        limit_blocks: int,
        limit_tokens: int,
        most_tokens: int,
        parameter: str = "max_tokens",
    ) -> None:
        asked = f" and {max_tokens} to generate" if max_tokens is not None else ""
        if limit_blocks:
            hold = "holds" if limit_blocks == 1 else "hold"
            limit = f"you may use {limit_blocks}, which {hold} {limit_tokens} tokens"
            lower = f"lower {parameter} to {most_tokens} or less"
            remedy = lower if most_tokens else "shorten the prompt"
        else:
            limit = "no KV cache is left for you beside others' reserves"
            remedy = "ask your operator"
        super().__init__(
            f"{prompt_tokens} prompt tokens{asked} need {blocks} KV cache"
            f" block{'' if blocks == 1 else 's'}, and {limit}: {remedy}."
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.blocks = blocks
        self.limit_blocks = limit_blocks
        self.limit_tokens = limit_tokens
        self.most_tokens = most_tokens


def fit(
    prompt_tokens: int,
    max_tokens: int | None,
    explicit: bool,
    limit_blocks: int,
    blocks_for: Callable[[int], int],
    extra_tokens: int = 0,
    parameter: str = "max_tokens",
) -> int:
    """How many tokens the request may generate.

    The last token of an answer is never computed on, so it needs no place in the cache.

    Args:
        prompt_tokens: the prompt's length.
        max_tokens: the most to generate, at least 1; None for as much as fits.
        explicit: the client asked for `max_tokens` itself, so that less would be a broken promise.
        limit_blocks: the most blocks that the tenant may ever hold: its ceiling, or the pool.
        blocks_for: the blocks that so many tokens of one request need; must not fall.
        extra_tokens: places that the engine takes beyond the tokens, for speculation.
        parameter: what the client calls `max_tokens`.

    Raises:
        DoesNotFit: not even one token can be generated, or not as many as were asked for.
    """
    wanted = _UNBOUNDED if max_tokens is None else max(max_tokens, 1)

    def blocks(generated: int) -> int:
        return blocks_for(prompt_tokens + generated - 1 + extra_tokens)

    if blocks(wanted) <= limit_blocks:
        return wanted
    least = wanted if explicit else 1
    if blocks(least) > limit_blocks:
        raise DoesNotFit(
            prompt_tokens,
            max_tokens if explicit else None,
            blocks(least),
            limit_blocks,
            _largest(0, _UNBOUNDED, lambda tokens: blocks_for(tokens) <= limit_blocks),
            _largest(0, least, lambda generated: blocks(generated) <= limit_blocks),
            parameter,
        )
    return _largest(least, wanted, lambda generated: blocks(generated) <= limit_blocks)


def _largest(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest number in [low, high) for which it holds, as it does for `low`."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
