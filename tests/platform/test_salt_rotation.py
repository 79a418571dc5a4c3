"""A salt's next generation is used once every engine knows it, and the last one ends in time."""

import asyncio
from datetime import timedelta

from gateway_world import WORDS, answer_like_vllm, eventually
from scripted_engine import ScriptedEngine
from vllm_shapes import chat_events

from saltwall_platform.gateway import Gateway
from saltwall_tenants import audit, salts


async def rotate(world, grace_s: float = 60) -> None:
    grace = timedelta(seconds=grace_s)
    await world.change(
        lambda tx: salts.rotate(tx, world.keyring, "acme", grace=grace, actor="test")
    )


async def statuses(world) -> list[str]:
    async with world.database.snapshot() as tx:
        return [generation.status for generation in await salts.list_for(tx, "acme")]


def accepted(world, engine=None) -> frozenset[int]:
    return (engine or world.engine).policy.authorisation.tenants[world.acme.id]


async def becomes(world, *expected: str, within_s: float = 5) -> None:
    async def is_so() -> bool:
        return await statuses(world) == list(expected)

    await eventually(is_so, within_s)


async def test_a_rotation_completes_by_itself(up):
    await up.chat()
    await rotate(up)
    await becomes(up, "retiring", "current")
    assert accepted(up) == {1, 2}

    async def new_salt() -> bool:
        await up.chat()
        return up.engine.received[-1].ticket.generation == 2

    await eventually(new_salt, 1)
    old, new = up.engine.received[0].ticket, up.engine.received[-1].ticket
    assert old.salt != new.salt
    async with up.database.snapshot() as tx:
        acts = {event.action: event.actor for event in await audit.list_events(tx)}
    assert acts["salt.promote"] == "gateway"


async def test_the_old_generation_is_destroyed_when_its_grace_ends(up):
    await rotate(up, grace_s=0)
    await becomes(up, "revoked", "current")
    await eventually(lambda: accepted(up) == {2}, 2)


async def test_another_tenants_salt_stays(up):
    await up.chat(up.globex_key)
    await rotate(up)
    await becomes(up, "retiring", "current")
    await up.chat(up.globex_key)
    first, last = up.engine.received[0].ticket, up.engine.received[-1].ticket
    assert (first.generation, first.salt) == (last.generation, last.salt)


async def test_nothing_is_promoted_before_every_routable_engine_knows_it(world):
    slow = ScriptedEngine(world.engine.keys, answer_like_vllm)
    await slow.start()
    engines = [{"name": "demo", "url": engine.url} for engine in (world.engine, slow)]
    async with world.running(engines=engines) as gateway:
        slow.may_answer_pushes.clear()
        await rotate(world)
        await eventually(lambda: accepted(world) == {1, 2})
        assert all(replica.routable for replica in gateway.replicas)
        await world.chat()
        assert world.engine.received[0].ticket.generation == 1
        assert await statuses(world) == ["current", "pending"]
        slow.may_answer_pushes.set()
        await becomes(world, "retiring", "current")
        assert accepted(world, slow) >= {1, 2}
    await slow.stop()


async def test_nothing_is_promoted_while_no_engine_is_routable(world):
    await world.engine.stop()
    async with world.running(routable=False) as gateway:
        version = gateway.freshness.version
        await rotate(world)
        await eventually(lambda: gateway.freshness.version > version)
        assert await statuses(world) == ["current", "pending"]
        await world.engine.start()
        await becomes(world, "retiring", "current")
        assert accepted(world) >= {1, 2}


async def test_a_request_that_runs_during_a_rotation_ends_well(up):
    go_on = asyncio.Event()

    async def script(connection, request):
        events = chat_events(request.body, WORDS)
        await connection.begin_stream()
        await connection.chunk(events[0])
        await go_on.wait()
        await connection.chunk(b"".join(events[1:]))
        await connection.end()

    up.engine.script = script
    async with up.streaming() as response:
        await rotate(up)
        await becomes(up, "retiring", "current")
        go_on.set()
        assert (await response.aread()).endswith(b"data: [DONE]\n\n")


async def test_two_gateways_carry_one_rotation_through_once(world):
    async with world.running():
        second = Gateway(world.configure())
        serving = asyncio.create_task(second.serve())
        try:
            await eventually(lambda: all(r.routable for r in second.replicas))
            await rotate(world)
            await becomes(world, "retiring", "current")
        finally:
            second.stop()
            await serving
        async with world.database.snapshot() as tx:
            acts = [event.action for event in await audit.list_events(tx)]
        assert acts.count("salt.promote") == 1
