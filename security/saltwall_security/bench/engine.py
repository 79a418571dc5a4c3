"""vLLM's EngineCore around a scheduler of any class, without a model: its loop, and made-up tokens.

Requests go in by vLLM's own `preprocess_add_request` and `add_request`, and what the scheduler says
comes out of its own queue, so that whatever a plugin puts there is under examination too.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltwall_security.bench.clock import SLOW_TOKEN_S, Clock
from saltwall_security.bench.dialect import Dialect, Quota

BLOCK = 16
"""Tokens in a block."""
VOCABULARY = 1000


@dataclass
class Job:
    """One request's life.

    Args:
        request: vLLM's object.
        since: the step before which it was submitted.
        first: the step in which it was first scheduled.
        cached: tokens of its prompt that were found cached then.
        tokens: tokens that it has been sent.
        ended: why it ended.
    """

    name: str
    tenant: str
    request: Any
    since: int
    first: int | None = None
    cached: int | None = None
    tokens: int = 0
    ended: str | None = None

    def waited(self, now: int) -> int:
        """Steps in which it could have been scheduled and was not, up to step `now`."""
        return (now if self.first is None else self.first) - self.since


@dataclass
class Refused:
    """A request that was not let in, and by what."""

    why: str


@dataclass
class Shape:
    """An engine's size: blocks that tenants can use, slots, and tokens of a step and more."""

    blocks: int = 96
    slots: int = 16
    step_tokens: int = 512
    asynchronous: bool = False
    block_tokens: int = BLOCK
    model_tokens: int = 2048
    token_s: float = SLOW_TOKEN_S
    quotas: dict[str, Quota] = field(default_factory=dict)


class Engine:
    """A scheduler at work."""

    def __init__(self, core: Any, shape: Shape, dialect: Dialect, clock: Clock) -> None:
        self.core, self.shape, self.dialect, self._clock = core, shape, dialect, clock
        clock.token_s = shape.token_s
        self.scheduler = self.core.scheduler
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.steps = 0
        self.watchers: list[Callable[[Any], None]] = []
        """Called with what was scheduled, before the model has answered."""
        self.jobs: dict[str, Job] = {}
        """Every request that was let in, also those that have ended."""
        self._in_flight: deque[tuple[Any, list[str]]] = deque()
        self._most_in_flight = 2 if shape.asynchronous else 1
        self.dialect.open(self.core)
        self._tenants: set[str] = set()
        self._numbers = itertools.count(1)
        if shape.quotas:
            self.dialect.set_quotas(self.core, shape.quotas)

    def authorise(self, tenant: str, *generations: int) -> None:
        """Allows these generations of the tenant's salt, and no others."""
        self._tenants.add(tenant)
        self.dialect.authorise(self.core, {tenant: frozenset(generations)})

    def submit(
        self,
        tenant: str,
        prompt: Sequence[int],
        output: int = 1,
        *,
        generation: int = 1,
        credential: Any = None,
        hasher: Any = None,
    ) -> Job | Refused:
        """Hands a request to the engine as vLLM's input thread and busy loop do.

        Args:
            tenant: whose it is; made known with generation 1 at its first request.
            prompt: token ids.
            output: tokens to generate.
            generation: of its salt.
            credential: instead of the tenant's genuine one; an empty one is none.
            hasher: computes block hashes instead of the engine's own.
        """
        if tenant not in self._tenants:
            self.authorise(tenant, 1)
        if credential is None:
            credential = self.dialect.credential(tenant, generation)
        raw = self.raw(tenant, prompt, output, credential)
        own = self.core.request_block_hasher
        self.core.request_block_hasher = hasher or own
        try:
            request, wave = self.core.preprocess_add_request(raw)
        except Exception as error:  # the input thread answers with an error and goes on
            return Refused(type(error).__name__)
        finally:
            self.core.request_block_hasher = own
        return self.admit(tenant, request, wave)

    def raw(self, tenant: str, prompt: Sequence[int], output: int, credential: Any) -> Any:
        """The request as it comes from the API process."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        return EngineCoreRequest(
            request_id=f"{tenant}-{next(self._numbers)}",
            prompt_token_ids=list(prompt),
            mm_features=None,
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True, temperature=0),
            pooling_params=None,
            arrival_time=self._clock.now,
            lora_request=None,
            cache_salt=credential or None,
            data_parallel_rank=None,
        )

    def admit(self, tenant: str, request: Any, wave: int = 0) -> Job | Refused:
        """The second half: the busy loop takes it."""
        job = Job(request.request_id, tenant, request, self.steps)
        try:
            self.core.add_request(request, wave)
        except Exception as error:
            return Refused(type(error).__name__)
        if self.scheduler.requests.get(job.name) is not request:
            return Refused("finished at once")
        self.jobs[job.name] = job
        return job

    def alive(self, job: Job) -> bool:
        """Whether the scheduler still knows the request."""
        return job.name in self.scheduler.requests

    def abort(self, *jobs: Job) -> None:
        """The clients of these requests have gone away."""
        self.core.abort_requests([job.name for job in jobs])
        for job in jobs:
            job.ended = job.ended or "aborted"

    def schedule(self) -> Any:
        """The first half of a step; None if there is nothing to do, or one must end first."""
        if not self.scheduler.has_requests():
            return None
        scheduled = self.scheduler.schedule()
        self.steps += 1
        self._clock.step(scheduled.total_num_scheduled_tokens)
        for new in scheduled.scheduled_new_reqs:
            job = self.jobs[new.req_id]
            job.first, job.cached = self.steps, new.num_computed_tokens
        names = list(scheduled.num_scheduled_tokens)
        requests = self.scheduler.requests
        sampled = [name for name in names if not requests[name].is_prefill_chunk]
        self._in_flight.append((scheduled, sampled))
        for watcher in self.watchers:
            watcher(scheduled)
        return scheduled

    def finish(self) -> None:
        """The second half: the model has answered for the oldest step in flight."""
        from vllm.v1.outputs import ModelRunnerOutput

        scheduled, sampled = self._in_flight.popleft()
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
                job = self.jobs[output.request_id]
                job.tokens += len(output.new_token_ids)
                if output.finish_reason is not None:
                    job.ended = str(output.finish_reason)

    def step(self) -> Any:
        """One turn of the loop; returns what was scheduled, or None."""
        scheduled = self.schedule()
        if scheduled is not None:
            more = scheduled.total_num_scheduled_tokens > 0 or self.scheduler.has_requests()
            if len(self._in_flight) < self._most_in_flight and more:
                return scheduled
        if self._in_flight:
            self.finish()
        return scheduled

    def _token(self, name: str) -> int:
        """The next token of an answer: the same for the same prompt."""
        request = self.jobs[name].request
        return int((sum(request.prompt_token_ids) + request.num_tokens) % (VOCABULARY - 1)) + 1

    def run(self, most: int = 2000) -> bool:
        """Steps until nothing is left to do; says whether that came within `most` steps."""
        for _ in range(most):
            if not self._in_flight and not self.scheduler.has_requests():
                return True
            self.step()
        return False

    def serve(self, tenant: str, prompt: Sequence[int], output: int = 1, **more: Any) -> int:
        """Runs one request to its end; returns how many of its prompt tokens were cached.

        Raises:
            NotServed: it was refused, or did not end.
        """
        job = self.submit(tenant, prompt, output, **more)
        if isinstance(job, Refused):
            raise NotServed(f"a request was refused ({job.why})")
        for _ in range(2000):
            if not self.alive(job):
                break
            self.step()
        if job.cached is None:
            raise NotServed("a request was never scheduled")
        return job.cached


class NotServed(Exception):
    """An attack's own request, which ought to be served, was not."""
