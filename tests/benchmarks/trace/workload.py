"""The trace as a service with tenants sees it: whose each request is, and vLLM's own Request."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from mooncake import BLOCK, Call
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import BlockHash
from vllm.v1.request import Request

from saltwall_engine.salt_label import Grant, Owner, SaltLabel

_SAMPLING = SamplingParams(max_tokens=1)  # nothing here reads it


def zipf(tenants: int, exponent: float) -> list[float]:
    """The share of conversations of each tenant, the largest first; the sum is 1."""
    weights = [1 / rank**exponent for rank in range(1, tenants + 1)]
    return [weight / sum(weights) for weight in weights]


def tenant_id(tenant: int) -> UUID:
    """The id that Saltwall knows a tenant of this workload by."""
    return UUID(int=tenant + 1)


@dataclass(frozen=True)
class Workload:
    """Requests in order of arrival, each a tenant's; whole conversations go to one tenant."""

    calls: Sequence[Call]
    shares: Sequence[float]  # of conversations, by tenant
    seed: int
    _hashes: dict[tuple[int, int], BlockHash] = field(default_factory=dict, repr=False)

    @cached_property
    def tenant_of(self) -> list[int]:
        """The tenant of each request; conversations draw theirs in order of appearance."""
        draw = random.Random(self.seed)
        tenants = range(len(self.shares))
        drawn: dict[int, int] = {}
        for call in self.calls:
            if call.conversation not in drawn:
                drawn[call.conversation] = draw.choices(tenants, self.shares)[0]
        return [drawn[call.conversation] for call in self.calls]

    @cached_property
    def labels(self) -> list[SaltLabel]:
        """What stands in `Request.cache_salt`, by tenant."""
        return [
            SaltLabel(Grant(Owner(tenant_id(tenant), 1), tenant.to_bytes(32, "big")))
            for tenant in range(len(self.shares))
        ]

    def blocks_needed(self, index: int) -> int:
        """Blocks that hold a request at its end; the last token of its answer has no KV."""
        call = self.calls[index]
        return -(-(call.input_length + call.output_length - 1) // BLOCK)

    def request(self, index: int) -> Request:
        """vLLM's Request for one line of the trace.

        The trace has no token ids, so they are all 0, and the hash of a prompt block stands for
        (tenant, block id): the preamble that all requests share is another block for each tenant,
        as salts make it. Blocks that the answer fills are new to everybody.
        """
        call, tenant = self.calls[index], self.tenant_of[index]
        whole = call.input_length // BLOCK

        def hash_new_blocks(request: Request) -> list[BlockHash]:
            return [
                self._prompt_hash(tenant, call.blocks[i]) if i < whole else _hash(-1, index, i)
                for i in range(len(request.block_hashes), request.num_tokens // BLOCK)
            ]

        return Request(
            request_id=str(index),
            prompt_token_ids=[0] * call.input_length,
            sampling_params=_SAMPLING,
            pooling_params=None,
            cache_salt=self.labels[tenant],
            block_hasher=hash_new_blocks,
        )

    def _prompt_hash(self, tenant: int, block: int) -> BlockHash:
        key = tenant, block
        if key not in self._hashes:
            self._hashes[key] = _hash(tenant, block)
        return self._hashes[key]


def _hash(*parts: int) -> BlockHash:
    return BlockHash(hashlib.sha256(repr(parts).encode()).digest())
