"""Whether the stack that was started can serve, and what it waits for until then."""

import httpx

from saltwall_platform.stack import engine_log
from saltwall_platform.stack.service import Service

TIMEOUT_S = 2.0


class Readiness:
    """Asks the gateway, which asks the engine."""

    def __init__(self, admin_url: str, engine: Service, gateway: Service) -> None:
        self._url = f"{admin_url}/readyz"
        self._engine, self._gateway = engine, gateway
        # No proxy of the environment's: these are addresses of this machine.
        self._client = httpx.Client(timeout=TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def missing(self) -> str:
        """What is awaited; empty when requests can be served."""
        try:
            answer = self._client.get(self._url)
        except httpx.HTTPError:
            return "gateway: starting" if self._gateway.running else "gateway: starting again"
        if answer.status_code == 200:
            return ""
        if not self._engine.running:
            return "engine: starting again"
        return f"engine: {engine_log.stage(self._engine.log_text())}"
