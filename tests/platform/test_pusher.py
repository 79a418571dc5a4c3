"""Engines learn every change at once, are leased time and no more, and are checked before use."""

import pytest
from gateway_world import eventually
from scripted_engine import ScriptedEngine
from sqlalchemy import update

from saltwall_platform import pusher
from saltwall_platform.stack.doctor import unenforced
from saltwall_tenants import api_keys, quotas, tenants
from saltwall_tenants.models import QuotaRow
from saltwall_tenants.wire import Amount, Capacity, Quota, Quotas, Refusal


async def ready(world) -> dict:
    return (await world.admin.get("/readyz")).json()


async def problem(world) -> str:
    return (await ready(world))["engines"][0]["problem"]


async def told(world, words: str) -> None:
    """Waits until readiness says why the engine is not routable."""

    async def says() -> bool:
        return words in await problem(world)

    await eventually(says)
    assert (await world.admin.get("/readyz")).status_code == 503
    assert (await world.chat()).status_code == 503
    assert await world.metric('saltwall_engine_routable{engine="demo"}') == 0


async def test_an_engine_is_told_who_may_use_it_before_it_is_routable(up):
    authorisation = up.engine.policy.authorisation
    assert authorisation.tenants == {up.acme.id: frozenset({1}), up.globex.id: frozenset({1})}
    assert await up.metric('saltwall_engine_routable{engine="demo"}') == 1
    assert await up.metric('saltwall_policy_age_seconds{engine="demo"}') < 60


async def test_a_suspension_is_pushed_within_a_second(up):
    await up.change(lambda tx: tenants.suspend(tx, "acme", actor="test"))
    await eventually(lambda: set(up.engine.policy.authorisation.tenants) == {up.globex.id}, 1)
    await up.change(lambda tx: tenants.resume(tx, "acme", actor="test"))
    await eventually(lambda: up.acme.id in up.engine.policy.authorisation.tenants, 1)


async def test_a_change_of_keys_alone_is_none_of_the_engines_business(up):
    await eventually(lambda: up.engine.policy.authorisation.epoch > 0)
    pushed, version = len(up.engine.policies), up.gateway.freshness.version
    await up.change(lambda tx: api_keys.create(tx, up.keyring, "acme", actor="test"))
    await eventually(lambda: up.gateway.freshness.version > version)
    assert len(up.engine.policies) == pushed


async def test_the_lease_is_renewed_long_before_it_ends(world):
    async with world.running(lease_seconds=3):
        pushed = len(world.engine.policies)
        assert world.engine.policy.lease.seconds == 3
        await eventually(lambda: len(world.engine.policies) >= pushed + 2, 3)


async def test_without_the_database_the_lease_is_not_renewed(world, monkeypatch):
    async with world.running(lease_seconds=3) as gateway:

        def unplugged():
            raise OSError("unplugged")

        monkeypatch.setattr(gateway._database, "snapshot", unplugged)
        pushed = len(world.engine.policies)
        age = 'saltwall_policy_age_seconds{engine="demo"}'

        async def old() -> bool:
            return await world.metric(age) > 2

        await eventually(old)
        assert len(world.engine.policies) <= pushed + 1
        monkeypatch.undo()
        await eventually(lambda: len(world.engine.policies) >= pushed + 2)


async def test_an_engine_that_was_started_again_gets_its_policy_at_once(up):
    pushed = len(up.engine.policies)
    up.engine.policy = None
    await eventually(lambda: len(up.engine.policies) > pushed, pusher.PROBE_S + 1)
    assert (await up.chat()).status_code == 200


async def test_a_request_that_finds_the_policy_gone_is_served_all_the_same(world, monkeypatch):
    """Once started no probe comes first: the request itself finds out and has it pushed."""
    monkeypatch.setattr(pusher, "PROBE_S", 3600)
    async with world.running(lease_seconds=3600):
        assert (await world.chat()).status_code == 200  # by now the start's own probes are over
        pushed = len(world.engine.policies)
        world.engine.policy = None
        assert (await world.chat()).status_code == 200
        assert len(world.engine.policies) == pushed + 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "other"}, "it is 'other', not 'demo'"),
        ({"algorithm": "sha256"}, "its block hash is 'sha256'"),
        ({"vector_digest": "0" * 64}, "differ from the published test vectors"),
        ({"vllm": "0.31.0"}, "its vLLM 0.31.0 is outside"),
    ],
)
async def test_an_engine_that_hashes_otherwise_is_never_routed_to(
    world, monkeypatch, change, words
):
    monkeypatch.setattr(pusher, "RECHECK_S", 0.1)
    good = world.engine.attestation
    world.engine.attest(**change)
    async with world.running(routable=False):
        await told(world, words)
        assert not world.engine.policies
        world.engine.attestation = good

        async def served() -> bool:
            return (await world.chat()).status_code == 200

        await eventually(served)


async def test_an_attestation_is_checked_again_after_every_reconnect(up):
    await up.engine.stop()
    up.engine.attest(algorithm="xxhash")
    await up.engine.start()
    await told(up, "xxhash")
    assert not up.engine.received


async def test_an_attestation_is_checked_again_when_the_policy_was_lost(up):
    up.engine.attest(algorithm="xxhash")
    up.engine.policy = None
    await told(up, "xxhash")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {}), "does not accept our control secret"),
        ((404, {}), "no Saltwall plugin"),
        ((400, {}), "control routes answer 400"),
    ],
)
async def test_a_refused_push_says_what_to_do(world, answer, words):
    world.engine.push_answers = [answer] * 100
    async with world.running(routable=False):
        await told(world, words)
        world.engine.push_answers = []

        async def served() -> bool:
            return (await world.chat()).status_code == 200

        await eventually(served)


async def test_a_stale_push_is_read_and_sent_again(up):
    pushed = len(up.engine.policies)
    up.engine.push_answers = [(409, {})]
    await up.change(lambda tx: tenants.suspend(tx, "globex", actor="test"))
    await eventually(lambda: len(up.engine.policies) > pushed)
    assert set(up.engine.policy.authorisation.tenants) == {up.acme.id}
    assert await up.metric('saltwall_alarms_total{kind="policy_stale"}') == 1
    assert (await up.chat()).status_code == 200


async def test_an_engine_that_knows_better_than_the_database_is_not_routed_to(up):
    up.engine.push_answers = [(409, {})] * 100
    await up.change(lambda tx: tenants.suspend(tx, "globex", actor="test"))
    await told(up, "was that restored from a backup")
    assert await up.metric('saltwall_alarms_total{kind="policy_stale"}') >= 2


async def test_an_engine_that_is_not_ready_is_not_routed_to(up):
    for reason in ("not_ready", "engine is dead"):
        up.engine.health = reason
        await told(up, reason)
    up.engine.health = ""

    async def served() -> bool:
        return (await up.chat()).status_code == 200

    await eventually(served)


async def test_an_expired_lease_is_renewed(up):
    pushed = len(up.engine.policies)
    up.engine.health = Refusal.LEASE_EXPIRED
    await eventually(lambda: len(up.engine.policies) > pushed)


async def test_a_wrong_control_secret_is_named(world):
    object.__setattr__(world.engine.keys, "control", "x" * 43)
    async with world.running(routable=False):
        await told(world, "does not accept our control secret")


async def test_each_engine_has_its_own_policy_and_state(world):
    other_keys = world.keyring.ticket_root.engine_keys("other")
    other = ScriptedEngine(other_keys, world.engine.script)
    await other.start()
    engines = [
        {"name": "demo", "url": world.engine.url},
        {"name": "other", "url": other.url},
    ]
    async with world.running(engines=engines):
        assert world.engine.policy.name == "demo"
        assert other.policy.name == "other"
        assert (await world.chat(model="other")).status_code == 200
        assert len(other.received) == 1
        await other.stop()

        async def one_is_down() -> bool:
            return [e["routable"] for e in (await ready(world))["engines"]] == [True, False]

        await eventually(one_is_down)
        assert (await ready(world))["ready"]
        assert (await world.chat()).status_code == 200
        assert (await world.chat(model="other")).status_code == 503


QUOTAS_CURRENT = 'saltwall_engine_quotas_current{engine="demo"}'
QUOTAS_REFUSED = 'saltwall_alarms_total{kind="quotas_refused"}'


async def reserve(world, amount: str, tenant: str = "acme") -> None:
    """Stores a quota as the command line would without asking an engine."""
    quota = Quota(Amount.parse(amount))
    await world.change(lambda tx: quotas.set_quota(tx, tenant, quota, actor="test"))


def reserves(world) -> dict:
    """The reserves that the engine enforces."""
    return {t: str(q.reserve) for t, q in world.engine.quotas.tenants.items()}


async def told_so(world, line: str, value: float) -> None:
    """Waits until a metric has a value."""

    async def has() -> bool:
        return await world.metric(line) == value

    await eventually(has)


async def test_a_quota_is_pushed_within_a_second(up):
    """Set, changed and cleared; each push carries who may use the engine too."""
    await reserve(up, "30%")
    await eventually(lambda: reserves(up) == {up.acme.id: "30%"}, 1)
    await reserve(up, "20%")
    await eventually(lambda: reserves(up) == {up.acme.id: "20%"}, 1)
    await up.change(lambda tx: quotas.clear_quota(tx, "acme", actor="test"))
    await eventually(lambda: reserves(up) == {}, 1)
    assert set(up.engine.policy.authorisation.tenants) == {up.acme.id, up.globex.id}
    await told_so(up, QUOTAS_CURRENT, 1)
    assert await up.metric(QUOTAS_REFUSED) == 0


async def test_refused_quotas_hold_up_neither_lease_nor_suspension(world):
    """More than the engine has: it keeps its quotas, is served as before, and an alarm says so."""
    async with world.running(lease_seconds=3):
        await reserve(world, "200 blocks")
        await eventually(lambda: reserves(world) == {world.acme.id: "200 blocks"})
        await reserve(world, "121 blocks", "globex")
        await told_so(world, QUOTAS_CURRENT, 0)
        assert await world.metric(QUOTAS_REFUSED) >= 1
        assert reserves(world) == {world.acme.id: "200 blocks"}
        document = await ready(world)
        assert document["ready"]
        (warning,) = unenforced(document["engines"])
        assert (warning.level, warning.subject) == ("warn", "quotas")
        assert "321" in warning.message
        pushed = len(world.engine.policies)
        await eventually(lambda: len(world.engine.policies) >= pushed + 2, 5)
        assert (await world.chat()).status_code == 200
        await world.change(lambda tx: tenants.suspend(tx, "globex", actor="test"))
        await eventually(
            lambda: set(world.engine.policy.authorisation.tenants) == {world.acme.id}, 1
        )
        await reserve(world, "120 blocks", "globex")
        await told_so(world, QUOTAS_CURRENT, 1)


async def test_a_stored_quota_that_cannot_be_read_holds_up_nothing(up):
    """The rest of the policy is pushed, the lease too, and the alarm names the cause."""
    await reserve(up, "30%")
    await eventually(lambda: reserves(up) == {up.acme.id: "30%"})

    async def spoil(tx):
        await tx.execute(update(QuotaRow).values(weight="heavy"))
        await tenants.suspend(tx, "globex", actor="test")

    await up.change(spoil)
    await eventually(lambda: set(up.engine.policy.authorisation.tenants) == {up.acme.id}, 1)
    await told_so(up, QUOTAS_CURRENT, 0)
    assert reserves(up) == {up.acme.id: "30%"}
    assert (await up.chat()).status_code == 200


async def test_an_engine_of_the_release_before_is_sent_no_quotas(world):
    """It would refuse a document with an unknown section; it is served, and the alarm is raised."""
    world.engine.attest(capacity=None)
    async with world.running():
        assert world.engine.policy.quotas is None
        assert await world.metric(QUOTAS_REFUSED) == 0
        await reserve(world, "30%")
        await told_so(world, QUOTAS_CURRENT, 0)
        assert await world.metric(QUOTAS_REFUSED) >= 1
        assert world.engine.policy.quotas is None
        assert (await world.chat()).status_code == 200


async def test_an_upgraded_engine_gets_the_quotas_at_once(world):
    """From the release before to this one, with the quotas that were stored meanwhile."""
    world.engine.attest(capacity=None)
    async with world.running():
        await reserve(world, "30%")
        await told_so(world, QUOTAS_CURRENT, 0)
        await world.engine.stop()
        world.engine.attest(capacity=Capacity(320, 32))
        await world.engine.start()
        await eventually(lambda: world.engine.quotas and reserves(world) == {world.acme.id: "30%"})
        await told_so(world, QUOTAS_CURRENT, 1)


async def test_a_stale_quota_section_is_read_and_sent_again(up):
    """Another gateway was faster: what it has read is read, and there is no alarm."""
    await reserve(up, "30%")
    await eventually(lambda: up.engine.quotas.tenants)
    newest, pushed = up.engine.quotas, len(up.engine.policies)
    stale = {"quotas": {"refused": "stale_epoch: 1 after 2", "reason": Refusal.STALE_EPOCH}}
    up.engine.push_answers = [(200, stale)]
    await up.change(lambda tx: tenants.suspend(tx, "globex", actor="test"))
    await eventually(lambda: len(up.engine.policies) > pushed)
    assert up.engine.quotas == newest
    assert await up.metric(QUOTAS_REFUSED) == 0


async def test_an_engine_that_holds_newer_quotas_than_the_database_is_an_alarm(up):
    """A restored database: any change of a quota moves it on."""
    ahead = Quotas(2**61, {})
    up.engine.quotas = ahead
    await reserve(up, "30%")
    await told_so(up, QUOTAS_CURRENT, 0)
    assert up.engine.quotas == ahead
    assert (await up.chat()).status_code == 200


@pytest.mark.parametrize("answer", [{}, {"quotas": None}, {"quotas": 7}, []])
async def test_an_engine_that_is_silent_about_quotas_is_an_alarm(up, answer):
    """What is not confirmed is not enforced, as far as anybody knows."""
    up.engine.push_answers = [(200, answer)]
    await reserve(up, "30%")
    await told_so(up, QUOTAS_REFUSED, 1)
