"""What the engine attests is compared with what is computed anew."""

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from saltwall_security.bench.process import BenchFailed
from saltwall_security.check import Check, Verdict
from saltwall_security.collision.block_hash import vector_digest
from saltwall_security.suite import Audit
from saltwall_security.suites import collision
from saltwall_security.suites.collision.attestation import PATH, attestation
from saltwall_security.suites.collision.crafting import weak_hashes
from saltwall_security.suites.collision.digest import digest
from saltwall_security.suites.collision.encoding import encoding
from saltwall_security.suites.collision.operators import speed
from saltwall_security.target import Target, Tenant

GOOD = {"algorithm": "sha256_cbor", "vector_digest": vector_digest()}
SECRET = "control-secret"


@contextmanager
def engine(answer: Any, status: int = 200) -> Iterator[str]:
    """An HTTP server that attests this, to whoever has the control secret."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["authorization"] == f"Bearer {SECRET}" and self.path == PATH
            self.send_response(status if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answer if known else {}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def audit(engine_url: str | None = None, seconds: float = 4.0) -> Audit:
    target = Target(
        "http://127.0.0.1:9/v1",
        (Tenant("a"), Tenant("b")),
        engine_url=engine_url,
        control_secret=SECRET if engine_url else None,
    )
    return Audit(target, "tests", seconds, lambda _: None)


@pytest.mark.parametrize(
    ("answer", "status", "verdict"),
    [
        (GOOD, 200, Verdict.HELD),
        (GOOD | {"vector_digest": vector_digest(first_only=True)}, 200, Verdict.FAILED),
        (GOOD | {"algorithm": "xxhash_cbor"}, 200, Verdict.FAILED),
        ({"detail": "Not Found"}, 404, Verdict.INCONCLUSIVE),
        ([], 200, Verdict.INCONCLUSIVE),
    ],
)
async def test_an_attestation_is_judged(answer: Any, status: int, verdict: Verdict) -> None:
    """Right, with the salt in first blocks only, of a weak hash, absent, and nonsense."""
    with engine(answer, status) as url:
        assert (await attestation(audit(url))).verdict == verdict


async def test_an_engine_that_does_not_answer_is_in_doubt() -> None:
    """It may be another engine that does."""
    assert (await attestation(audit("http://127.0.0.1:9"))).verdict == Verdict.INCONCLUSIVE


async def test_without_the_control_secret_nothing_is_asked() -> None:
    """And that is said."""
    assert (await attestation(audit())).verdict == Verdict.NOT_TESTED


@pytest.mark.parametrize("make", [encoding, digest])
def test_what_is_computed_here_holds(make: Callable[[Audit], Check]) -> None:
    """In a few seconds, beside a control that does not."""
    check = make(audit())
    assert check.verdict == Verdict.HELD, check.seen
    assert check.control


def test_no_collision_is_no_proof() -> None:
    """Where none could be made, that none was seen here means nothing."""
    assert weak_hashes([]).verdict == Verdict.INCONCLUSIVE


def test_without_vllm_nothing_is_timed() -> None:
    """The table still says what is strong."""
    check = speed(None, [])
    assert check.verdict == Verdict.NOT_TESTED
    assert len(check.table) == 4


class WithoutVllm:
    """There is nothing to examine."""

    async def ask(self, task: str, seconds: float, **_: object) -> None:
        raise BenchFailed("no vLLM")


@pytest.fixture
def _computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the auditor computes by itself holds, and takes no time."""

    @asynccontextmanager
    async def benches(schedulers: object, seed: str) -> AsyncIterator[Mapping[str, WithoutVllm]]:
        yield {"stock": WithoutVllm()}

    def made(name: str) -> Callable[[object], Check]:
        return lambda _: Check(f"collision/{name}", "G8", Verdict.HELD, name, "It holds.")

    monkeypatch.setattr(collision, "Benches", benches)
    monkeypatch.setattr(collision, "encoding", made("encoding"))
    monkeypatch.setattr(collision, "digest", made("birthday"))
    monkeypatch.setattr(collision, "weak_hashes", made("weak-hashes"))
    monkeypatch.setattr(collision, "craft", lambda _: [])


@pytest.mark.usefixtures("_computed")
@pytest.mark.parametrize(("answer", "decides"), [(GOOD, True), ({}, False)])
async def test_what_is_computed_here_says_nothing_of_a_target_that_hashes_otherwise(
    answer: Any, decides: bool
) -> None:
    """It is about the hash that an engine attests, and about no other."""
    with engine(answer) as url:
        checks = [check async for check in collision.SUITE.run(audit(url))]
    held = {check.id for check in checks if check.guarantee and check.verdict is Verdict.HELD}
    assert ("collision/encoding" in held) is decides
    assert ("collision/attestation" in held) is decides
    assert len(checks) == 7
