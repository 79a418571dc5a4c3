"""vLLM's own Scheduler, pool and Request behind the plugin's hooks, without a model."""

from typing import Any
from uuid import UUID

from worker_memory import WorkerMemory

from saltwall_engine.salt_label import Grant, Owner, SaltLabel

BLOCK = 16
ACME, GLOBEX = UUID(int=0xA), UUID(int=0xB)


def grant(tenant: UUID = ACME, generation: int = 1, salt: bytes | None = None) -> Grant:
    """A grant; salts differ between tenants and generations unless given."""
    return Grant(Owner(tenant, generation), salt or bytes([tenant.int % 256, generation] * 16))


class Core:
    """As much of vLLM's EngineCore as needs no model, with its own Scheduler inside.

    Admission and control are the plugin's functions, called as EngineCore calls them; the model
    runner's answer is token 7 for every scheduled request.
    """

    def __init__(self, config: Any, scheduler_class: Any = None, window: int | None = None) -> None:
        """
        Args:
            config: a VllmConfig.
            scheduler_class: another than Saltwall's.
            window: a second KV cache group, whose layers attend to so many tokens only.
        """
        import torch
        from vllm.utils.hashing import sha256_cbor
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            KVCacheConfig,
            KVCacheGroupSpec,
            SlidingWindowSpec,
        )
        from vllm.v1.structured_output import StructuredOutputManager

        from saltwall_engine.scheduler import scheduler_class as ours

        shape = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
        groups = [KVCacheGroupSpec(["layer"], FullAttentionSpec(**shape))]
        if window is not None:
            windowed = SlidingWindowSpec(**shape, sliding_window=window)
            groups.append(KVCacheGroupSpec(["windowed"], windowed))
        self.scheduler = (scheduler_class or ours)(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=config.cache_config.num_gpu_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=groups,
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            log_stats=True,
        )
        kv_cache_utils.init_none_hash(sha256_cbor)
        self.request_block_hasher = kv_cache_utils.get_request_block_hasher(BLOCK, sha256_cbor)
        self.mm_receiver_cache = None
        if scheduler_class is None:
            self.scheduler.admission.replace(dict.fromkeys((ACME, GLOBEX), frozenset({1, 2})))
            self.scheduler.admission.renew(3600)
        self.memory = self.model_executor = WorkerMemory()
        self.refused: list[str] = []
        self.count = 0

    def _send_abort_outputs_to_client(self, request_ids: list[str], client_index: int) -> None:
        self.refused += request_ids

    def _send_abort_outputs(self, requests: list[Any]) -> None:
        self.refused += [request.request_id for request in requests]

    def request(
        self, tokens: list[int], cache_salt: Any, *, hasher: Any = None, **sampling: Any
    ) -> Any:
        """A real Request, of one more output token unless the sampling parameters say more."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self.count += 1
        return Request(
            request_id=f"r{self.count}",
            prompt_token_ids=tokens,
            sampling_params=SamplingParams(**{"max_tokens": 1} | sampling),
            pooling_params=None,
            cache_salt=SaltLabel(cache_salt) if isinstance(cache_salt, Grant) else cache_salt,
            block_hasher=hasher or self.request_block_hasher,
        )

    def serve(self, request: Any) -> int:
        """Runs one request to its end; returns how many of its prompt tokens were cached."""
        self.scheduler.add_request(request)
        cached = None
        while self.scheduler.has_unfinished_requests():
            scheduled = self.step()
            if cached is None:
                cached = scheduled.scheduled_new_reqs[0].num_computed_tokens
        assert cached is not None
        return int(cached)

    def step(self) -> Any:
        """One engine step."""
        scheduled = self.scheduler.schedule()
        self.answer(scheduled)
        return scheduled

    def answer(self, scheduled: Any) -> None:
        """Ends a step: gives the scheduler what the model runner answers."""
        from vllm.v1.outputs import ModelRunnerOutput

        ids = list(scheduled.num_scheduled_tokens)
        done = [
            [7] if r.num_computed_tokens >= r.num_tokens else []
            for r in (self.scheduler.requests[i] for i in ids)
        ]
        self.scheduler.update_from_output(
            scheduled,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={k: i for i, k in enumerate(ids)},
                sampled_token_ids=done,
            ),
        )

    async def call_utility_async(self, name: str, *args: Any) -> Any:
        """Calls a control function as the API process does, without the socket between."""
        from saltwall_engine import engine_core

        return getattr(engine_core, name)(self, *args)
