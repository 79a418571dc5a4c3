"""GET /v1/models and /v1/models/{id}: the models that this key may use, and no others."""

import json
import time
from dataclasses import dataclass, field

from saltwall_platform.auth import Authenticator
from saltwall_platform.errors import model_not_found
from saltwall_platform.exchange import Exchange
from saltwall_platform.replicas import Replicas

_JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class ModelList:
    """The handler of both routes."""

    authenticator: Authenticator
    replicas: Replicas
    created: int = field(default_factory=lambda: int(time.time()))

    async def all(self, exchange: Exchange) -> None:
        """Lists models."""
        models = [self._describe(model) for model in await self._allowed(exchange)]
        body = json.dumps({"object": "list", "data": models}).encode()
        await exchange.reply.whole(200, body, _JSON)

    async def one(self, exchange: Exchange, model: str) -> None:
        """Shows one model."""
        if model not in await self._allowed(exchange):
            raise model_not_found()
        await exchange.reply.whole(200, json.dumps(self._describe(model)).encode(), _JSON)

    async def _allowed(self, exchange: Exchange) -> list[str]:
        exchange.caller = await self.authenticator.caller(exchange.headers)
        return self.replicas.allowed(exchange.caller.principal)

    def _describe(self, model: str) -> dict[str, object]:
        return {"id": model, "object": "model", "created": self.created, "owned_by": "saltwall"}
