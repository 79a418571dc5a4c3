"""What a tenant can do with a ticket, or with another's request id, at the front door."""

from collections.abc import Sequence

from saltwall_security.check import Check, judge
from saltwall_security.client import COMPLETIONS
from saltwall_security.running import Running
from saltwall_security.suite import Audit
from saltwall_security.suites.ticket.spied import SEAL_HEADER, Spied, ticket_of

WORDS = 150
STREAM_TOKENS = 48


async def check_stolen(audit: Audit, spied: Spied) -> Check:
    """Another tenant's genuine ticket and seal, sent with one's own key, opens nothing."""
    victim, spy = audit.client(0), audit.client(1)
    prompt = audit.words(WORDS)
    stolen = await spied.record(victim.tenant, prompt)
    headers = {SEAL_HEADER: stolen.header(SEAL_HEADER)}
    fields = {"prompt": prompt, "max_tokens": 1, "cache_salt": ticket_of(stolen)}
    probe = await spy.ask(COMPLETIONS, fields, headers)
    control = await victim.complete(prompt)
    seen, owners = probe.cached_tokens, control.cached_tokens
    leak = probe.ok and (seen or 0) > 0
    told = control.ok and (owners or 0) > 0 and (not probe.ok or seen is not None)
    verdict = judge(leak, told)
    answer = f"hit {seen} tokens" if probe.ok else f"was refused with {probe.status}"
    return Check(
        "ticket/stolen",
        "G7",
        verdict,
        "A stolen ticket is worth nothing at the front door, in place of a tenant's own cache_salt",
        f"The stranger's request with the victim's ticket and seal {answer}, of the victim's "
        f"prompt of {control.prompt_tokens} tokens.",
        {"cached_for_stranger_tokens": seen, "cached_for_owner_tokens": owners},
        f"The owner's repeat hit {owners} tokens.",
    )


async def check_request_ids(audit: Audit) -> Check:
    """A stream runs, while a stranger sends requests under its id and breaks them off."""
    alone, taken = await _to_its_end(audit, attack=False)
    attacked, _ = await _to_its_end(audit, attack=True)
    if attacked.cut:  # which may be chance, once
        attacked, _ = await _to_its_end(audit, attack=True)
    whole = alone.finished
    verdict = judge((whole and attacked.cut) or taken, whole and attacked.finished)
    return Check(
        "ticket/request-ids",
        "G7",
        verdict,
        "No client chooses a request's id, or reaches another's request by sending its id",
        f"A stream of {STREAM_TOKENS} tokens {attacked.end}, with {attacked.events} events, while "
        "a stranger sent and broke off requests with its ids in headers and body. The server "
        f"{'took' if taken else 'did not take'} an id that its client had chosen.",
        {"events": attacked.events, "events_alone": alone.events, "took_chosen_id": taken},
        f"Left alone it {alone.end}, with {alone.events} events.",
        advice="Give each request an id of the platform's own." if taken else "",
    )


async def _to_its_end(audit: Audit, *, attack: bool) -> tuple[Running, bool]:
    """The victim's stream, and whether the server calls it as the client wished."""
    chosen = f"audit-{audit.rng.randrange(16**12):012x}"
    fields = {
        "prompt": audit.words(8),
        "max_tokens": STREAM_TOKENS,
        "ignore_eos": True,
        "request_id": chosen,
    }
    headers = {"x-request-id": chosen}
    running = Running(audit.client(0).opened(COMPLETIONS, fields, headers))
    try:
        if attack and await running.began(30):
            await _disturb(audit, sorted({*running.ids, chosen}))
        await running.ended(60)
    finally:
        await running.stop()
    return running, any(chosen in each for each in running.named)


async def _disturb(audit: Audit, ids: Sequence[str]) -> None:
    """Sends requests under these ids, and goes away before they are answered."""
    bare = [each.partition("-")[2] or each for each in ids]
    for each in dict.fromkeys([*ids, *bare]):
        fields = {"prompt": "Salt.", "max_tokens": STREAM_TOKENS, "request_id": each}
        stranger = Running(audit.client(1).opened(COMPLETIONS, fields, {"x-request-id": each}))
        await stranger.began(10)
        await stranger.stop()
