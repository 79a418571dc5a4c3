"""All that three tenants can do on a pool of six blocks, in every order, against the contract.

Each operation of each visited state must give exactly the blocks, victims and refusals that the
model of the contract gives, promise each tenant exactly what it can then take, and leave the pool's
books in order. SALTWALL_LONG=1 goes deeper, on more blocks.
"""

import pytest
from properties import LONG
from quota_model import Terms
from small_scope import Scope, explore

STRICT, BOUNDED, ELASTIC = Terms(2, 2), Terms(2, 4), Terms()
LATE = [Terms(2, 2), Terms(1, 3)]
"""What a tenant may be given while the pool is in use: a lower ceiling, a reserve, or less."""

MIXED = (STRICT, BOUNDED, ELASTIC)

SCOPES = {
    "empty": (4, Scope(6, [(MIXED, "")], LATE[:1])),
    "borrowed": (3, Scope(6, [(MIXED, "abcccc")])),
    "shared": (3, Scope(6, [((BOUNDED, Terms(2), Terms(0, 3)), "abbaca")])),
}
LONG_SCOPES = {
    "empty": (5, Scope(6, [(MIXED, ""), ((Terms(3, 5), ELASTIC, ELASTIC), "")], LATE)),
    "empty of 8": (4, Scope(8, [((Terms(3, 3), BOUNDED, ELASTIC), "")], takes=(1, 3))),
    "borrowed": (4, Scope(6, SCOPES["borrowed"][1].starts, LATE)),
    "shared": (4, Scope(6, SCOPES["shared"][1].starts, LATE)),
    "borrowed of 7": (4, Scope(7, [(MIXED, "abccccc")])),
    "nobody has a quota": (4, Scope(6, [((ELASTIC,) * 3, "ababcc")], LATE)),
}


@pytest.mark.timeout(14400 if LONG else 300)
@pytest.mark.parametrize("name", LONG_SCOPES if LONG else SCOPES)
def test_every_order_of_operations_obeys_the_contract(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the order of operations, pool and model agree, down to which block is evicted."""
    depth, scope = (LONG_SCOPES if LONG else SCOPES)[name]
    tally = explore(scope, depth)
    with capsys.disabled():
        print(
            f"\n  {name}: {scope.total} blocks, {len(scope.starts)} starts after "
            f"{len(scope.starts[0][1])} operations, then depth {depth}: {tally.states} states, "
            f"{tally.transitions} transitions, {tally.refusals} of them refused, "
            f"{tally.evictions} evictions of others' blocks"
        )
    assert tally.states > 1000
    assert tally.refusals
    assert tally.evictions or not scope.starts[0][1]
