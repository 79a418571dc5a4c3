"""Plain prompts, on whichever route the target has for them."""

import httpx

from saltwall_security.client import CHAT, COMPLETIONS, Answer, Client
from saltwall_security.errors import AuditError

MOST_CHARS = 200
"""Of what a server says."""


class Refused(AuditError):
    """The target did not answer a prompt; the message says what it said.

    Args:
        status: of the answer; None without one.
    """

    def __init__(self, said: str, status: int | None = None) -> None:
        super().__init__(said)
        self.status = status


def _beginning(text: str) -> str:
    """Whole words only: the part of a key would not be known for one, and be shown."""
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS].rpartition(" ")[0]


class Prober:
    """Asks for one token after a prompt: as a completion, or as a chat where there is no such
    route."""

    def __init__(self) -> None:
        self._path = COMPLETIONS

    async def __call__(self, client: Client, prompt: str, **fields: object) -> Answer:
        """The answer, streamed unless `fields` say otherwise.

        Raises:
            Refused: it was an error, or none came.
        """
        answer = await self._ask(client, prompt, fields)
        if answer.status in (404, 405) and self._path == COMPLETIONS:
            self._path = CHAT
            answer = await self._ask(client, prompt, fields)
        if not answer.ok:
            said = _beginning(str(answer.error.get("message") or "nothing more"))
            what = f"{client.target.url} refused a prompt with {answer.status}: {said}"
            raise Refused(what, answer.status)
        return answer

    def request(self, prompt: str) -> tuple[str, dict[str, object]]:
        """The route that was found, and the field with the prompt, for requests of one's own."""
        if self._path == COMPLETIONS:
            return COMPLETIONS, {"prompt": prompt}
        return CHAT, {"messages": [{"role": "user", "content": prompt}]}

    async def _ask(self, client: Client, prompt: str, fields: dict[str, object]) -> Answer:
        ask = client.complete if self._path == COMPLETIONS else client.chat
        try:
            return await ask(prompt, **{"stream": True, **fields})
        except httpx.HTTPError as error:
            raise Refused(f"{client.target.url} did not answer: {type(error).__name__}") from None
