"""Requests that wait, a line a tenant, served by weighted virtual token counters.

A tenant's counter grows by the tokens it is served, over its weight; the line whose counter is
lowest goes next, first come first served within it ("Fairness in Serving Large Language Models",
OSDI 2024). A line that lacks blocks is parked, and costs nothing until some are released.
"""

import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice
from math import inf
from typing import Any, NamedTuple

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import RequestStatus

from saltwall_engine.ledger import Account
from saltwall_engine.pool import OwnedBlockPool

PROBES_PER_STEP = 64
"""Parked lines that are looked at in one step: a bound on its cost, not on who gets served."""

URGENT_PER_STEP = 8
"""Lines that blocks are reclaimed for in one step; the others wait for a later one."""

RECENT_S = 60.0
"""How long a tenant that has no more work still counts as one who may be back (seconds)."""
_RECENT_PASSES = 2
"""Passes after an admission in which its tenant's next request comes as soon as it can: in async
scheduling the next step is scheduled before the answer is known."""
_HEAD_LOOKS = 8
"""Requests of one line that are looked at for one that is able to run."""
_UPCOMING = 256
"""Lines of which a step keeps tokens for what waits."""
_FLOOR_LOOKS = 64
"""Lines that are looked at for the least counter of those that compete."""
_RECLAIM_PASSES = 16
"""How often a parked line is looked at whatever is free, if its tenant is below its reserve, or
quotas may have outgrown its head (passes)."""
_LOOKUPS_PER_PASS = 1 << 15
"""Tokens of parked heads that are looked up again because more is cached, or by way of trial."""
_TOKENS_PER_PASS = 2048
"""How fast one head's prompt may be looked up again for that."""

_Entry = tuple[float, int, "Line"]


def _able(request: Any) -> bool:
    """Whether a waiting request waits for its turn alone, and not for a grammar, say."""
    if request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
        # vLLM changes the status when it next tries the request, which takes a slot and tokens.
        structured = request.structured_output_request
        grammar = None if structured is None else structured.grammar
        return grammar is not None and not isinstance(grammar, Exception)
    return request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class Parked(NamedTuple):
    """What a line waits for."""

    request_id: str
    """Of the first request that was able to run."""
    tokens: int
    """Of its prompt and output so far."""
    pins: int
    """Blocks that it needs."""
    hits: int
    """Those of them that are idle ones found cached."""
    stored: int
    """`Account.stored` by then."""
    since: int
    """The pass."""


class Line:
    """One tenant's waiting requests."""

    __slots__ = (
        "account",
        "entry",
        "parked",
        "requests",
        "sits_out",
        "stood_by",
        "urgent",
    )

    def __init__(self, account: Account) -> None:
        self.account = account
        self.requests: OrderedDict[str, Any] = OrderedDict()
        self.entry: _Entry | None = None
        """Where it stands among the lines that can be served: its counter then, and a number."""
        self.parked: Parked | None = None
        self.urgent = False
        """Its tenant is below its reserve: blocks are being reclaimed for its head."""
        self.sits_out = 0
        """The pass in which nothing more of it is looked at."""
        self.stood_by = False
        """Since its last admission its head could not be served, whoever's turn it was."""


class TenantQueue(RequestQueue):
    """vLLM's waiting queue, in which no tenant stands behind another one that cannot be served.

    It is true, in the sense of `bool`, while it has a request to try in the present pass.
    """

    def __init__(
        self,
        pool: OwnedBlockPool,
        policy: SchedulingPolicy,
        clock: Callable[[], float] = time.monotonic,
        prefilling: Collection[Any] = (),
    ) -> None:
        """
        Args:
            pool: knows whose a request is.
            policy: of vLLM, within a line.
            clock: seconds.
            prefilling: the running requests whose prompts are being computed, kept up to date.
        """
        self._pool = pool
        self._prefilling = prefilling
        self._by_priority = policy == SchedulingPolicy.PRIORITY
        self._lines: dict[Account, Line] = {}
        self._ready: list[_Entry] = []
        """In order; a counter that has grown since is put where it belongs when it is met."""
        self._parked: OrderedDict[Line, None] = OrderedDict()
        self.urgent: OrderedDict[Line, None] = OrderedDict()
        self._sitting: list[Line] = []
        self._emptied: list[Line] = []
        self._most = 0.0
        self._admitted = 0.0
        self._live: dict[Account, None] = {}
        self._left: OrderedDict[Account, float] = OrderedDict()
        self._clock = clock
        self.step_tokens = 0
        """Prefill tokens of a step that several tenants share."""
        self.weight = 0.0
        """Of the tenants with unfinished requests, together."""
        self._serial = 0
        self._size = 0
        self._pass = 1
        self._closed = False
        self._first: Line | None = None
        self._peeked: tuple[Line, Any] | None = None
        self._in_turn = True
        """What was peeked at last is there for its counter."""

    # A pass: one look of the scheduler at what waits.

    def begin_pass(self, *, stuck: bool) -> None:
        """Starts the next pass: who sat out is back, and some of the parked are looked at.

        Args:
            stuck: nothing runs, so that nothing will be released: the parked are tried in any case.
        """
        self._pass += 1
        self._closed = False
        self._first = None
        self._peeked = None
        sitting, self._sitting = self._sitting, []
        for line in sitting:
            self._list(line)
        emptied, self._emptied = self._emptied, []
        for line in emptied:
            if not line.requests and self._lines.get(line.account) is line:
                self._unpark(line)
                del self._lines[line.account]
        looked_up = 0
        for _ in range(min(PROBES_PER_STEP, len(self._parked))):
            line, _ = self._parked.popitem(last=False)
            head = self.head(line.account)
            back = stuck or self._may_fit(line, head)
            if not back and looked_up < _LOOKUPS_PER_PASS and self._is_due(line, head):
                looked_up += line.parked.tokens if line.parked else 0
                back = True
            if back:
                line.parked = None
                self._list(line)
            else:
                self._parked[line] = None

    def _may_fit(self, line: Line, head: Any) -> bool:
        """Whether there is room for a parked line's head, as far as known without a look at it."""
        account, parked = line.account, line.parked
        assert parked is not None  # noqa: S101  # for the type checker: it is parked
        if parked.request_id != head.request_id and _able(head):
            return True  # one that could not run when it was parked
        ceiling = account.old_ceilings.get(head.request_id)
        return self._pool.ledger.allowance(account, parked.hits, ceiling) >= parked.pins

    def _is_due(self, line: Line, head: Any) -> bool:
        """Whether a parked line's head is to be looked at whatever is free."""
        account, parked = line.account, line.parked
        assert parked is not None  # noqa: S101  # for the type checker: it is parked
        passes = self._pass - parked.since
        if account.stored != parked.stored and passes * _TOKENS_PER_PASS >= parked.tokens:
            return True
        return passes >= _RECLAIM_PASSES and (
            account.stored != parked.stored
            or account.pinned < account.reserve
            or head.num_preemptions > 0
            or parked.pins > self._pool.ledger.limit(account)
        )

    def put_first(self, account: Account) -> None:
        """The tenant's head comes first in this pass: something was made free for it."""
        self._first = self._lines[account]

    def try_again(self, account: Account) -> None:
        """What was made free for the tenant's head in this pass is there for it in this pass."""
        self._lines[account].sits_out = 0

    def close_pass(self) -> None:
        """Nothing more is tried in this pass."""
        self._closed = True

    def sit_out(self, account: Account) -> None:
        """Nothing more of this tenant is tried in this pass."""
        self._lines[account].sits_out = self._pass

    def park(self, account: Account, pins: int, hits: int, *, reclaim: bool = True) -> None:
        """The tenant's head lacks blocks: it is tried again when they may suffice.

        Args:
            account: the tenant's.
            pins: the blocks that its head would pin.
            hits: those of them that are idle blocks found cached.
            reclaim: whether blocks may be reclaimed for it, if its tenant is below its reserve and
                its ceiling is not what it waits for.
        """
        line = self._lines[account]
        self._unpark(line)
        line.sits_out = self._pass
        if (
            reclaim
            and account.pinned < account.reserve
            and account.pinned + pins <= account.ceiling
        ):
            line.urgent = True
            self.urgent[line] = None
        else:
            head = self.head(account)
            line.parked = Parked(
                head.request_id, head.num_tokens, pins, hits, account.stored, self._pass
            )
            line.stood_by = True
            self._parked[line] = None
        self._unlist(line)

    def stand_by(self, account: Account) -> None:
        """The tenant's head, if it waits here, waits for something else than its turn."""
        line = self._lines.get(account)
        if line is not None and line.requests:
            line.stood_by |= not _able(self.head(account))

    def admit(self, account: Account) -> None:
        """The tenant's head is being admitted: what follows it is not urgent for that."""
        line = self._lines[account]
        if line.urgent:
            self._unpark(line)

    def unpark(self, account: Account) -> None:
        """Something that this tenant's head waited for may have changed."""
        line = self._lines.get(account)
        if line is not None:
            self._unpark(line)

    def _unpark(self, line: Line) -> None:
        if line.parked is not None:
            line.parked = None
            del self._parked[line]
        if line.urgent:
            line.urgent = False
            del self.urgent[line]
        self._list(line)

    def _list(self, line: Line) -> None:
        if line.entry or line.parked is not None or line.urgent or not line.requests:
            return
        self._serial += 1
        line.entry = (line.account.tokens, self._serial, line)
        insort(self._ready, line.entry)

    def _unlist(self, line: Line) -> None:
        if line.entry:
            del self._ready[bisect_left(self._ready, line.entry)]
            line.entry = None

    def _relist(self, line: Line) -> None:
        self._unlist(line)
        self._list(line)

    def _in_order(self) -> Iterator[Line]:
        """The lines that can be served, the lowest counter first."""
        place = 0
        while place < len(self._ready):
            tokens, _, line = self._ready[place]
            if tokens != line.account.tokens:
                self._relist(line)
                continue
            yield line
            place += line.entry is not None  # else it was taken out

    def _next(self) -> Line | None:
        if self._closed:
            return None
        first = self._first
        if first is not None and first.requests and first.sits_out != self._pass:
            return first
        for line in islice(self.urgent, URGENT_PER_STEP):
            if line.requests and line.sits_out != self._pass:
                return line
        for line in self._in_order():
            if line.sits_out != self._pass:
                return line
            self._unlist(line)
            self._sitting.append(line)
        return None

    @property
    def tenants(self) -> int:
        """How many tenants have unfinished requests."""
        return len(self._live)

    def heads(self, most: int, beside: int, wanted: Callable[[Account], bool]) -> list[Any]:
        """The heads of at most the `most` wanted lines that come next.

        Args:
            beside: how many others there may be before them.
        """
        return [self.head(line.account) for line in self._upcoming(most, beside, wanted)]

    def upcoming(self, most: int, served: Callable[[Account], float]) -> Iterator[Any]:
        """The `most` requests that come next, if each is served when it comes.

        Args:
            served: by how much a tenant's counter is higher by then, infinite when no more of its
                requests can be served; asked after each of them.
        """
        lines = self._upcoming(min(most, _UPCOMING))
        turns = [(line.account.tokens, number) for number, line in enumerate(lines)]
        heapify(turns)
        requests = [filter(_able, islice(line.requests.values(), most)) for line in lines]
        while most > 0 and turns:
            _, number = turns[0]
            account, request = lines[number].account, next(requests[number], None)
            if request is not None:
                yield request
                most -= 1
            after = inf if request is None else account.tokens + served(account)
            if after < inf:
                heapreplace(turns, (after, number))
            else:
                heappop(turns)

    def _upcoming(
        self, most: int, beside: int = 0, wanted: Callable[[Account], bool] = lambda _: True
    ) -> list[Line]:
        """Of the next lines, a bounded number, those whose head is able to run."""
        urgent = sorted(islice(self.urgent, URGENT_PER_STEP), key=lambda x: x.account.tokens)
        lines = islice(chain(urgent, self._in_order()), 4 * most + beside)
        able = (
            line
            for line in lines
            if wanted(line.account) and line.sits_out != self._pass and self._competes(line)
        )
        return list(islice(able, most))

    # Counters: neither credit nor debt comes of times in which a tenant did not compete.

    def arrive(self, account: Account) -> None:
        """Counts a new request; a tenant that had none waiting is lifted to those that compete.

        What runs does not keep a counter low: or else one long generation would save up credit.
        Whose requests were all admitted just now, and who sends the next ones, has not been away:
        it is owed the step that another one may have had meanwhile.
        """
        if not account.waiting:
            recent = self._pass - account.admitted_in <= _RECENT_PASSES
            floor = self._floor(step=self.step_tokens if recent else 0)
            account.tokens = max(account.tokens, floor)
        account.live += 1
        if account.live == 1:
            self._left.pop(account, None)
            self._live[account] = None
            self.weight += account.weight

    def compete(self, account: Account) -> None:
        """A request of the tenant's is being admitted, at the least counter of all that could be.

        So a counter below that of the last one was left behind by a line that could not be served:
        it waited for blocks, or for a grammar. That earns nothing (start-time fair queueing,
        SIGCOMM 1996); nor where nobody was admitted meanwhile, and others decoded.
        """
        line = self._lines.get(account)
        if line is not None and line.stood_by:
            line.stood_by = False
            account.tokens = max(account.tokens, self._floor(account))
        if self._pass - account.admitted_in > 2 * _RECENT_PASSES:  # else it was not left behind
            account.tokens = max(account.tokens, self._admitted)
        account.admitted_in = self._pass
        if self._in_turn:  # the lowest one's part of a step may be of several requests
            self._admitted = max(self._admitted, min(account.tokens, self._floor(account)))

    def _floor(self, but: Account | None = None, step: int = 0) -> float:
        """The least counter of the tenants that compete; where none does, the highest of all.

        Nobody is owed what others were given while nobody waited.

        Args:
            but: a tenant that does not count.
            step: tokens of which the one with the least counter may have been served last.
        """
        competing = [request.saltwall_holder.account for request in self._prefilling]
        for line in chain(islice(self.urgent, URGENT_PER_STEP), self._sitting):
            if self._competes(line):
                competing.append(line.account)
        for looks, line in enumerate(self._in_order(), 1):
            # Those after the last one looked at are not below it.
            if line.account is not but and (looks >= _FLOOR_LOOKS or self._competes(line)):
                competing.append(line.account)
                break
        competing = [account for account in competing if account is not but]
        if not competing:
            self._most = max(self._most, *(account.tokens for account in self._live), 0.0)
            return self._most
        least = min(competing, key=lambda account: account.tokens)
        return least.tokens - step / least.weight

    def _competes(self, line: Line) -> bool:
        return bool(line.requests) and line.parked is None and _able(self.head(line.account))

    def leave(self, account: Account) -> None:
        """Counts a request that finished."""
        account.live -= 1
        if not account.live:
            self._left[account] = self._clock()
            self._most = max(self._most, account.tokens)
            del self._live[account]
            self.weight = self.weight - account.weight if self._live else 0.0

    @property
    def contended(self) -> bool:
        """Whether more than one tenant has work, or had some in the last minute."""
        left = self._left
        while left and next(iter(left.values())) < self._clock() - RECENT_S:
            left.popitem(last=False)
        return self.tenants + len(left) > 1

    def reweigh(self, account: Account, before: float) -> None:
        """The tenant's weight has changed, and so has its lead, counted under the old one."""
        if account.weight == before:
            return
        if account.live:
            self.weight += account.weight - before
        lead = account.tokens - (floor := self._floor())
        if lead > 0:
            account.tokens = floor + lead * before / account.weight
            line = self._lines.get(account)
            if line is not None and line.entry:
                self._relist(line)  # it would be too late

    # vLLM's interface.

    def add_request(self, request: Any) -> None:
        """Puts a request at the end of its tenant's line."""
        line = self._line(request)
        line.requests[request.request_id] = request
        self._count(line.account, 1)
        self._list(line)

    def prepend_request(self, request: Any) -> None:
        """Puts a request at the head of its tenant's line, which then waits for another head."""
        self._unpark(self._put_back(request))

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Puts requests back that were skipped, the first one last."""
        for request in requests:
            self._list(self._put_back(request))

    def _put_back(self, request: Any) -> Line:
        line = self._line(request)
        line.requests[request.request_id] = request
        line.requests.move_to_end(request.request_id, last=False)
        self._count(line.account, 1)
        return line

    def peek_request(self) -> Any:
        """The request to try next.

        Raises:
            IndexError: there is none in this pass.
        """
        line = self._next()
        if line is None:
            raise IndexError("nothing to try in this pass")
        self._peeked = line, self._head(line)
        self._in_turn = line is not self._first and not line.urgent
        return self._peeked[1]

    def pop_request(self) -> Any:
        """Removes the request that was peeked at last, or else the one to try next."""
        if self._peeked is None:
            self.peek_request()
        line, request = self._peeked  # type: ignore[misc]
        self._peeked = None
        if line is self._first and _able(request):  # else the next one is
            self._first = None
        self._remove(line, request)
        return request

    def remove_request(self, request: Any) -> None:
        """Removes one request.

        Raises:
            ValueError: it is not here.
        """
        line = self._lines.get(self._account(request))
        if line is None or request.request_id not in line.requests:
            raise ValueError("the request is not waiting")
        self._remove(line, request)
        self._unpark(line)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Removes those of the requests that are here."""
        for request in requests:
            line = self._lines.get(self._account(request))
            if line is not None and request.request_id in line.requests:
                self._remove(line, request)
                self._unpark(line)

    def is_urgent(self, account: Account) -> bool:
        """Whether blocks are being reclaimed for the tenant's head."""
        return self._lines[account].urgent

    def of(self, account: Account) -> list[Any]:
        """One tenant's waiting requests, in order."""
        line = self._lines.get(account)
        return list(line.requests.values()) if line is not None else []

    def head(self, account: Account) -> Any:
        """The first of a tenant's waiting requests that is able to run, or else the first."""
        line = self._lines[account]
        if self._by_priority:
            return min(filter(_able, line.requests.values()), default=None) or self._head(line)
        able = filter(_able, islice(line.requests.values(), _HEAD_LOOKS))
        return next(able, None) or self._head(line)

    def __bool__(self) -> bool:
        return self._next() is not None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        """All requests, line by line."""
        for line in sorted(self._lines.values(), key=lambda line: line.account.tokens):
            requests = list(line.requests.values())
            yield from sorted(requests) if self._by_priority else requests

    def _account(self, request: Any) -> Account:
        return self._pool.holder_of(request).account

    def _line(self, request: Any) -> Line:
        account = self._account(request)
        line = self._lines.get(account)
        if line is None:
            line = self._lines[account] = Line(account)
        return line

    def _head(self, line: Line) -> Any:
        if self._by_priority:
            return min(line.requests.values())
        return next(iter(line.requests.values()))

    def _remove(self, line: Line, request: Any) -> None:
        del line.requests[request.request_id]
        self._count(line.account, -1)
        if not line.requests:  # what is skipped comes back within the pass
            self._unlist(line)
            self._emptied.append(line)

    def _count(self, account: Account, requests: int) -> None:
        self._size += requests
        account.waiting += requests

    def check_integrity(self) -> None:
        """Raises:
        AssertionError: a line can neither be served nor is anything awaited for it.
        """
        if self._size != sum(len(line.requests) for line in self._lines.values()):
            raise AssertionError("the number of waiting requests is off")
        ready = [line for _, _, line in self._ready]
        if ready != sorted(ready, key=lambda line: line.entry):  # type: ignore[arg-type,return-value]
            raise AssertionError("the lines that can be served are out of order")
        for line in self._lines.values():
            if line.account.waiting != len(line.requests):
                raise AssertionError(f"{line.account.tenant}: the waiting are miscounted")
            places = (line.entry is not None, line.parked is not None, line.urgent)
            if bool(line.requests) != any(places) and line not in self._sitting + self._emptied:
                raise AssertionError(f"{line.account.tenant}: waits in {places}")
            kept = (line in ready, line in self._parked, line in self.urgent)
            if kept != places or ready.count(line) > 1 or sum(places) > 1:
                raise AssertionError(f"{line.account.tenant}: stands in {kept}, not in {places}")
        waiting = (line.account.weight for line in self._lines.values() if line.requests)
        if sum(waiting) > self.weight + 1e-6:
            raise AssertionError("the weights of active tenants do not add up")
