"""What a server does to every request tells nothing of keys, and hides nothing either."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest
from pretend_platform import Platform
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from saltwall_security.check import Check, Verdict
from saltwall_security.suite import Audit
from saltwall_security.suites.keys.foreign import check_models, check_operators, check_requests
from saltwall_security.suites.keys.refusals import check_missing, check_refusals
from saltwall_security.suites.keys.timing import check_timing

HELD, FAILED, INCONCLUSIVE = Verdict.HELD, Verdict.FAILED, Verdict.INCONCLUSIVE
CHECKS: Mapping[str, Callable[[Audit], Awaitable[Check]]] = {
    "operators-routes": check_operators,
    "missing": check_missing,
    "models": check_models,
    "foreign-requests": check_requests,
    "timing": lambda audit: check_timing(audit, 0.1),
}
MALFORMED = HTMLResponse("<html>400 Bad Request</html>", 400)
Next = Callable[[Request], Awaitable[Response]]


class Front:
    """A front door with one habit."""

    def __init__(self, habit: str) -> None:
        self.habit, self.refused = habit, 0

    async def __call__(self, request: Request, serve: Next) -> Response:
        """Answers by itself, or changes what the gateway answers."""
        own = self._own(request)
        if own is not None:
            return own
        answer = await serve(request)
        if self.habit == "models are ignored" and answer.status_code == 404:
            return JSONResponse({"choices": [{"text": "salt"}]})
        unknown = answer.status_code == 404 and not request.url.path.startswith("/v1/")
        if self.habit == "a page for all" and unknown:
            return HTMLResponse(f"<html>chat</html><script src='/{uuid4().hex}.js'></script>")
        return await self._refusal(request, answer) if answer.status_code == 401 else answer

    def _own(self, request: Request) -> Response | None:
        keys, path = request.headers.getlist("authorization"), request.url.path
        nearly = any("key-of-acme" in key for key in keys)
        answers = {
            "two headers are malformed": (len(keys) > 1, MALFORMED),
            "two headers are malformed where one is good": (len(keys) > 1 and nearly, MALFORMED),
            "readiness": (path == "/readyz", JSONResponse({"status": "ok"})),
            "nothing to do is done": (
                request.method == "DELETE" or path.endswith("/cancel"),
                JSONResponse({"deleted": False}),
            ),
        }
        applies, answer = answers.get(self.habit, (False, None))
        return answer if applies else None

    async def _refusal(self, request: Request, answer: Any) -> Response:
        self.refused += 1
        document = json.loads(b"".join([part async for part in answer.body_iterator]))
        headers = {}
        key = request.headers.get("authorization", "")
        locked = self.habit == "keys that are nearly right are limited" and "key-of-acme" in key
        if self.habit == "refusals are numbered":
            document["request_id"] = f"req_{uuid4().hex}"
        if self.habit == "refusals are timed":
            headers["x-upstream-service-time"] = "7" if self.refused % 20 == 0 else "1"
        if self.habit == "refusals set a cookie":
            headers["set-cookie"] = f"__id={uuid4().hex}"
        if locked or (self.habit == "refusals are limited" and self.refused > 60):
            return JSONResponse({"error": {"message": "Too many."}}, 429)
        return JSONResponse(document, 401, headers)


async def audited(habit: str, name: str, *defects: str) -> Check:
    """One check behind such a door."""
    platform = Platform(frozenset(defects), front=Front(habit))
    async with platform.serving(), Audit(platform.target(True), "1", 10, lambda _: None) as audit:
        if name != "refusals":
            return await CHECKS[name](audit)
        operator = audit.target.operator
        assert operator is not None
        public_id, dead = operator.create_key(audit.target.tenants[1])
        operator.revoke_key(public_id)
        return await check_refusals(audit, {"revoked": dead})


@pytest.mark.parametrize(
    ("habit", "name", "verdict"),
    [
        ("none", "refusals", HELD),
        ("refusals are numbered", "refusals", HELD),
        ("refusals are timed", "refusals", HELD),
        ("refusals set a cookie", "refusals", HELD),
        ("refusals are limited", "refusals", INCONCLUSIVE),
        ("two headers are malformed", "refusals", INCONCLUSIVE),
        ("readiness", "operators-routes", HELD),
        ("a page for all", "operators-routes", HELD),
        ("a page for all", "missing", HELD),
        ("nothing to do is done", "foreign-requests", HELD),
        ("models are ignored", "models", INCONCLUSIVE),
    ],
)
async def test_a_sound_platform_behind_it_is_not_accused(
    habit: str, name: str, verdict: Verdict
) -> None:
    """What equal requests differ in is left out; what cannot be told is in doubt."""
    check = await audited(habit, name)
    assert check.verdict is verdict, check.seen


@pytest.mark.parametrize(
    ("habit", "defect", "name"),
    [
        ("refusals are timed", "revocation is forgotten", "refusals"),
        ("refusals are numbered", "keys are compared on a prefix", "refusals"),
        ("refusals are numbered", "revoked keys are told so", "refusals"),
        ("two headers are malformed where one is good", "none", "refusals"),
        ("keys that are nearly right are limited", "none", "refusals"),
        ("a page for all", "metrics are open", "operators-routes"),
        ("a page for all", "a route is open", "missing"),
        ("none", "a model shows that it is hidden", "models"),
        ("nothing to do is done", "responses are anybody's", "foreign-requests"),
        ("readiness", "anybody cancels", "foreign-requests"),
    ],
)
async def test_what_leaks_behind_it_is_found(habit: str, defect: str, name: str) -> None:
    """Noise hides no difference beside it."""
    check = await audited(habit, name, defect)
    assert check.verdict is FAILED, check.seen


async def test_times_of_what_is_not_looked_at_are_not_compared() -> None:
    """Where there were too many keys, a refusal takes as long whatever the key."""
    check = await audited("refusals are limited", "timing")
    assert check.verdict is INCONCLUSIVE
    assert "not so many keys" in check.seen
