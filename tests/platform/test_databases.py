"""The gateway does the same on every kind of database."""

from datetime import timedelta

from gateway_world import eventually, new_world

from saltwall_tenants import salts, tenants


async def test_requests_changes_and_rotations_work_on_each_database(tmp_path, database_url):
    async with new_world(tmp_path, database_url) as world, world.running():
        assert (await world.chat()).status_code == 200
        await world.settled(requests=1, completion_tokens=3)
        grace = timedelta(0)
        await world.change(
            lambda tx: salts.rotate(tx, world.keyring, "acme", grace=grace, actor="test")
        )

        async def rotated() -> bool:
            await world.chat()
            accepted = world.engine.policy.authorisation.tenants[world.acme.id]
            return world.engine.received[-1].ticket.generation == 2 and accepted == {2}

        await eventually(rotated)
        await world.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))

        async def refused() -> bool:
            return (await world.chat()).status_code == 403

        await eventually(refused, 1)
        await eventually(
            lambda: set(world.engine.policy.authorisation.tenants) == {world.globex.id}
        )
