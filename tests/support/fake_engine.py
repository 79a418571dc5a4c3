"""An engine without a model: vLLM's own scheduler and pool, its loop, and made-up tokens."""

from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from bare_core import Core, grant

from saltwall_engine.fit import DoesNotFit


class FakeEngine:
    """EngineCore's loop, `step` or with async scheduling `step_with_batch_queue`, over a `Core`."""

    def __init__(self, config: Any, tenants: Sequence[UUID], window: int | None = None) -> None:
        self.core = Core(config, window=window)
        self.scheduler = self.core.scheduler
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.ledger = self.pool.ledger
        self.scheduler.admission.replace(dict.fromkeys(tenants, frozenset({1, 2})))
        self._in_flight: deque[tuple[Any, list[str]]] = deque()
        self._most_in_flight = 2 if config.scheduler_config.async_scheduling else 1
        self._milliseconds = 0
        self.scheduler.step_budget.clock = self._clock
        self.live: dict[str, Any] = {}
        """Requests that are neither finished nor aborted."""
        self.tokens: dict[str, int] = {}
        """How many tokens each request has been sent."""
        self.finished: dict[str, str] = {}
        """Why each finished request ended."""
        self.cached: dict[str, int] = {}
        """How many tokens of each request's prompt were cached when it was first scheduled."""

    def _clock(self) -> float:
        """Each look at the clock is ten milliseconds later, on any machine."""
        self._milliseconds += 10
        return self._milliseconds / 1000

    def submit(
        self, tenant: UUID, prompt: list[int], output: int, *, generation: int = 1, **extra: Any
    ) -> str | None:
        """Hands a request to the engine; None if it is refused because it can never fit."""
        request = self.core.request(
            prompt,
            grant(tenant, generation),
            max_tokens=output,
            ignore_eos=True,
            extra_args=extra or None,
        )
        try:
            self.scheduler.fit(request)
        except DoesNotFit:
            return None
        name: str = request.request_id
        self.live[name], self.tokens[name] = request, 0
        self.scheduler.add_request(request)
        return name

    def abort(self, names: Sequence[str]) -> None:
        """The clients of these requests have gone away."""
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        for name in names:
            self.live.pop(name, None)

    def step(self) -> Any:
        """One turn of the loop; returns what was scheduled, or None."""
        scheduled = None
        if self.scheduler.has_requests():
            scheduled = self.scheduler.schedule()
            requests = self.scheduler.requests
            for new in scheduled.scheduled_new_reqs:
                self.cached.setdefault(new.req_id, new.num_computed_tokens)
            names = list(scheduled.num_scheduled_tokens)
            sampled = [name for name in names if not requests[name].is_prefill_chunk]
            self._in_flight.append((scheduled, sampled))
            more = scheduled.total_num_scheduled_tokens > 0 or self.scheduler.has_requests()
            if len(self._in_flight) < self._most_in_flight and more:
                return scheduled
        if self._in_flight:
            self._update(*self._in_flight.popleft())
        return scheduled

    def _update(self, scheduled: Any, sampled: list[str]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(scheduled.num_scheduled_tokens)
        outputs = self.scheduler.update_from_output(
            scheduled,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: i for i, name in enumerate(names)},
                sampled_token_ids=[
                    [self._token(name)] if name in sampled else [] for name in names
                ],
            ),
        )
        for client in outputs.values():
            for output in client.outputs:
                self.tokens[output.request_id] += len(output.new_token_ids)
                if output.finish_reason is not None:
                    self.finished[output.request_id] = str(output.finish_reason)
                    self.live.pop(output.request_id, None)

    def _token(self, name: str) -> int:
        """The next token of a request's answer: the same for the same prompt."""
        request = self.live.get(name)
        return 7 if request is None else (sum(request.prompt_token_ids) + request.num_tokens) % 900

    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not self._in_flight and not self.scheduler.has_requests()

    def account(self, tenant: UUID) -> Any:
        """The tenant's account."""
        return self.ledger.account(tenant)

    def first_scheduled(self, scheduled: Any) -> list[str]:
        """The requests that a step admits for the first time."""
        return [new.req_id for new in scheduled.scheduled_new_reqs if new.req_id in self.live]
