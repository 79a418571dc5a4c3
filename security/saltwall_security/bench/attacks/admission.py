"""Attacks on who may use the engine, past the API process: by what EngineCore itself refuses."""

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.census import Census
from saltwall_security.bench.engine import Job, Refused
from saltwall_security.bench.saltwall import Saltwall
from saltwall_security.bench.sighting import NOT_APPLICABLE, Prompts, Sighting

TENANT, OTHER = "tenant", "other"


def ticket(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Requests whose ticket is absent, forged, damaged, moved, outdated, or not in the policy."""
    dialect = bench.dialect
    if not isinstance(dialect, Saltwall):
        return NOT_APPLICABLE
    prompts = Prompts(rng)
    engine = bench.engine(asynchronous=asynchronous)
    genuine = engine.submit(TENANT, prompts.fresh(2))
    bad = _bad_tickets(dialect, genuine, rng)
    accepted = []
    for name, credential in bad.items():
        if not isinstance(engine.submit(TENANT, prompts.fresh(2), credential=credential), Refused):
            accepted.append(name)
    finished = engine.run()
    dialect.lapse(engine.core)
    bench.clock.step(0)
    if not isinstance(engine.submit(TENANT, prompts.fresh(2)), Refused):
        accepted.append("a genuine one after the lease")
    return Sighting(
        bool(accepted),
        f"got in with {len(accepted)} of {len(bad) + 1} bad tickets"
        + (f" ({', '.join(accepted[:5])})" if accepted else "")
        + ", and with a genuine one",
        {"bad_tickets": len(bad) + 1, "accepted": len(accepted)},
        control=isinstance(genuine, Job) and genuine.tokens == 1 and finished,
    )


def _bad_tickets(dialect: Saltwall, job: Job | Refused, rng: random.Random) -> dict[str, Any]:
    """By what is wrong with each."""
    good = dialect.ticket(TENANT, 1)
    label = str(job.request.cache_salt) if isinstance(job, Job) else "label"
    bad: dict[str, Any] = {
        "none": "",
        "a bare text": "anything",
        "the label of a request that was let in": label,
        "another key": dialect.ticket(TENANT, 1, key=bytes(32)),
        "an unknown key id": dialect.ticket(TENANT, 1, key_id=7),
        "another engine's": dialect.ticket(TENANT, 1, name="another"),
        "an hour old": dialect.ticket(TENANT, 1, age_s=3700),
        "of the future": dialect.ticket(TENANT, 1, age_s=-120),
        "a generation that is not allowed": dialect.ticket(TENANT, 2),
        "an unknown tenant": dialect.ticket("nobody", 1),
        "cut": good[:-1],
        "trailed": good + "A",
        "another version": "sw2." + good[4:],
    }
    sealed = urlsafe_b64decode(good[4:] + "=" * (-len(good[4:]) % 4))
    for _ in range(12):
        bit = rng.randrange(8 * len(sealed))
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        bad[f"bit {bit} flipped"] = "sw1." + urlsafe_b64encode(damaged).rstrip(b"=").decode()
    return bad


def generation(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Requests under a salt that has been replaced and is no longer allowed."""
    if not bench.dialect.has_tenants:
        return NOT_APPLICABLE
    prompts = Prompts(rng)
    engine = bench.engine(asynchronous=asynchronous)
    prompt = prompts.fresh(4)
    engine.serve(TENANT, prompt)
    engine.authorise(TENANT, 1, 2)
    raw = engine.raw(TENANT, prompt, 1, bench.dialect.credential(TENANT, 1))
    on_the_way = engine.core.preprocess_add_request(raw)[0]
    engine.authorise(TENANT, 2)
    late = engine.admit(TENANT, on_the_way)
    old = engine.submit(TENANT, prompt, generation=1)
    new = engine.submit(TENANT, prompt, generation=2)
    engine.run()
    accepted = sum(isinstance(job, Job) for job in (late, old))
    hits = (new.cached or 0) if isinstance(new, Job) else 0
    return Sighting(
        accepted > 0 or hits > 0,
        f"got in {accepted} of 2 times under the old salt (sent after the change, and on the way "
        f"during it), and under the new one hit {hits} tokens that the old one had cached",
        {"accepted": accepted, "hit_tokens": hits},
        control=isinstance(new, Job) and new.tokens == 1,
    )


def revocation(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """A tenant is revoked while its requests run and wait; what goes on, and what stays cached?"""
    if not bench.dialect.has_tenants:
        return NOT_APPLICABLE
    prompts = Prompts(rng)
    engine = bench.engine(slots=4, asynchronous=asynchronous)
    census = Census(engine)
    kept = prompts.fresh(4)
    engine.serve(TENANT, kept)
    mine = [engine.submit(TENANT, prompts.fresh(3), 60) for _ in range(5)]
    other = engine.submit(OTHER, prompts.fresh(3), 60)
    for _ in range(20):
        engine.step()
    before = _tokens(mine)
    engine.authorise(TENANT)
    alive = sum(isinstance(job, Job) and engine.alive(job) for job in mine)
    engine.run()
    went_on = _tokens(mine) - before
    left = len(census.count().cached(TENANT))
    refused = isinstance(engine.submit(TENANT, kept), Refused)
    engine.authorise(TENANT, 1)
    hits = engine.serve(TENANT, kept)
    return Sighting(
        alive > 0 or went_on > 0 or left > 0 or not refused or hits > 0,
        f"had {alive} of 5 requests alive after the revocation, which got {went_on} tokens more, "
        f"and {left} blocks cached; allowed again, it hit {hits} tokens from before",
        {"alive": alive, "tokens_after": went_on, "cached_blocks": left, "hit_tokens": hits},
        control=before > 0 and isinstance(other, Job) and other.tokens == 60,
    )


def _tokens(jobs: list[Job | Refused]) -> int:
    return sum(job.tokens for job in jobs if isinstance(job, Job))
