"""Attacks on what tells tenants' blocks apart: the salt in their hashes, and whose they are."""

import pickle
import random
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from saltwall_security.bench.bench import Bench
from saltwall_security.bench.census import Census
from saltwall_security.bench.engine import BLOCK, Refused
from saltwall_security.bench.sighting import Prompts, Sighting

VICTIM, STRANGER = "victim", "stranger"


def ownership(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """All block hashes collide, as if SHA-256 were broken; who is served the victim's blocks?"""
    prompts = Prompts(rng)
    engine = bench.engine(asynchronous=asynchronous)
    census = Census(engine)
    engine.authorise(VICTIM, 1, 2)
    engine.serve(VICTIM, prompts.fresh(6), hasher=_colliding)
    theirs = census.count().idle.get(VICTIM, frozenset())
    taken: set[int] = set()
    engine.watchers.append(
        lambda scheduled: taken.update(
            block
            for new in scheduled.scheduled_new_reqs
            if engine.jobs[new.req_id].tenant == STRANGER
            for group in new.block_ids
            for block in group
        )
    )
    hits = engine.serve(STRANGER, prompts.fresh(6), hasher=_colliding)
    shared = len(theirs & taken)
    newer = engine.serve(VICTIM, prompts.fresh(6), generation=2, hasher=_colliding)
    own = engine.serve(VICTIM, prompts.fresh(6), hasher=_colliding)
    return Sighting(
        hits > 0 or shared > 0 or (newer > 0 and bench.dialect.has_tenants),
        f"hit {hits} tokens of the victim's KV, in {shared} of its {len(theirs)} blocks, with "
        f"another prompt whose hashes collide (the victim {own}, and {newer} under a new salt)",
        {"stranger_tokens": hits, "shared_blocks": shared, "own_tokens": own, "new_salt": newer},
        control=own > 0,
    )


def _colliding(request: Any) -> list[bytes]:
    """A block hasher that knows only a block's place in its prompt."""
    have = len(request.block_hashes)
    return [sha256(bytes([i])).digest() for i in range(have, request.num_tokens // BLOCK)]


def salt(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Two tenants send one prompt; which blocks have one hash, also after a common parent?"""
    prompt = Prompts(rng).fresh(8)
    engine = bench.engine(asynchronous=asynchronous)
    requests = []
    for tenant in (VICTIM, STRANGER):
        engine.authorise(tenant, 1)
        raw = engine.raw(tenant, prompt, 1, bench.dialect.credential(tenant, 1))
        requests.append(engine.core.preprocess_add_request(raw)[0])
    own = _equal(*(list(request.block_hashes) for request in requests))
    for request in requests:
        request.block_hashes = [sha256(b"parent").digest()]
    after = _equal(*(engine.core.request_block_hasher(request) for request in requests))
    return Sighting(
        own > 0 or after > 0,
        f"found {own} of 8 blocks of a prompt with one hash for two tenants, and {after} of the 7 "
        "after a first block whose hashes collide",
        {"equal_hashes": own, "equal_hashes_after_collision": after},
    )


def _equal(one: list[bytes], other: list[bytes]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def label(bench: Bench, rng: random.Random, asynchronous: bool) -> Sighting:
    """Looks for salt and credential wherever stock code, workers and events see a request."""
    prompts = Prompts(rng)
    engine = bench.engine(asynchronous=asynchronous)
    told: list[object] = []
    engine.pool.enable_kv_cache_events = True
    engine.scheduler.kv_event_publisher = SimpleNamespace(publish=told.append)
    credential = bench.dialect.credential(VICTIM, 1)
    secret = bench.dialect.salt(VICTIM, 1)
    seen: dict[str, bytes] = {}
    engine.watchers.append(
        lambda scheduled: seen.update(
            {"the worker's copy": _dump(scheduled.scheduled_new_reqs)}
            if scheduled.scheduled_new_reqs
            else {}
        )
    )
    job = engine.submit(VICTIM, prompts.fresh(5), credential=credential)
    if not isinstance(job, Refused):
        seen["Request.cache_salt"] = _dump(job.request.cache_salt)
    engine.run()
    seen["KV events"] = _dump(told)
    forms = [secret, *(form for form in _texts(secret)), (credential or "-").encode()]
    where = [place for place, data in seen.items() if any(form in data for form in forms)]
    return Sighting(
        bool(where),
        f"found the raw salt or credential in {', '.join(where)}"
        if where
        else f"found neither raw salt nor credential in {', '.join(seen)}",
        {"places_searched": len(seen), "places_found": len(where)},
        control=None if len(seen) == 3 else False,
    )


def _dump(value: object) -> bytes:
    """What logs, sockets and files get of it."""
    return repr(value).encode() + str(value).encode() + pickle.dumps(value)


def _texts(secret: bytes) -> list[bytes]:
    encoded = (b64encode(secret), urlsafe_b64encode(secret))
    return [secret.hex().encode(), repr(secret).encode()[2:-1], *(e.rstrip(b"=") for e in encoded)]
