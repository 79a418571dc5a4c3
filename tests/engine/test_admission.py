"""The engine core admits a request only on a genuine ticket that the policy allows now."""

import time
from typing import Any
from uuid import UUID

import pytest
from bare_core import ACME, BLOCK, GLOBEX, grant

from saltwall_tenants.wire import EngineKeys, Ticket, TicketRoot, make_ticket, salt_label

TOKENS = list(range(BLOCK * 2))


def core_request(cache_salt: Any, request_id: str = "r", **fields: Any) -> Any:
    """What the API process sends to the engine core."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    return EngineCoreRequest(
        **{
            "request_id": request_id,
            "prompt_token_ids": TOKENS,
            "mm_features": None,
            "sampling_params": SamplingParams(max_tokens=1),
            "pooling_params": None,
            "arrival_time": 0.0,
            "lora_request": None,
            "cache_salt": cache_salt,
            "data_parallel_rank": None,
        }
        | fields
    )


def ticket(keys: EngineKeys, tenant: UUID = ACME, generation: int = 1, age: int = 0) -> str:
    """A ticket sealed `age` seconds ago."""
    content = Ticket(tenant, generation, b"s" * 32, int(time.time()) - age)
    return make_ticket(1, keys.tickets[1], keys.name, content)


def preprocess(core: Any, request: Any) -> Any:
    """The engine core's own preprocessing, hooked."""
    from saltwall_engine import engine_core

    return engine_core.preprocess_add_request(core, request)[0]


def add(core: Any, request: Any) -> None:
    """The engine core's own admission, hooked, on a core as bare as ours."""
    from saltwall_engine import engine_core

    core.get_supported_tasks = lambda: ("generate",)
    engine_core.add_request(core, request)


def test_a_ticket_becomes_a_label_before_the_request_exists(
    make_core: Any, engine_keys: EngineKeys
) -> None:
    """The request is hashed with the ticket's salt, and carries its label and nothing else."""
    request = preprocess(make_core(), core_request(ticket(engine_keys)))
    assert request.cache_salt == salt_label(b"s" * 32)
    assert len(request.block_hashes) == 2
    assert all("sw1." not in str(value) and value != b"s" * 32 for value in vars(request).values())


@pytest.mark.parametrize(
    "cache_salt",
    [
        None,
        "",
        "x" * 118,
        "sw1.",
        "sw1." + "A" * 114,
        "\0" * 118,
        "é" * 118,
        "s" * 1_000_000,
        7,
        {},
    ],
    ids=str,
)
def test_what_is_no_ticket_is_refused_and_nothing_dies(make_core: Any, cache_salt: Any) -> None:
    """Whatever stands in `cache_salt`, preprocessing raises vLLM's own validation error."""
    from vllm.exceptions import VLLMValidationError

    core = make_core()
    with pytest.raises(VLLMValidationError):
        preprocess(core, core_request(cache_salt))
    assert core.serve(core.request(TOKENS, grant())) == 0


def test_a_ticket_for_another_engine_is_refused(make_core: Any) -> None:
    """The audience is authenticated: another model's ticket does not open."""
    from vllm.exceptions import VLLMValidationError

    other = TicketRoot(b"r" * 32).engine_keys("other-model")
    with pytest.raises(VLLMValidationError, match="forged"):
        preprocess(make_core(), core_request(ticket(other)))


def test_a_ticket_may_be_as_old_as_the_longest_request(
    make_core: Any, engine_keys: EngineKeys
) -> None:
    """Within an hour a ticket serves beams and tool loops; after it, nothing."""
    from vllm.exceptions import VLLMValidationError

    core = make_core()
    preprocess(core, core_request(ticket(engine_keys, age=3500)))
    with pytest.raises(VLLMValidationError, match="expired"):
        preprocess(core, core_request(ticket(engine_keys, age=3700)))


def test_streaming_input_sessions_are_refused(make_core: Any, engine_keys: EngineKeys) -> None:
    """A session that could change its salt midway does not start."""
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="streaming input"):
        preprocess(make_core(), core_request(ticket(engine_keys), resumable=True))


@pytest.mark.parametrize(
    ("tenant", "generation", "refusal"),
    [(UUID(int=99), 1, "unknown_tenant"), (ACME, 7, "unknown_tenant")],
)
def test_the_policy_is_checked_again_just_before_admission(
    make_core: Any, engine_keys: EngineKeys, tenant: UUID, generation: int, refusal: str
) -> None:
    """A genuine ticket of an unknown tenant or generation is finished, never raised, never run."""
    core = make_core()
    add(core, preprocess(core, core_request(ticket(engine_keys, tenant, generation))))
    assert core.refused == ["r"]
    assert core.scheduler.requests == {}
    assert core.scheduler.admission.refusals == {refusal: 1}


def test_without_a_policy_nothing_is_admitted(make_core: Any, engine_keys: EngineKeys) -> None:
    """A fresh engine admits nobody."""
    from saltwall_engine.admission import Admission

    core = make_core()
    core.scheduler.admission = Admission(engine_keys)
    add(core, preprocess(core, core_request(ticket(engine_keys))))
    assert core.refused == ["r"]


def test_after_the_lease_nothing_is_admitted(make_core: Any, engine_keys: EngineKeys) -> None:
    """An engine that no gateway talks to stops taking work, and goes on when one returns."""
    core = make_core()
    core.scheduler.admission.renew(-1)
    add(core, preprocess(core, core_request(ticket(engine_keys), "late")))
    assert core.refused == ["late"]
    core.scheduler.admission.renew(60)
    add(core, preprocess(core, core_request(ticket(engine_keys), "again")))
    assert list(core.scheduler.requests) == ["again"]


def test_a_duplicate_request_id_is_finished_not_raised(
    make_core: Any, engine_keys: EngineKeys
) -> None:
    """Stock's scheduler asserts here, which would end the engine."""
    core = make_core()
    for _ in range(2):
        add(core, preprocess(core, core_request(ticket(engine_keys), "same")))
    assert core.refused == ["same"]
    assert list(core.scheduler.requests) == ["same"]


async def test_revocation_aborts_queued_and_running_requests_of_that_owner_alone(
    make_core: Any, engine_keys: EngineKeys
) -> None:
    """Losing generation 1 ends acme's old requests at once; its new and globex's go on."""
    core = make_core()
    for name, tenant, generation in (
        ("running", ACME, 1),
        ("new", ACME, 2),
        ("globex", GLOBEX, 1),
    ):
        add(core, preprocess(core, core_request(ticket(engine_keys, tenant, generation), name)))
    core.scheduler.schedule()
    add(core, preprocess(core, core_request(ticket(engine_keys, ACME, 1), "queued")))
    lost = await core.call_utility_async("saltwall_authorise", [[ACME.hex, [2]]])
    assert lost == [[ACME.hex, 1]]
    assert sorted(core.refused) == ["queued", "running"]
    assert sorted(core.scheduler.requests) == ["globex", "new"]
