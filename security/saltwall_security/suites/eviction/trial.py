"""What one attack did to its victims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from saltwall_security.engine_control import Account
from saltwall_security.prober import Refused
from saltwall_security.suites.eviction.flood import Flood
from saltwall_security.suites.eviction.strategies import Strategy
from saltwall_security.suites.eviction.victim import Asked, kept

TOO_MANY = 429


class Cold(NamedTuple):
    """A prompt of `tokens` that the server had to compute while others asked for much more.

    Args:
        ttft_s: None if it was given up.
        others: tokens that were computed for the attackers meanwhile.
    """

    ttft_s: float | None
    tokens: int
    others: float


@dataclass
class Phase:
    """What the victims saw for a while.

    Args:
        questions: the victim's, about what it has cached.
        exposed: those of the tenant without a reserve.
        waits: the victim's times to first token (seconds), of short prompts and of questions; the
            time until it was given up, where nothing came.
        cold: a long prompt that was not cached, sent under attack.
        unanswered: how many short prompts were given up.
        refused: how the server did not answer.
    """

    questions: list[Asked] = field(default_factory=list)
    exposed: list[Asked] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    cold: Cold | None = None
    unanswered: int = 0
    refused: list[Refused] = field(default_factory=list)

    @property
    def sent(self) -> int:
        """How many prompts were answered or not."""
        return len(self.waits) + len(self.refused)

    @property
    def limited_part(self) -> float:
        """The part of them that a limit on the tenant's own requests has turned away."""
        return self._part(refused.status == TOO_MANY for refused in self.refused)

    @property
    def turned_away_part(self) -> float:
        """The part that was turned away for other reasons."""
        return self._part(refused.status != TOO_MANY for refused in self.refused)

    def _part(self, these: Iterable[bool]) -> float:
        return sum(these) / self.sent if self.sent else 0.0


@dataclass
class Trial:
    """One attack, from before it to after it.

    Args:
        turned: whether the flood has replaced all that the pool holds, between a question and the
            one before; None if the pool's size is unknown.
        during, remains: what the engine did and held for the attackers before they hung up, and
            after.
        seconds: of the whole trial.
    """

    strategy: Strategy
    before: Phase
    attacked: Phase
    after: Phase
    flood: Flood
    turned: bool | None
    during: Account | None
    remains: Account | None
    seconds: float

    @property
    def hit_ratio(self) -> float | None:
        """What the victim found under attack of what it finds alone; None without a question."""
        return _ratio(
            kept(self.attacked.questions), kept(self.before.questions + self.after.questions)
        )

    @property
    def exposed_ratio(self) -> float | None:
        """The same of the tenant without a reserve."""
        return _ratio(kept(self.attacked.exposed), kept(self.before.exposed + self.after.exposed))

    @property
    def wait_ratio(self) -> float | None:
        """The victim's median time to first token under attack over alone."""
        alone = self.before.waits + self.after.waits
        return _ratio(_median(self.attacked.waits), _median(alone))

    @property
    def later_s(self) -> float:
        """By how much the median is later than alone (seconds)."""
        alone = _median(self.before.waits + self.after.waits)
        return (_median(self.attacked.waits) or 0.0) - (alone or 0.0)

    @property
    def noise_ratio(self) -> float | None:
        """The median alone afterwards over alone before: what the machine does by itself."""
        return _ratio(_median(self.after.waits), _median(self.before.waits))

    @property
    def crowd_ratio(self) -> float | None:
        """Tokens computed for the attackers while the victim's long prompt waited, over its own.

        Shares are counted in tokens, which other load on the machine does not change.
        """
        cold = self.attacked.cold
        return _ratio(cold.others, cold.tokens) if cold is not None else None

    @property
    def queue_ratio(self) -> float | None:
        """The victim's median time to first token over the attackers' own, at the same time."""
        return _ratio(_median(self.attacked.waits), _median(self.flood.waits))

    @property
    def load_ratio(self) -> float | None:
        """The attackers' own median time to first token over an idle server's."""
        return _ratio(_median(self.flood.waits), self.flood.solo_s)

    def figures(self) -> Mapping[str, float | int | None]:
        """All numbers of the trial."""
        alone = self.before.waits + self.after.waits
        return {
            "hit_rate_alone": _rate(self.before.questions + self.after.questions),
            "hit_rate_attacked": _rate(self.attacked.questions),
            "hit_ratio": self.hit_ratio,
            "hit_ratio_without_reserve": self.exposed_ratio,
            "questions_attacked": len(self.attacked.questions),
            "ttft_p50_alone_s": _percentile(alone, 50),
            "ttft_p95_alone_s": _percentile(alone, 95),
            "ttft_p50_attacked_s": _percentile(self.attacked.waits, 50),
            "ttft_p95_attacked_s": _percentile(self.attacked.waits, 95),
            "ttft_p50_ratio": self.wait_ratio,
            "ttft_p50_noise_ratio": self.noise_ratio,
            "ttft_p50_over_attackers": self.queue_ratio,
            "long_prompt_ttft_s": self.attacked.cold.ttft_s if self.attacked.cold else None,
            "tokens_for_attackers_meanwhile_ratio": self.crowd_ratio,
            "ttft_samples_attacked": len(self.attacked.waits),
            "unanswered": self.attacked.unanswered,
            "attack_requests": self.flood.requests,
            "attack_refusals": self.flood.refusals.total(),
            "attack_tokens": round(self.flood.computed),
            "pool_was_replaced": self.turned,
            "attackers_ttft_ratio": self.load_ratio,
            "seconds": self.seconds,
        }


def _rate(asked: list[Asked]) -> float | None:
    rates = [each.hit_rate for each in asked if each.hit_rate is not None]
    return float(np.mean(rates)) if rates else None


def _median(values: list[float]) -> float | None:
    return _percentile(values, 50)


def _percentile(values: list[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
