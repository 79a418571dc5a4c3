"""The time that a scheduler on the bench sees: it passes when a step is taken, and by so much."""

import time

STEP_S = 0.02
SLOW_TOKEN_S, FAST_TOKEN_S = 4e-4, 1e-6
"""What a token of a prompt takes besides: on a CPU, and on a GPU (seconds)."""


class Clock:
    """Stands for `time.monotonic` in a process of its own, so that no run depends on its speed."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.token_s = SLOW_TOKEN_S

    def __call__(self) -> float:
        return self.now

    def install(self) -> None:
        """Takes the place of `time.monotonic`; before the scheduler's modules are loaded."""
        time.monotonic = self

    def step(self, tokens: int) -> None:
        """A step with so many tokens has been computed."""
        self.now += STEP_S + self.token_s * tokens
