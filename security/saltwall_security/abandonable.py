"""Work that blocks and may be given up: nobody waits for its thread any more, and it soon ends."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_over: ContextVar[threading.Event | None] = ContextVar("over", default=None)


class Abandoned(Exception):
    """Nobody waits for this any more."""


async def abandonable(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `call` returns, on a thread of its own that ends with whoever waits for it.

    `asyncio.to_thread` is for what must come to its end, such as an operator's command: the end of
    the event loop waits for its threads, so that a server which holds requests would hold the
    auditor too, and would be sent more of them beside the suites that follow.
    """
    over: threading.Event = threading.Event()
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()
    context = copy_context()
    context.run(_over.set, over)

    def work() -> None:
        try:
            result = context.run(call, *args, **kwargs)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=work, daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    finally:
        over.set()


def check_wanted() -> None:
    """To be called before each slow step; does nothing elsewhere than in abandonable work.

    Raises:
        Abandoned: nobody waits for it any more.
    """
    over = _over.get()
    if over is not None and over.is_set():
        raise Abandoned
