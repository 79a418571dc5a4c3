"""The engines as the gateway sees them: which can be sent a request, and why the others cannot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from saltwall_platform.errors import engine_unavailable, model_not_found
from saltwall_platform.settings import Engine
from saltwall_tenants.api_keys import Principal
from saltwall_tenants.wire import EngineKeys, TicketRoot

UNKNOWN_QUOTAS = "it has not answered a push yet"

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Replica:
    """One engine.

    Its pusher alone opens and closes it. `acknowledged` is the newest authorisation epoch that it
    confirmed, 0 for none. `quotas_tried` is the newest quota epoch that it was sent, taken or not,
    and `quotas_problem` says why it may enforce other quotas than those: it serves all the same.
    `fingerprint` is the `system_fingerprint` it puts into answers, empty for none, None until one
    was seen. `recounts_reasoning`: running usage makes it count all reasoning tokens from the start
    in every chunk, so it is spared that.
    """

    label: str
    engine: Engine
    keys: EngineKeys = field(repr=False)
    problem: str = "not reached yet"
    acknowledged: int = 0
    acknowledged_at: float | None = None
    quotas_tried: int = 0
    quotas_problem: str = UNKNOWN_QUOTAS
    requests: int = 0
    fingerprint: str | None = None
    recounts_reasoning: bool = False

    @property
    def routable(self) -> bool:
        """Whether requests may go there."""
        return not self.problem

    def open(self) -> None:
        """Lets requests through."""
        if self.problem:
            log.info("engine is routable", engine=self.label)
        self.problem = ""

    def close(self, problem: str) -> None:
        """Keeps requests away; `problem` says why, for the log and for readiness."""
        if problem != self.problem:
            log.warning("engine is not routable", engine=self.label, problem=problem)
        self.problem = problem

    def note_quotas(self, problem: str) -> None:
        """Remembers whether the quotas are enforced; a problem is an alarm, told once."""
        if problem and problem != self.quotas_problem:
            log.error("engine keeps its former quotas", engine=self.label, problem=problem)
        elif not problem and self.quotas_problem not in ("", UNKNOWN_QUOTAS):
            log.info("engine enforces the quotas again", engine=self.label)
        self.quotas_problem = problem


class Replicas:
    """All engines, by the models they serve."""

    def __init__(self, engines: Sequence[Engine], root: TicketRoot) -> None:
        names = [engine.name for engine in engines]
        keys = {name: root.engine_keys(name) for name in names}
        self._all = tuple(
            Replica(_label(engine.name, i, names), engine, keys[engine.name])
            for i, engine in enumerate(engines)
        )
        self.models = tuple(dict.fromkeys(m for engine in engines for m in engine.models))

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._all)

    def allowed(self, principal: Principal) -> list[str]:
        """The models that a principal may use."""
        return [m for m in self.models if principal.models is None or m in principal.models]

    def choose(
        self, principal: Principal, model: str, besides: frozenset[Replica] = frozenset()
    ) -> Replica:
        """The routable engine for a model with the fewest requests of ours.

        Args:
            besides: those that were tried already.

        Raises:
            ApiError: 404, no such model or not for this principal; 503, none is routable.
        """
        if model not in self.allowed(principal):
            raise model_not_found()
        serving = [r for r in self._all if model in r.engine.models and r.routable]
        untried = [r for r in serving if r not in besides]
        if not untried:
            raise engine_unavailable()
        return min(untried, key=lambda replica: replica.requests)


def _label(name: str, index: int, names: Sequence[str]) -> str:
    """The name, numbered where replicas share it."""
    if names.count(name) == 1:
        return name
    return f"{name}/{names[:index].count(name) + 1}"
