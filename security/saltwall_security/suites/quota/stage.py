"""Two tenants of the auditor's own, prompts measured in blocks, and what stays cached of them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from saltwall_security.engine_control import EngineControl, Usage
from saltwall_security.errors import AuditError
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.target import Operator, Tenant

SAMPLE_WORDS = 64
AT_ONCE = 2
"""Few, so that what requests take beside what is cached is little."""
LIVE_WITHIN_S = 10.0
"""How long a change may take until the engine reports it; the platform promises a second."""


@dataclass(frozen=True)
class Prompt:
    """A text, and the full blocks that it makes."""

    text: str
    blocks: int


@dataclass(frozen=True)
class Stage:
    """Where quotas are tried.

    Args:
        tenant: whose quota is changed.
        other: who competes with it, without any.
        pool: blocks of the engine.
        block_tokens: tokens in a block.
        tokens_per_word: of the auditor's random words.
    """

    audit: Audit
    operator: Operator
    control: EngineControl
    probe: Prober
    tenant: Tenant
    other: Tenant
    pool: int
    block_tokens: int
    tokens_per_word: float

    @property
    def unit(self) -> int:
        """A size in blocks that is small beside the pool, and of which prompts can be half."""
        return max(6, min(16, self.pool // 40))

    def text(self, blocks: float) -> str:
        """A prompt that nobody has sent, of so many blocks."""
        return self.audit.words(max(2, round(blocks * self.block_tokens / self.tokens_per_word)))

    async def fill(
        self, tenant: Tenant, blocks: int, each: float, at_once: int = AT_ONCE
    ) -> list[Prompt]:
        """Sends new prompts of `each` blocks until they make `blocks`; in the order of sending.

        Raises:
            Refused: one was not answered.
        """
        client = self.audit.client(tenant)
        made: list[Prompt] = []
        while sum(prompt.blocks for prompt in made) < blocks:
            texts = [self.text(each) for _ in range(at_once)]
            answers = await asyncio.gather(*(self.probe(client, text) for text in texts))
            made += [
                Prompt(text, max(1, ((answer.prompt_tokens or 1) - 1) // self.block_tokens))
                for text, answer in zip(texts, answers, strict=True)
            ]
        return made

    async def cached(self, tenant: Tenant, prompts: Sequence[Prompt]) -> int:
        """How many blocks of these prompts are cached, the youngest asked first.

        Whatever is found was there before the first question: a question caches only itself.

        Raises:
            AuditError: the server does not say what was cached.
        """
        client = self.audit.client(tenant)
        tokens = 0
        youngest = [prompt.text for prompt in reversed(prompts)]
        for start in range(0, len(youngest), AT_ONCE):
            texts = youngest[start : start + AT_ONCE]
            for answer in await asyncio.gather(*(self.probe(client, text) for text in texts)):
                if answer.cached_tokens is None:
                    raise AuditError("the server does not report cached tokens")
                tokens += answer.cached_tokens
        return tokens // self.block_tokens

    async def live(self, reserve: int, ceiling: int | None) -> tuple[Usage, float]:
        """Waits until the engine reports these for the tenant; what it says then, and when (s)."""
        return await self.control.until(
            lambda usage: (
                (usage.of(self.tenant).reserve, usage.of(self.tenant).ceiling) == (reserve, ceiling)
            ),
            LIVE_WITHIN_S,
        )


@asynccontextmanager
async def staged(audit: Audit, operator: Operator) -> AsyncIterator[Stage]:
    """Sets it up, and deletes the two tenants at the end."""
    run = secrets.token_hex(3)
    names = [f"audit-quota-{run}-{letter}" for letter in "ab"]
    async with EngineControl(audit.target) as control:
        usage = await control.usage()
        made = await asyncio.gather(*(asyncio.to_thread(operator.create_tenant, n) for n in names))
        try:
            probe = Prober()
            text = audit.words(SAMPLE_WORDS)
            answer = await probe(audit.client(made[1]), text)
            yield Stage(
                audit,
                operator,
                control,
                probe,
                made[0],
                made[1],
                usage.blocks,
                usage.block_tokens,
                (answer.prompt_tokens or 3 * SAMPLE_WORDS) / SAMPLE_WORDS,
            )
        finally:
            await asyncio.gather(*(asyncio.to_thread(operator.delete_tenant, t) for t in made))
