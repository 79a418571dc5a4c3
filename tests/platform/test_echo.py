"""An error says what is wrong with a request, and quotes none of it."""

import random
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_platform.echo import EXACT_CHARS, RUN, without_echo

PROMPT = "canary-9f3b1c77-prompt"
VALIDATION = (
    "2 validation errors:\n"
    f"  {{'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid "
    f"integer', 'input': '{PROMPT}'}}\n"
    f"  {{'type': 'x', 'loc': 'body.logit_bias.{PROMPT}', 'msg': 'Not a token', 'input': 1}}"
)


def document(prompt: str = PROMPT, **more: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "a-model-with-a-long-name", "messages": [{"content": prompt}]} | more


def test_validation_errors_keep_field_and_rule() -> None:
    """The input goes, and a key of the client's own within the field's name too."""
    said = without_echo(VALIDATION, document(logit_bias={PROMPT: 1}))
    assert said == (
        "body.max_tokens: Input should be a valid integer; body.logit_bias.[…]: Not a token"
    )


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens must be at least 1, got -1. (parameter=max_tokens, value=-1)",
        "This model's maximum context length is 4096 tokens. Please reduce the length.",
        "The model `a-model-with-a-long-name` does not support tools.",
    ],
)
def test_what_quotes_nothing_is_untouched(message: str) -> None:
    """Numbers, field names and the model's name are not quotations."""
    assert without_echo(message, document(parameter=1, max_tokens=-1)) == message


def test_a_quotation_in_free_text_is_struck() -> None:
    """Grammar errors quote the client's grammar, here twice."""
    message = f"Grammar error: invalid regex ({PROMPT} in\n1 | start: /({PROMPT}/"
    said = without_echo(message, document(structured_outputs={"regex": f"({PROMPT}"}))
    assert said == "Grammar error: invalid regex […] in\n1 | start: /[…]/"


def test_pydantics_own_text_loses_its_inputs() -> None:
    """However short they are."""
    text = (
        "1 validation error for Part\ntext\n  Input should be a string [type=x, input_value=['a']]"
    )
    said = "1 validation error for Part\ntext\n  Input should be a string"
    assert without_echo(text, document()) == said


def test_what_cannot_be_read_of_a_validation_error_is_not_shown() -> None:
    """A list cut off in the middle of an input gives the errors before it and nothing else."""
    said = without_echo(VALIDATION[: VALIDATION.index(PROMPT) + 5], document())
    assert said == "A field of the request is not valid."


@given(st.text(min_size=RUN), st.text(), st.text())
def test_no_long_run_of_the_prompt_survives(prompt: str, before: str, after: str) -> None:
    """Whatever surrounds it, a quoted prompt is gone."""
    said = without_echo(before + prompt + after, document(prompt))
    assert not any(prompt[i : i + RUN] in said for i in range(len(prompt) - RUN + 1))


def test_a_quotation_from_a_huge_request_is_struck() -> None:
    """In a large body runs of twice the length are still found, wherever they begin."""
    letters = random.Random(7).choices(string.ascii_letters, k=4 * EXACT_CHARS)
    prompt = "".join(letters)
    for start in range(100_000, 100_000 + RUN):
        quoted = prompt[start : start + 4 * RUN]
        said = without_echo(f"bad: {quoted}", document(prompt))
        assert not any(quoted[i : i + 2 * RUN] in said for i in range(2 * RUN + 1))
