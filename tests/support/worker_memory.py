"""The workers' KV memory without a model: whose keys and values every slot of every block has."""

from concurrent.futures import Future
from typing import Any

from saltwall_engine.salt_label import Owner, grant_of


class WorkerMemory:
    """Stands for executor and workers: carries out steps and overwriting in the order given."""

    def __init__(self) -> None:
        self.slots: dict[tuple[int, int], Owner] = {}
        """By block and place in it, whose token was written there last."""
        self.overwritten: list[int] = []
        """Blocks in the order in which they were overwritten."""
        self.fails = False
        self.holds_back: list[Future[Any]] | None = None
        """Answers that are not given yet, once this is a list."""

    def collective_rpc(
        self, method: Any, args: tuple[list[int]], non_block: bool = False
    ) -> Future[Any] | None:
        """As vLLM's executors."""
        from saltwall_engine import erasure

        assert method is erasure.overwrite
        if self.fails:
            raise RuntimeError("Worker failed")
        (block_ids,) = args
        assert len(set(block_ids)) == len(block_ids)
        gone = set(block_ids)
        self.slots = {place: owner for place, owner in self.slots.items() if place[0] not in gone}
        self.overwritten += block_ids
        if not non_block:
            return None
        answer: Future[Any] = Future()
        if self.holds_back is None:
            answer.set_result([None])
        else:
            self.holds_back.append(answer)
        return answer

    def attach(self, scheduler: Any) -> None:
        """Carries out the steps of this scheduler from now on."""
        schedule = scheduler.schedule

        def scheduled(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self._step(scheduler, output)
            return output

        scheduler.schedule = scheduled

    def _step(self, scheduler: Any, output: Any) -> None:
        """Every request reads what is computed of it, and writes what is scheduled.

        Raises:
            AssertionError: what it reads is not its own.
        """
        cached = output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        computed |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        for name, new in output.num_scheduled_tokens.items():
            grant = grant_of(scheduler.requests[name].cache_salt)
            assert grant is not None
            for manager in scheduler.kv_cache_manager.coordinator.single_type_managers:
                blocks = manager.req_to_blocks[name]
                for token in range(computed[name] + new):
                    block = blocks[token // manager.block_size]
                    place = block.block_id, token % manager.block_size
                    if block.is_null:
                        continue
                    if token >= computed[name]:
                        self.slots[place] = grant.owner
                    else:
                        assert self.slots.get(place) == grant.owner, (name, token, place)

    def blocks_of(self, owner: Owner) -> set[int]:
        """Blocks in which there is something of an owner's."""
        return {block for (block, _), whose in self.slots.items() if whose == owner}
