"""vLLM's `AsyncLLM`, refusing at the call what can never fit its tenant's ceiling.

The engine core checks the same again, and decides; but only here can the server still answer 400,
also to a request for a stream.
"""

from copy import copy
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.utils import length_from_prompt_token_ids_or_embeds
from vllm.v1.engine.async_llm import AsyncLLM

from saltwall_engine.admission import MAX_REQUEST_LIFETIME_S
from saltwall_engine.api_state import ApiState
from saltwall_engine.fit import DoesNotFit, fit
from saltwall_tenants.wire import WireError, open_ticket


class FittingLLM(AsyncLLM):
    """An `AsyncLLM` that knows the quotas in force."""

    saltwall: ApiState

    def generate(self, prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's; what was left open is clamped to what fits.

        Raises:
            VLLMValidationError: it does not fit, at the call and not once it is iterated.
        """
        params = fitted(self.saltwall, prompt, sampling_params)
        return super().generate(prompt, params, *args, **kwargs)

    def encode(self, prompt: Any, pooling_params: Any, *args: Any, **kwargs: Any) -> Any:
        """As stock's.

        Raises:
            VLLMValidationError: the prompt does not fit.
        """
        check_prompt(self.saltwall, prompt)
        return super().encode(prompt, pooling_params, *args, **kwargs)


def upgrade(llm: AsyncLLM, state: ApiState) -> FittingLLM:
    """Upgrades the engine client that the API server has built, in place."""
    llm.__class__ = FittingLLM
    llm.saltwall = state
    return llm


def fitted(state: ApiState, prompt: Any, params: Any) -> Any:
    """The sampling parameters, with no more tokens to generate than the tenant's ceiling leaves.

    What vLLM's server fills in for an omitted `max_tokens` is all that the model's context leaves;
    so that, or more, counts as omitted (but on /v1/completions it is 16, which looks like any other
    16). `min_tokens` is a promise too.

    Raises:
        VLLMValidationError: the prompt, or an explicit `max_tokens`, can never fit.
    """
    needs, size = state.needs, _size(prompt)
    if needs is None or size is None:
        return params
    open_end = needs.max_model_len - size
    wanted = open_end if params.max_tokens is None else params.max_tokens
    most = _fit(state, prompt, size, wanted, explicit=wanted < open_end)
    if most < params.min_tokens:
        _fit(state, prompt, size, params.min_tokens, explicit=True, parameter="min_tokens")
    if most == params.max_tokens:
        return params
    params = copy(params)
    params.max_tokens = most
    return params


def check_prompt(state: ApiState, prompt: Any) -> None:
    """Raises:
    VLLMValidationError: the prompt alone can never fit.
    """
    size = _size(prompt)
    if size is not None:
        _fit(state, prompt, size, 1, explicit=False)


def _fit(
    state: ApiState,
    prompt: Any,
    size: int,
    max_tokens: int,
    *,
    explicit: bool,
    parameter: str = "max_tokens",
) -> int:
    needs = state.needs
    if needs is None:
        return max_tokens
    try:
        _, ticket = open_ticket(
            prompt.get("cache_salt"),
            state.keys.tickets,
            state.keys.name,
            max_age_s=MAX_REQUEST_LIFETIME_S,
        )
    except WireError:
        return max_tokens  # the engine core refuses it, with the reason
    try:
        return fit(
            size,
            max_tokens,
            explicit,
            state.quotas.limit(ticket.tenant),
            needs.blocks_for,
            needs.lookahead_tokens,
            parameter,
        )
    except DoesNotFit as error:
        state.misfits += 1
        raise VLLMValidationError(str(error)) from None


def _size(prompt: Any) -> int | None:
    """The prompt's tokens; None for what the server does not send: it comes rendered."""
    if not isinstance(prompt, dict):
        return None
    tokens, embeds = prompt.get("prompt_token_ids"), prompt.get("prompt_embeds")
    if tokens is None and embeds is None:
        return None
    return int(length_from_prompt_token_ids_or_embeds(tokens, embeds))
