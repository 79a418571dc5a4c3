"""What the engine says of its block hash, against the same computed anew."""

import httpx

from saltwall_security.bounded_http import http_client
from saltwall_security.check import Check, Verdict, judge
from saltwall_security.collision.block_hash import vector_digest, vectors
from saltwall_security.suite import Audit
from saltwall_security.target import Access

PATH = "/saltwall/v1/attestation"
ALGORITHM = "sha256_cbor"
_CLAIM = "The engine's hashes of the published vectors are those of an independent implementation"
_TIMEOUT_S = 10.0


async def attestation(audit: Audit) -> Check:
    """Compares algorithm and vector digest; the control is an engine that salts one block only."""
    if Access.CONTROL not in audit.target.access():
        return _check(
            Verdict.NOT_TESTED, "Not asked: it needs the engine's port and control secret"
        )
    async with http_client(_TIMEOUT_S, base_url=audit.target.engine_url or "") as http:
        try:
            response = await http.get(
                PATH, headers={"authorization": f"Bearer {audit.target.control_secret}"}
            )
            said = response.json()
            algorithm, digest = str(said["algorithm"]), str(said["vector_digest"])
        except httpx.HTTPError as error:
            return _check(
                Verdict.INCONCLUSIVE, f"The engine does not answer ({type(error).__name__})."
            )
        except (ValueError, KeyError, TypeError):
            return _check(
                Verdict.INCONCLUSIVE,
                f"The engine does not attest its block hash (status {response.status_code}).",
            )
    ours = vector_digest()
    published = all(vector.published == vector.computed for vector in vectors())
    return _check(
        judge(
            algorithm != ALGORITHM or digest != ours,
            published and ours != vector_digest(first_only=True),
        ),
        f"It attests {algorithm} with vector digest {digest[:16]}…; computed anew from "
        f"{len(vectors())} vectors it is {ours[:16]}….",
        attested=digest,
        computed=ours,
        algorithm=algorithm,
    )


def _check(verdict: Verdict, seen: str, **figures: str) -> Check:
    return Check(
        "collision/attestation",
        "G8",
        verdict,
        _CLAIM,
        seen,
        figures,
        control="An engine that salts the first block only attests another digest."
        if figures
        else None,
        advice="Do not route to an engine whose block hash is not the one that was examined.",
    )
