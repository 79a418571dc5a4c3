"""Fields and headers by which a client might pass for another tenant, or share a key with it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from saltwall_security.client import Answer, Client
from saltwall_security.suites.isolation.routes import CHAT_ROUTE, Route
from saltwall_security.target import Tenant

TICKET_LIKE = "sw1." + "A" * 114
"""As long as a Saltwall ticket, and none."""
NOBODYS = ("tenant", "tenant_id", "account", "organization", "salt", "scope", "kv_salt")


@dataclass(frozen=True)
class Smuggle:
    """One way of dressing up a request.

    Args:
        fields: added to the body.
        headers: added to the request.
        both: the victim does it too: whatever is keyed by it is then shared.
        chat: it belongs to chat completions.
        telling: it is tried on every route.
    """

    way: str
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    both: bool = False
    chat: bool = False
    telling: bool = False

    def on(self, route: Route) -> Route:
        """Where it goes, when everything else goes to `route`."""
        return CHAT_ROUTE if self.chat else route

    async def spy(
        self, route: Route, client: Client, prompt: str, *, stream: bool = False
    ) -> Answer:
        """Sends a prompt dressed up."""
        where = self.on(route)
        return await where.ask(client, prompt, self.fields, self.headers, stream=stream)

    async def victim(
        self, route: Route, client: Client, prompt: str, *, stream: bool = False
    ) -> Answer:
        """Sends it as the victim does."""
        if self.both:
            return await self.spy(route, client, prompt, stream=stream)
        return await self.on(route).ask(client, prompt, stream=stream)

    def members(self) -> Sequence["Smuggle"]:
        """One for each thing that it adds, also within a field; none if that is one thing only."""
        bare = replace(self, fields={}, headers=())
        alone = [
            replace(bare, way=f"{self.way}, only {header[0]}", headers=[header])
            for header in self.headers
        ]
        for name, value in self.fields.items():
            inner = value.items() if isinstance(value, Mapping) else [(None, value)]
            for key, each in inner:
                said = f"{self.way}, only {name}" + ("" if key is None else f".{key}")
                added = {name: each if key is None else {key: each}}
                alone.append(replace(bare, way=said, fields=added))
        return alone if len(alone) > 1 else ()


def body_fields(victim: Tenant) -> Sequence[Smuggle]:
    """What a client may add to the body; it knows the victim's name, and perhaps its id."""
    who = victim.id or victim.name
    transfer = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": who,
        "remote_block_ids": [1, 2, 3],
        "remote_host": "127.0.0.1",
        "remote_port": 5600,
    }
    wrapped = {"cache_salt": who, "tenant": who}
    users = {"user": who, "safety_identifier": who}
    own = [
        Smuggle("cache_salt: like a ticket", {"cache_salt": TICKET_LIKE}),
        Smuggle("cache_salt: the victim's name", {"cache_salt": victim.name}),
        Smuggle("cache_salt: the victim's id", {"cache_salt": who}, telling=True),
        Smuggle("cache_salt: null", {"cache_salt": None}),
        Smuggle("cache_salt: empty", {"cache_salt": ""}),
        Smuggle("cache_salt: a list", {"cache_salt": [who]}),
        Smuggle("cache_salt: an object", {"cache_salt": {"tenant": who}}),
        Smuggle("kv_transfer_params", {"kv_transfer_params": transfer}),
        Smuggle("ec_transfer_params", {"ec_transfer_params": transfer}),
        Smuggle("priority", {"priority": -(2**31)}),
        Smuggle("OpenAI's fields for users", users, telling=True),
        Smuggle("metadata", {"metadata": {"tenant": who, "tenant_id": who, "user_id": who}}),
        Smuggle("fields that nobody knows", dict.fromkeys(NOBODYS, who), telling=True),
        Smuggle("vllm_xargs", {"vllm_xargs": {**wrapped, "priority": -1}}, telling=True),
        Smuggle("vllm_xargs of the platform", {"vllm_xargs": {"saltwall_tenant": who}}),
        Smuggle("extra_body and extra_args", {"extra_body": wrapped, "extra_args": wrapped}),
        Smuggle("mm_processor_kwargs", {"mm_processor_kwargs": wrapped}),
        Smuggle("how the cache is read", {"skip_reading_prefix_cache": False}),
        Smuggle("chat_template_kwargs", {"chat_template_kwargs": {"cache_salt": who}}, chat=True),
    ]
    return [*own, *_shared()]


def _shared() -> Sequence[Smuggle]:
    """What both send alike, so that whatever is keyed by it alone is shared."""
    same = "the-same-for-both"
    return [
        Smuggle("the same prompt_cache_key", {"prompt_cache_key": same}, both=True, telling=True),
        Smuggle("the same metadata", {"metadata": {"user_id": same}}, both=True, telling=True),
        Smuggle("the same session_id", {"session_id": same}, both=True),
        Smuggle("the same request_id", {"request_id": same}, both=True),
        Smuggle("the same user and seed", {"user": same, "seed": 7}, both=True),
    ]


def request_headers(victim: Tenant) -> Sequence[Smuggle]:
    """What a client may add to the headers."""
    identity = (
        "X-Tenant",
        "X-Tenant-Id",
        "X-Saltwall-Tenant",
        "X-Cache-Salt",
        "X-Saltwall-Salt",
        "X-Saltwall-Scope",
        "X-Api-Key",
        "X-User-Id",
        "X-Forwarded-User",
        "X-Scope-OrgID",
        "OpenAI-Organization",
        "OpenAI-Project",
        "Cookie",
    )
    keyed = ("X-Request-Id", "X-Session-Id", "X-Correlation-Id", "Idempotency-Key")
    seal = ("X-Saltwall-Seal", "A" * 43)
    own = [
        Smuggle(
            f"identity headers: the victim's {what}",
            headers=[(name, who) for name in identity],
            telling=what == "id",
        )
        for what, who in (("name", victim.name), ("id", victim.id or victim.name))
    ]
    return [
        *own,
        Smuggle("the same ids in headers", headers=[(n, "same") for n in keyed], both=True),
        Smuggle("a seal of its own", headers=[seal]),
        Smuggle("data-parallel rank", headers=[("X-data-parallel-rank", "0")]),
    ]


def telling(victim: Tenant) -> list[Smuggle]:
    """Those that are worth a try on every route."""
    every = (*body_fields(victim), *request_headers(victim))
    return [each for each in every if each.telling]


@dataclass(frozen=True)
class Doubled:
    """A request that says something twice.

    Args:
        members: written at the end of the JSON body, as they are.
        authorization: further Authorization headers; "" stands for the spy's own.
    """

    way: str
    members: str = field(default="", repr=False)
    authorization: Sequence[str] = field(default=(), repr=False)

    async def spy(self, route: Route, client: Client, prompt: str) -> Answer:
        """Sends a prompt so."""
        salt = client.tenant.cache_salt
        body = {"model": client.target.model, "temperature": 0, **route.body(prompt)}
        text = json.dumps(body if salt is None else {**body, "cache_salt": salt})
        own = f"Bearer {client.tenant.key or 'none'}"
        headers = [("authorization", value or own) for value in self.authorization]
        content = f"{text[:-1]}{self.members}}}".encode()
        return await client.send("POST", route.path, content, headers)


def doubled(victim: Tenant) -> Sequence[Doubled]:
    """What parsers and proxies may read differently; the victim sends nothing of the kind."""
    who = victim.id or victim.name
    guess = f"Bearer {who}"
    salts = {"name": victim.name}
    salts |= {"id": victim.id} if victim.id else {}
    salts |= {"salt": victim.cache_salt} if victim.cache_salt else {}
    found = []
    for what, text in salts.items():
        salt = json.dumps(text)
        last, first = f', "cache_salt": "x", "cache_salt": {salt}', f', "cache_salt": {salt}'
        found += [
            Doubled(f"cache_salt twice, the victim's {what} last", last),
            Doubled(f"cache_salt twice, the victim's {what} first", f'{first}, "cache_salt": "x"'),
            Doubled(
                f"the victim's {what}, cache_salt spelled oddly", f', "cache\\u005fsalt": {salt}'
            ),
        ]
    return [
        *found,
        Doubled("model twice", f', "model": {json.dumps(who)}, "model": ""'),
        Doubled("Authorization twice, its own first", authorization=["", guess]),
        Doubled("Authorization twice, its own last", authorization=[guess, ""]),
    ]
