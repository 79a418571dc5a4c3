"""The prompt thief against a real server that leaks, or does not, in a known way."""

from prefix_server import PrefixServer

from saltwall_security.check import Check, Verdict
from saltwall_security.prober import Prober
from saltwall_security.suite import Audit
from saltwall_security.suites.recovery import SUITE
from saltwall_security.suites.recovery.attacker import beyond_chance
from saltwall_security.suites.recovery.oracle import Oracle, by_count
from saltwall_security.target import Target, Tenant


def target(server: PrefixServer) -> Target:
    return Target(server.url, [Tenant("a", "key-a"), Tenant("b", "key-b")], "demo")


async def audited(server: PrefixServer, seconds: float = 15) -> Check:
    """The suite's only check, in its part of a default budget on a CPU."""
    async with (
        server.running(),
        Audit(target(server), "seed", seconds, lambda line: None) as audit,
    ):
        [check] = [check async for check in SUITE.run(audit)]
        return check


async def test_all_words_are_read_from_the_counts_of_a_shared_cache() -> None:
    """Three of three, each with no more guesses than the dictionary has words."""
    check = await audited(PrefixServer(shared=True))
    assert check.verdict is Verdict.FAILED
    assert check.figures["words_recovered"] == 3
    assert check.figures["instrument"] == "cached_tokens"
    assert all(int(row["guesses"] or 0) <= 26 for row in check.table)


async def test_nothing_is_recovered_where_each_tenant_has_its_own_cache() -> None:
    """Though the thief recovers a secret of its own."""
    check = await audited(PrefixServer())
    assert check.verdict is Verdict.HELD
    assert check.figures["words_recovered"] == 0
    assert check.figures["control_words_recovered"] == 3


class OneWay(PrefixServer):
    """One tenant finds what the other has cached, and the other nothing of its."""

    def _look_up(self, tenant: str, words: list[str]) -> int:
        self.shared = tenant == "Bearer key-a"
        return super()._look_up(tenant, words)


async def test_a_cache_that_is_open_to_the_first_tenant_alone_is_found() -> None:
    """Both are victims in turn."""
    check = await audited(OneWay())
    assert check.verdict is Verdict.FAILED
    assert check.figures["attacks"] == 2
    assert check.figures["words_recovered"] == 3


async def test_hiding_the_counts_does_not_stop_the_thief() -> None:
    """It goes by the clock."""
    check = await audited(PrefixServer(shared=True, shown=False), seconds=60)
    assert check.verdict is Verdict.FAILED
    assert check.figures["instrument"] == "time to first token"


async def test_the_clock_tells_nothing_where_each_tenant_has_its_own_cache() -> None:
    """The thief recovers at most what it could have guessed."""
    check = await audited(PrefixServer(shown=False), seconds=120)
    assert check.verdict is Verdict.HELD


async def test_no_cache_is_no_pass() -> None:
    """The thief cannot even tell its own prompts apart."""
    check = await audited(PrefixServer(caches=False))
    assert check.verdict is Verdict.INCONCLUSIVE


async def test_too_little_time_is_no_pass_and_says_how_much_it_takes() -> None:
    """In seconds."""
    check = await audited(PrefixServer(), seconds=3)
    assert check.verdict is Verdict.INCONCLUSIVE
    assert "take up to" in check.seen


async def test_the_size_of_a_block_is_found_from_outside() -> None:
    """A form's parts are longer than a block, and not much longer."""
    server = PrefixServer()
    async with server.running(), Audit(target(server), "seed", 60, lambda line: None) as audit:
        oracle = await by_count(audit, Prober(), audit.client(1))
    assert oracle is not None
    assert 16 < oracle.words <= 48


def test_one_word_by_the_clock_may_be_luck() -> None:
    """One in nine attacks would get one of three right by guessing; one in 200 two."""
    clock = Oracle("clock", 60, 0.1, 0.1, 2, lambda answer, known: False)
    assert [beyond_chance(clock, right) for right in range(4)] == [False, False, True, True]


def test_one_word_by_count_is_no_luck() -> None:
    """A count above what the thief itself has sent is somebody else's."""
    count = Oracle("count", 60, 1e-6, 1e-6, 1, lambda answer, known: False)
    assert [beyond_chance(count, right) for right in range(4)] == [False, True, True, True]
