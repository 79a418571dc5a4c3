"""What a victim finds of its prefix, against all that there is to find."""

from saltwall_security.client import Answer, Client
from saltwall_security.prober import Prober
from saltwall_security.suites.eviction.victim import Prefix, kept
from saltwall_security.target import Target, Tenant

ALONE, LUCKY = 1024, 1056


class Found(Prober):
    """Finds so many tokens cached, one answer after the other."""

    def __init__(self, *found: int) -> None:
        super().__init__()
        self._found = iter(found)

    async def __call__(self, client: Client, prompt: str, **fields: object) -> Answer:
        return Answer(200, {}, b"", "", next(self._found), 1080, 0.1, 0.1)


async def test_a_question_that_finds_a_block_by_chance_makes_no_loss_of_the_others() -> None:
    """Two questions may begin alike, and share the block in which the prefix ends."""
    client = Client(Target("http://127.0.0.1:1/v1", []), Tenant("victim"))
    prefix = Prefix(Found(ALONE, LUCKY, LUCKY, ALONE), client, "text", str)
    for _ in range(2):
        await prefix.ask(alone=True)
    assert kept([await prefix.ask(), await prefix.ask()]) == 1.0
    await client.close()


async def test_what_is_lost_is_told_from_what_was_never_there() -> None:
    """A prefix of which half is gone; one that was never cached."""
    client = Client(Target("http://127.0.0.1:1/v1", []), Tenant("victim"))
    half = Prefix(Found(ALONE, ALONE // 2), client, "text", str)
    await half.ask(alone=True)
    assert kept([await half.ask()]) == 0.5
    nothing = Prefix(Found(0, 0), client, "text", str)
    await nothing.ask(alone=True)
    assert kept([await nothing.ask()]) is None
    await client.close()
