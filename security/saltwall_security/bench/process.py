"""The auditor's end of the processes that schedulers are examined in."""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from saltwall_security.errors import AuditError

START_S = 180.0
"""The longest that vLLM may take to be imported."""
_LINE = 2**24


class BenchFailed(AuditError):
    """A scheduler could not be examined, or not to the end."""


class Examination:
    """One scheduler; what it is asked to do is done one after the other."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._turn = asyncio.Lock()
        self._pid: int | None = None
        self._started = asyncio.create_task(self._start())

    async def _start(self) -> str:
        hello = await self._answer(START_S)
        self._pid = hello["pid"]
        return str(hello["vllm"])

    async def version(self) -> str:
        """The version of vLLM, once the scheduler has been built.

        Raises:
            BenchFailed: it cannot be; the message says why.
        """
        return await asyncio.shield(self._started)

    async def ask(self, task: str, seconds: float, **arguments: Any) -> Any:
        """Has a task done.

        Args:
            task: its name.
            seconds: the longest that it may take.
            arguments: what it takes, as JSON can say it.

        Raises:
            BenchFailed: it was not done.
        """
        await self.version()
        async with self._turn:
            self._writer.write(json.dumps({"task": task, **arguments}).encode() + b"\n")
            return await self._answer(seconds)

    async def _answer(self, seconds: float) -> Any:
        try:
            line = await asyncio.wait_for(self._reader.readline(), seconds)
        except TimeoutError:
            if self._pid is not None:
                os.kill(self._pid, signal.SIGKILL)
            raise BenchFailed(f"it took more than {seconds:.0f} seconds") from None
        except ConnectionError:
            line = b""
        if not line:
            raise BenchFailed("the process that it was examined in has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchFailed(str(answer["error"]))
        return answer["answer"]

    async def close(self) -> None:
        """Ends it."""
        self._started.cancel()
        await asyncio.gather(self._started, return_exceptions=True)
        self._writer.close()


class Benches:
    """Schedulers under examination at the same time, in processes that import vLLM once."""

    def __init__(self, schedulers: Mapping[str, str], seed: str) -> None:
        """
        Args:
            schedulers: "module:name" of a class, or of a function that builds one, by any name.
            seed: of tenants and salts.
        """
        self._schedulers, self._seed = schedulers, seed
        self._process: Process | None = None
        self._open: dict[str, Examination] = {}

    async def __aenter__(self) -> Mapping[str, Examination]:
        """Starts them; what is wrong with a scheduler turns out when it is asked something."""
        ours, theirs, tasks = [], [], []
        for scheduler in self._schedulers.values():
            mine, its = socket.socketpair()
            ours.append(mine)
            theirs.append(its)
            tasks.append(f"{its.fileno()}={scheduler}")
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), *sys.path)))
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "saltwall_security.bench.worker", self._seed, *tasks),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            pass_fds=[its.fileno() for its in theirs],
            start_new_session=True,
        )
        for its in theirs:
            its.close()
        for name, mine in zip(self._schedulers, ours, strict=True):
            streams = await asyncio.open_connection(sock=mine, limit=_LINE)
            self._open[name] = Examination(*streams)
        return self._open

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for examination in self._open.values():
            await examination.close()
        process = self._process
        if process is not None and process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
