"""Work that nobody waits for any more holds nothing up, and soon ends."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from saltwall_security.abandonable import Abandoned, abandonable, check_wanted
from saltwall_security.raw_http import Wire

SOON_S = 0.05


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Ends what waits for it, at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def abandoned(begin: Callable[[], object]) -> None:
    """Gives it up when nothing comes of it."""

    async def wait() -> None:
        async with asyncio.timeout(SOON_S):
            await abandonable(begin)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_it_does_not_keep_the_loop_from_ending(released: threading.Event) -> None:
    """As a thread of the loop's own would for as long as a server holds its request."""
    abandoned(released.wait)
    assert not released.is_set()


@pytest.mark.parametrize(
    "step", [check_wanted, lambda: Wire("http://127.0.0.1:9").send("GET", "/")]
)
def test_it_ends_before_its_next_step(
    released: threading.Event, step: Callable[[], object]
) -> None:
    """Before another request, so that none is sent beside what follows."""
    ended: list[BaseException] = []
    over = threading.Event()

    def work() -> None:
        released.wait()
        try:
            step()
        except Abandoned as error:
            ended.append(error)
        over.set()

    abandoned(work)
    released.set()
    assert over.wait(10)
    assert ended


async def test_what_it_returns_or_raises_comes_back() -> None:
    """As long as somebody waits for it."""
    assert await abandonable(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await abandonable(divmod, 7, 0)


def test_elsewhere_all_work_is_wanted() -> None:
    """On a thread of anybody else's."""
    check_wanted()
