"""The isolation suite finds every leak that a server is given, and none where there is none."""

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from salted_server import (
    BLOCK,
    TENANTS,
    TOKENS_PER_WORD,
    Asked,
    Refused,
    SaltedServer,
    apart,
    of_the_caller,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from saltwall_security.check import Check, Verdict, worst
from saltwall_security.suite import Audit
from saltwall_security.suites.isolation import PARTS, SUITE, further, later
from saltwall_security.suites.isolation.bench import Bench, levelled, set_up
from saltwall_security.suites.isolation.owner_check import owner_check
from saltwall_security.suites.isolation.routes import ROUTES
from saltwall_security.suites.isolation.trial import Outcome, Trial, Way

ABSENT = ("adapters", "further tenants")
ACROSS = {"scopes-across", "scopes-swapped"}
HELD, FAILED = Verdict.HELD, Verdict.FAILED
INCONCLUSIVE, NOT_TESTED = Verdict.INCONCLUSIVE, Verdict.NOT_TESTED


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes later comes at once."""
    monkeypatch.setattr(later, "LATER_S", 0.0)


async def audited(server: SaltedServer, *salts: str, seconds: float = 60) -> Mapping[str, Check]:
    """The suite's checks on a running server, by name."""
    async with server.running(), Audit(server.target(*salts), "1", seconds, _nobody) as audit:
        return _by_name([check async for check in SUITE.run(audit)])


async def examined(
    server: SaltedServer, part: str, *salts: str, names: Sequence[str] = tuple(TENANTS.values())
) -> Mapping[str, Check]:
    """The checks of one part of the suite; `names` are what the auditor calls the tenants."""
    async with server.running():
        target = server.target(*salts)
        tenants = [replace(t, name=name) for t, name in zip(target.tenants, names, strict=True)]
        async with Audit(replace(target, tenants=tenants), "1", 60, _nobody) as audit:
            bench = await set_up(audit)
            assert isinstance(bench, Bench)
            return _by_name(await PARTS[part](bench))


def _by_name(checks: Sequence[Check]) -> Mapping[str, Check]:
    names = [check.id.removeprefix("isolation/") for check in checks]
    assert len(set(names)) == len(names)
    return dict(zip(names, checks, strict=True))


def _nobody(line: str) -> None:
    """Hears progress and forgets it."""


def failed(checks: Mapping[str, Check]) -> set[str]:
    """The names of those that failed."""
    return {name for name, check in checks.items() if check.verdict is FAILED}


async def test_a_divided_cache_holds_on_every_route_and_in_every_disguise() -> None:
    """Nothing fails, nothing is in doubt, and routes that are not there are not tested."""
    checks = await audited(SaltedServer())
    assert {name: c.seen for name, c in checks.items() if c.verdict not in (HELD, NOT_TESTED)} == {}
    untested = {name for name, check in checks.items() if check.verdict is NOT_TESTED}
    offered = {"chat", "completions", "token-ids"}
    assert untested == {r.name for r in ROUTES} - offered | {"adapters", "further", "owner-check"}
    assert worst(check.verdict for check in checks.values()) is HELD


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("what another writes as its salt", {"known-salt"}),
        ("routes", {"chat", "completions", "token-ids"}),
        ("several choices", {"choices"}),
        ("scopes that look alike", ACROSS),
        ("headers", {"headers"}),
    ],
)
async def test_a_shared_cache_fails_everywhere_with_numbers(part: str, found: set[str]) -> None:
    """Stock vLLM without salts: each check that can be made shows what the stranger hit."""
    checks = await examined(SaltedServer(of_the_caller, keyed=False), part)
    assert failed(checks) == found
    for name in found - ACROSS:
        assert int(checks[name].figures["cached_for_stranger_max_tokens"] or 0) >= 2 * BLOCK
        assert "tokens" in checks[name].seen


class TellsInChat(SaltedServer):
    """As many do: usage says how many tokens were cached in answers of the chat route alone."""

    def _answer(self, body: Mapping[str, Any], cached: int, tokens: int) -> Response:
        self.shown = "messages" in body
        return super()._answer(body, cached, tokens)


async def test_a_shared_cache_fails_where_one_route_alone_tells_of_it() -> None:
    """Attacks go where they can be seen."""
    checks = await examined(TellsInChat(of_the_caller, keyed=False), "routes")
    assert failed(checks) == {"chat"}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (SaltedServer(shown=False), "on chat no repeat of up to"),
        (SaltedServer(caches=False), "on completions no repeat of up to"),
        (SaltedServer(routes=()), "on completions no answer to the spy counts its tokens (404)"),
    ],
)
async def test_where_no_route_tells_of_it_all_is_in_doubt(server: SaltedServer, said: str) -> None:
    """And it says what each of them lacks."""
    checks = await audited(server)
    assert {check.verdict for check in checks.values()} == {INCONCLUSIVE}
    assert said in checks["chat"].seen


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("what another writes as its salt", {"known-salt"}),
        ("routes", set()),
        ("scopes that look alike", set()),
        ("what comes twice", {"doubled"}),
    ],
)
async def test_salts_that_callers_write_fail_for_who_knows_them_only(
    part: str, found: set[str]
) -> None:
    """Stock vLLM with a salt a tenant: routes hold, and the salt of another opens its cache."""
    server = SaltedServer(of_the_caller, keyed=False)
    checks = await examined(server, part, "acme-salt", "globex-salt")
    assert failed(checks) == found
    assert {check.verdict for check in checks.values()} <= {HELD, FAILED, NOT_TESTED}


def on_one_route(asked: Asked) -> object:
    """The salt is forgotten where plain completions are streamed."""
    forgotten = asked.route == "completions" and asked.body.get("stream")
    return None if forgotten else apart(asked)


def by_prompt_cache_key(asked: Asked) -> object:
    """A client's key for its cache is taken as one for everybody's."""
    return asked.body.get("prompt_cache_key") or apart(asked)


def by_header(asked: Asked) -> object:
    """A header says who it is."""
    tenant, salt = apart(asked)  # type: ignore[misc]
    return asked.headers.get("x-tenant", tenant), salt


def by_xargs(asked: Asked) -> object:
    """vLLM's other way in for a salt is left open."""
    extra = asked.body.get("vllm_xargs") or {}
    tenant, salt = apart(asked)  # type: ignore[misc]
    return extra.get("cache_salt", tenant), salt


def by_request_id(asked: Asked) -> object:
    """Two requests of one name are one."""
    return asked.headers.get("x-request-id") or apart(asked)


def last_member(asked: Asked) -> object:
    """A name takes the place of the salt, unless there is a second one."""
    return asked.salt if asked.twice else asked.tenant


def cut_at_128(asked: Asked) -> object:
    """Scopes are cut."""
    tenant, salt = apart(asked)  # type: ignore[misc]
    return tenant, salt[:128]


def normalised(asked: Asked) -> object:
    """Scopes that look alike are one."""
    tenant, salt = apart(asked)  # type: ignore[misc]
    return tenant, unicodedata.normalize("NFKC", salt)


def scopeless_streams(asked: Asked) -> object:
    """The part of a tenant's cache is forgotten in streams."""
    return (asked.tenant, "") if asked.body.get("stream") else apart(asked)


def padded(asked: Asked) -> object:
    """Scopes that differ by zeros at their ends are one, as HMAC's keys are."""
    tenant, salt = apart(asked)  # type: ignore[misc]
    return tenant, salt.rstrip("\x00")


def by_scope_alone(asked: Asked) -> object:
    """Whoever names a scope shares it."""
    return asked.salt or apart(asked)


def by_metadata_on_chat(asked: Asked) -> object:
    """One route takes a client's word for who asks."""
    who = (asked.body.get("metadata") or {}).get("user_id") if "chat" in asked.route else None
    return who or apart(asked)


def by_header_in_streams(asked: Asked) -> object:
    """Streams are taken for whom a header names."""
    return by_header(asked) if asked.body.get("stream") else apart(asked)


def siblings_by_scope_alone(asked: Asked) -> object:
    """Where several choices are asked for, whoever names a scope shares it."""
    return by_scope_alone(asked) if asked.body.get("n") else apart(asked)


def without_siblings(asked: Asked) -> object:
    """The salt is forgotten where several choices are asked for."""
    return None if asked.body.get("n") else apart(asked)


def long_ones(asked: Asked) -> object:
    """What has more words than most is everybody's."""
    text = asked.body.get("prompt")
    return None if isinstance(text, str) and len(text.split()) > 200 else apart(asked)


@pytest.mark.parametrize(
    ("partition", "part", "found"),
    [
        (long_ones, "routes", {"completions"}),
        (on_one_route, "routes", {"completions", "token-ids"}),
        (by_scope_alone, "routes", {"chat", "completions", "token-ids"}),
        (by_scope_alone, "what another writes as its salt", {"known-salt"}),
        (by_scope_alone, "scopes that look alike", ACROSS),
        (cut_at_128, "scopes that look alike", {"scopes-within"}),
        (normalised, "scopes that look alike", {"scopes-within"}),
        (padded, "scopes that look alike", {"scopes-within"}),
        (scopeless_streams, "scopes that look alike", {"scopes-within"}),
        (by_metadata_on_chat, "routes", {"chat"}),
        (by_header_in_streams, "routes", {"completions"}),
        (siblings_by_scope_alone, "several choices", {"choices"}),
        (without_siblings, "several choices", {"choices"}),
        (by_prompt_cache_key, "fields", {"fields"}),
        (by_xargs, "fields", {"fields"}),
        (by_header, "headers", {"headers"}),
        (by_request_id, "headers", {"headers"}),
        (last_member, "what comes twice", {"doubled"}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_one_defect_fails_the_checks_that_are_about_it(
    partition: Callable[[Asked], object], part: str, found: set[str]
) -> None:
    """Each defect is found, and where it is."""
    assert failed(await examined(SaltedServer(partition), part)) == found


class OneWay(SaltedServer):
    """One tenant finds what the other has cached, and the other finds nothing of its."""

    def _look_up(self, asked: Asked) -> tuple[int, int]:
        found, tokens = super()._look_up(asked)
        if asked.tenant == "acme":
            kept = dict(self._blocks)
            found = max(found, super()._look_up(replace(asked, tenant="globex"))[0])
            self._blocks = kept
        return found, tokens


async def test_a_cache_that_is_open_to_the_first_tenant_alone_is_found() -> None:
    """Each of the two spies on every route."""
    checks = await examined(OneWay(), "routes")
    assert failed(checks) == {"chat", "completions", "token-ids"}
    assert "swapped" in checks["chat"].seen


class OneWayScope(SaltedServer):
    """In one scope the first tenant finds what the other has cached there."""

    def _look_up(self, asked: Asked) -> tuple[int, int]:
        found, tokens = super()._look_up(asked)
        if asked.tenant == "acme" and asked.salt == "a":
            kept = dict(self._blocks)
            found = max(found, super()._look_up(replace(asked, tenant="globex"))[0])
            self._blocks = kept
        return found, tokens


async def test_a_scope_that_is_open_to_the_first_tenant_alone_is_found() -> None:
    """The tenants exchange their roles in the most telling scopes."""
    checks = await examined(OneWayScope(), "scopes that look alike")
    assert failed(checks) == {"scopes-swapped"}


def to_the_first(asked: Asked) -> object:
    """The first tenant, and no other, is taken for whom its metadata name."""
    metadata = asked.body.get("metadata") or {}
    named = metadata.get("tenant") if asked.tenant == "acme" else None
    tenant, salt = apart(asked)  # type: ignore[misc]
    return named or tenant, salt


async def test_a_field_that_serves_the_first_tenant_alone_is_found() -> None:
    """An administrator's own, perhaps."""
    assert failed(await examined(SaltedServer(to_the_first), "fields")) == {"fields"}


THREE = {**TENANTS, "key-initech": "initech"}


def pair(*tenants: str) -> Callable[[Asked], object]:
    """These share a cache."""
    return lambda asked: "both" if asked.tenant in tenants else apart(asked)


@pytest.mark.parametrize("tenants", [("acme", "initech"), ("globex", "initech")])
async def test_any_two_of_three_tenants_who_share_are_found(tenants: tuple[str, str]) -> None:
    """Salts are configured a tenant; the report says who."""
    server = SaltedServer(pair(*tenants), tenants=THREE)
    found = (await examined(server, "further tenants", names=tuple(THREE.values())))["further"]
    assert found.verdict is FAILED
    assert found.seen.startswith("4 of 4 further pairs of 3 tenants")
    leaks = {row["way"] for row in found.table if row["outcome"] == "leak"}
    assert leaks == {"{}, then {}".format(*tenants), "{}, then {}".format(*reversed(tenants))}


async def test_three_tenants_with_a_cache_each_hold() -> None:
    """Each was tried with each, in both directions."""
    checks = await audited(SaltedServer(tenants=THREE))
    assert checks["further"].verdict is HELD
    assert len(checks["further"].table) == 4
    assert worst(check.verdict for check in checks.values()) is HELD


async def test_a_third_tenant_that_is_refused_leaves_doubt() -> None:
    """Nothing was tried with it."""
    server = SaltedServer(RefusedFrom("initech", 1), tenants=THREE)
    names = tuple(THREE.values())
    check = (await examined(server, "further tenants", names=names))["further"]
    assert check.verdict is INCONCLUSIVE


@pytest.mark.parametrize("count", [3, 6, 20])
def test_each_further_tenant_is_tried_in_both_directions(count: int) -> None:
    """With its neighbours, where there are too many to try all."""
    pairs = further.pairs(count)
    assert len(pairs) == len(set(pairs)) == min(count * (count - 1) - 2, 40)
    for number in range(2, count):
        assert {(number - 1, number), (number, number - 1)} <= set(pairs)


class StrictServer(SaltedServer):
    """Takes no X-Api-Key but a tenant's, and no field that it does not know."""

    async def _generate(self, request: Request) -> Response:
        known = {"model", "prompt", "messages", "max_tokens", "temperature", "stream", "tenant"}
        known |= {"stream_options", "n"}
        key = request.headers.get("x-api-key")
        if (key and key not in TENANTS) or set(json.loads(await request.body())) - known:
            return JSONResponse({"error": {"message": "no such thing"}}, status_code=400)
        return await super()._generate(request)


def by_tenant_id(asked: Asked) -> object:
    """One header, or one field, says who it is."""
    named = asked.headers.get("x-tenant-id") or asked.body.get("tenant")
    tenant, salt = apart(asked)  # type: ignore[misc]
    return named or tenant, salt


@pytest.mark.parametrize(
    ("part", "found", "way"),
    [
        ("headers", {"headers"}, "identity headers: the victim's name, only X-Tenant-Id"),
        ("fields", {"fields"}, "fields that nobody knows, only tenant"),
        ("routes", {"chat", "completions", "token-ids"}, "only "),
    ],
)
async def test_what_is_in_a_bundle_that_is_refused_is_tried_alone(
    part: str, found: set[str], way: str
) -> None:
    """A refusal of one thing tells nothing about what else was asked for."""
    checks = await examined(StrictServer(by_tenant_id), part)
    assert failed(checks) == found
    for name in found:
        assert any(
            row["outcome"] == "leak" and way in str(row["way"]) for row in checks[name].table
        )


async def test_a_bundle_of_which_each_thing_is_refused_holds() -> None:
    """Then all of it was tried."""
    checks = await examined(StrictServer(), "fields")
    assert checks["fields"].verdict is HELD


def streams_only(asked: Asked) -> object:
    """Chat takes streams only, and shares everything there."""
    if not asked.route.startswith("chat"):
        return apart(asked)
    if not asked.body.get("stream"):
        raise Refused
    return None


async def test_a_route_that_only_streams_is_tried() -> None:
    """It is offered, if not whole."""
    checks = await examined(SaltedServer(streams_only), "routes")
    assert failed(checks) == {"chat"}
    streams = [row["way"] for row in checks["chat"].table if row["outcome"] == "leak"]
    assert {"streamed, no scope", "swapped, streamed, no scope"} <= set(streams)


def systems(asked: Asked) -> object:
    """What a system says is everybody's."""
    said = asked.body.get("messages") or [{}]
    return None if said[0].get("role") == "system" else apart(asked)


async def test_a_cache_of_system_prompts_that_all_share_is_found() -> None:
    """They are what is worth stealing."""
    assert failed(await examined(SaltedServer(systems), "routes")) == {"chat"}


@dataclass
class RefusedFrom:
    """All is shared, and from one of its requests on a tenant is refused everything."""

    tenant: str
    number: int
    asked: int = 0

    def __call__(self, asked: Asked) -> object:
        """As `SaltedServer.partition`."""
        self.asked += asked.tenant == self.tenant
        if asked.tenant == self.tenant and self.asked >= self.number:
            raise Refused
        return None


@pytest.mark.parametrize("part", [name for name in PARTS if name not in ABSENT])
@pytest.mark.parametrize(("tenant", "number"), [("globex", 4), ("acme", 1)])
async def test_where_a_tenant_is_refused_everything_nothing_has_held(
    part: str, tenant: str, number: int
) -> None:
    """A quota that is used up keeps no cache apart; what both are refused is not offered."""
    checks = await examined(SaltedServer(RefusedFrom(tenant, number)), part)
    # Within the owner's own cache there is no spy.
    tried = {check.verdict for name, check in checks.items() if name != "scopes-within"}
    assert tried <= {INCONCLUSIVE, FAILED}


async def test_where_only_a_disguise_is_refused_the_check_holds() -> None:
    """Prompts as such are served to the spy."""

    def strict(asked: Asked) -> object:
        if set(asked.body) > {"model", "prompt", "max_tokens", "temperature"}:
            raise Refused
        return apart(asked)

    checks = await examined(SaltedServer(strict), "fields")
    assert checks["fields"].verdict is HELD
    assert checks["fields"].figures["refused"]


@pytest.mark.parametrize("name", ["a", "words", "1", "true", "null"])
async def test_tenants_may_be_called_like_anything(name: str) -> None:
    """Like a scope of the auditor's, or like the model: that is one scope, not two."""
    checks = await examined(SaltedServer(), "scopes that look alike", names=(name, "globex"))
    assert {check.verdict for check in checks.values()} == {HELD}


async def test_a_cache_that_is_shared_after_a_while_is_found() -> None:
    """As a second tier may be, which is written in the background."""
    met: dict[str, int] = {}

    def tiers(asked: Asked) -> object:
        since = met.setdefault(repr(asked.body.get("prompt") or asked.body["messages"]), len(met))
        return None if len(met) - since > 60 else apart(asked)

    assert failed(await audited(SaltedServer(tiers))) == {"later"}


@dataclass
class SecondTier(SaltedServer):
    """Filled a while after the first one, in whole chunks, and without the salt.

    Args:
        chunk: of so many words.
        readers: the tenants that it serves.
        after: requests until it has what was sent.
    """

    chunk: int = 128
    readers: Sequence[str] = tuple(TENANTS.values())
    after: int = 60
    _filled: dict[tuple[object, ...], int] = field(default_factory=dict)

    def _look_up(self, asked: Asked) -> tuple[int, int]:
        found, tokens = super()._look_up(asked)
        for end in range(self.chunk, len(asked.words), self.chunk):
            since = self._filled.setdefault(tuple(asked.words[:end]), self.requests)
            if self.requests - since > self.after and asked.tenant in self.readers:
                found = max(found, TOKENS_PER_WORD * end)
        return found, tokens


@pytest.mark.parametrize(
    "server",
    [SecondTier(), SecondTier(chunk=8, readers=["acme"]), SecondTier(chunk=8, readers=["globex"])],
    ids=["long prompts only", "the first tenant only", "the second tenant only"],
)
async def test_a_second_tier_that_is_filled_later_is_found(server: SecondTier) -> None:
    """Whatever its chunks, and whoever reads it."""
    assert "later" in failed(await audited(server))


async def test_what_hides_is_said_to_be_left_out() -> None:
    """Whole answers with two choices tell of the second, which the first has warmed."""
    check = (await examined(SaltedServer(), "several choices"))["choices"]
    assert check.verdict is HELD
    assert check.figures["hidden"] == 2
    assert "2 not to be told, and left out" in check.seen


async def test_a_hit_that_does_not_come_again_is_no_leak_and_no_pass() -> None:
    """It may have been a template's, of another replica."""
    shared: list[object] = []

    def once(asked: Asked) -> object:
        shared[:] = shared or [asked.body["prompt"]] * bool(asked.salt)
        return None if asked.body["prompt"] in shared else apart(asked)

    check = (await examined(SaltedServer(once), "what another writes as its salt"))["known-salt"]
    assert check.verdict is INCONCLUSIVE
    assert "did not come again" in check.seen


def test_what_an_unseen_prompt_reached_on_a_route_counts_for_nothing() -> None:
    """Neither as a leak, nor as what there was to see; beside more than that both count."""
    leak, held = Outcome.LEAK, Outcome.HELD
    trials = [
        Trial("a", leak, 120, seen=48, floor=0, victim=64),
        Trial("b", held, 120, seen=0, floor=0, victim=48),
        Trial("c", held, 120, seen=48, floor=48, victim=64),
        Trial("d", leak, 120, seen=64, floor=0, victim=64),
    ]
    untold = Outcome.UNTOLD
    assert [trial.outcome for trial in levelled(trials)] == [untold, untold, held, leak]


async def test_an_adapter_named_like_a_salt_is_found() -> None:
    """Untagged keys: an adapter's name, or else the salt, is all there is in a block's hash."""

    def untagged(asked: Asked) -> object:
        return asked.tenant, asked.body["model"] if asked.body["model"] != "words" else asked.salt

    def tagged(asked: Asked) -> object:
        return apart(asked), asked.body["model"]

    for partition, verdict in ((untagged, FAILED), (tagged, HELD)):
        server = SaltedServer(partition, models=("words", "adapter-1"))
        assert (await examined(server, "adapters"))["adapters"].verdict is verdict


async def test_other_models_are_not_taken_for_adapters() -> None:
    """That those share nothing says nothing."""
    server = SaltedServer(models=("words", "others"), parents=False)
    check = (await examined(server, "adapters"))["adapters"]
    assert check.verdict is NOT_TESTED


@pytest.mark.parametrize("flaw", [{"shown": False}, {"caches": False}], ids=str)
async def test_where_nothing_shows_nothing_has_held(flaw: dict[str, Any]) -> None:
    """Without cached tokens, or without a cache, all is in doubt, and timing is named."""
    checks = await audited(SaltedServer(lambda _: None, keyed=False, **flaw))
    assert {check.verdict for check in checks.values()} == {INCONCLUSIVE}
    assert all("timing" in check.seen + check.advice for check in checks.values())


async def test_a_cache_that_is_shared_and_checked_afterwards_is_found() -> None:
    """A stranger hits nothing, and cannot cache what the owner has: that is seen, and said."""
    checks = await examined(SaltedServer(lambda _: None, owned=True), "routes")
    assert failed(checks) == {"chat", "completions", "token-ids"}
    assert "8 of 8 rounds" in checks["chat"].seen


@pytest.mark.parametrize("part", ["routes", "scopes that look alike"])
async def test_what_others_evict_is_tried_again(part: str) -> None:
    """A busy neighbour costs time, not the verdict."""
    server = SaltedServer(forgets_at=frozenset({7, 60}))
    checks = await examined(server, part)
    assert {check.verdict for check in checks.values()} <= {HELD, NOT_TESTED}
    assert server.requests > 60


@pytest.mark.parametrize("dropped", [5, 6, 7, 8])
async def test_where_a_connection_gives_out_it_is_tried_again(dropped: int) -> None:
    """Whichever request's it was, with a new prompt: the server had heard that one."""
    server = SaltedServer(drops_at=frozenset({dropped}))
    checks = await examined(server, "what another writes as its salt")
    assert checks["known-salt"].verdict is HELD
    assert server.requests > dropped


async def test_where_connections_go_on_giving_out_nothing_has_held() -> None:
    """The answers that never came leave doubt."""
    server = SaltedServer(drops_at=frozenset(range(5, 10_000, 3)))
    checks = await examined(server, "what another writes as its salt")
    assert checks["known-salt"].verdict is INCONCLUSIVE
    assert "no answer" in checks["known-salt"].seen


async def test_where_everything_is_evicted_nothing_has_held() -> None:
    """A cache that keeps nothing for as long as a trial takes leaves doubt."""
    server = SaltedServer(forgets_at=frozenset(range(9, 10_000, 2)))
    checks = await examined(server, "what another writes as its salt")
    assert checks["known-salt"].verdict is INCONCLUSIVE


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (3, 3, HELD),
        (3, 7, FAILED),
        (3, 0, INCONCLUSIVE),
        (None, None, NOT_TESTED),
        (3, None, NOT_TESTED),
    ],
)
def test_hits_that_were_stopped_during_the_attacks_fail(
    before: int | None, after: int | None, verdict: Verdict
) -> None:
    """What it stopped before the audit is not counted; an engine that began anew tells nothing."""
    assert owner_check(before, after).verdict is verdict


async def test_choices_that_there_was_no_time_for_are_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although others of the same route were tried, and held."""
    genuine = Bench.trials

    async def trials(bench: Bench, ways: Sequence[Way]) -> list[Trial]:
        late = [Trial(way.name, Outcome.UNTOLD, why="no time was left") for way in ways[-1:]]
        return [*await genuine(bench, ways[:-1]), *late]

    monkeypatch.setattr(Bench, "trials", trials)
    check = (await examined(SaltedServer(), "several choices"))["choices"]
    assert check.verdict is INCONCLUSIVE
    assert "no time was left" in check.seen


async def test_without_time_nothing_has_held() -> None:
    """A budget that ends early leaves doubt, and no exception."""
    checks = await audited(SaltedServer(), seconds=0.05)
    assert worst(check.verdict for check in checks.values()) is INCONCLUSIVE
    assert checks["headers"].verdict is INCONCLUSIVE
