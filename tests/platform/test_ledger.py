"""What was used is written once, whatever the database does meanwhile."""

import asyncio

from gateway_world import answer_like_vllm, eventually
from vllm_shapes import PROMPT_TOKENS

from saltwall_platform.ledger import Ledger
from saltwall_platform.metrics import Metrics
from saltwall_tenants import api_keys
from saltwall_tenants.clock import utc_now
from saltwall_tenants.usage import UsageRecord


def record(world, request_id: str) -> UsageRecord:
    return UsageRecord(
        request_id=request_id,
        tenant_id=world.acme.id,
        key_id=world.acme_key.record.public_id,
        model="demo",
        route="/v1/completions",
        prompt_tokens=1,
        cached_tokens=0,
        completion_tokens=2,
        status=200,
        started_at=utc_now(),
        duration_s=0.1,
    )


async def test_what_cannot_be_written_waits_and_counts_once(world, monkeypatch):
    ledger = Ledger(world.database, Metrics())

    attempts = []

    def unplugged():
        attempts.append(1)
        raise OSError("unplugged")

    monkeypatch.setattr(world.database, "transaction", unplugged)
    monkeypatch.setattr("saltwall_platform.ledger.RETRY_S", 0.05)
    writing = asyncio.create_task(ledger.run())
    for number in range(3):
        ledger.settle(record(world, str(number)))
    ledger.settle(record(world, "0"))
    await eventually(lambda: len(attempts) >= 3)
    monkeypatch.undo()
    await world.settled(requests=3, prompt_tokens=3, completion_tokens=6)
    writing.cancel()


async def test_what_is_left_is_written_at_the_end(world):
    ledger = Ledger(world.database, Metrics())
    for number in range(1200):
        ledger.settle(record(world, str(number)))
    await ledger.close()
    assert (await world.used()).requests == 1200


async def test_the_usage_of_the_last_requests_survives_a_shutdown(world):
    async with world.running():
        await asyncio.gather(*(world.chat() for _ in range(10)))
    assert (await world.used()).requests == 10


async def test_a_keys_last_use_is_noted(up):
    before = utc_now()
    await up.chat()
    public_id = up.acme_key.record.public_id

    async def noted() -> bool:
        async with up.database.snapshot() as tx:
            keys = await api_keys.list_for(tx, "acme")
        used = {key.public_id: key.last_used_at for key in keys}[public_id]
        return used is not None and used >= before

    await eventually(noted)


async def test_the_counters_agree_with_the_ledger(up):
    up.engine.script = answer_like_vllm
    await up.chat()
    await up.settled(requests=1)
    for kind, value in (("prompt", PROMPT_TOKENS), ("cached", 4), ("completion", 3)):
        name = f'saltwall_tokens_total{{kind="{kind}",model="demo"}}'
        assert await up.metric(name) == value
    assert await up.metric("saltwall_usage_unsettled") == 0


async def test_what_never_reached_an_engine_is_not_charged(up):
    await up.chat(model="absent")
    await up.chat(n=1000)
    await up.chat("nobody")
    await up.chat()
    await up.settled(requests=1)
