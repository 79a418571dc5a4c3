"""How many sequences a request costs, and that nothing costs more than it is counted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saltwall_platform.errors import ApiError
from saltwall_platform.sequences import count_sequences

LIMIT = 8


@pytest.mark.parametrize(
    ("fields", "sequences"),
    [
        ({}, 1),
        ({"messages": [{}, {}, {}]}, 1),
        ({"prompt": "text"}, 1),
        ({"prompt": ["one", "two", "three"]}, 3),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": list(range(1000))}, 1),
        ({"prompt": [[1, 2], [3], [4]]}, 3),
        ({"prompt": []}, 1),
        ({"prompt": [[]]}, 1),
        ({"prompt": ["text", [1]]}, 2),
        ({"prompt_embeds": "base64"}, 1),
        ({"prompt_embeds": ["a", "b"]}, 2),
        ({"prompt": ["a", "b"], "prompt_embeds": ["c"]}, 3),
        ({"n": 8}, 8),
        ({"best_of": 8}, 8),
        ({"n": 2, "best_of": 4}, 4),
        ({"prompt": ["a", "b"], "n": 4}, 8),
        ({"prompt": ["a", "b"], "n": 4, "use_beam_search": True}, 8),
        ({"n": None, "best_of": None, "use_beam_search": None}, 1),
    ],
)
def test_prompts_times_choices_or_beams(fields, sequences):
    assert count_sequences(fields, LIMIT) == sequences


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 9},
        {"n": 10**30},
        {"best_of": 9},
        {"prompt": ["x"] * 9},
        {"prompt": [[1]] * 9},
        {"prompt": ["x"] * 3, "n": 3},
        {"prompt": ["x"] * 3, "n": 3, "use_beam_search": True},
        {"prompt_embeds": ["x"] * 9},
    ],
)
def test_more_than_the_limit_is_refused_with_the_numbers(fields):
    with pytest.raises(ApiError, match="at most 8") as caught:
        count_sequences(fields, LIMIT)
    assert caught.value.status == 400


@pytest.mark.parametrize("name", ["n", "best_of"])
@pytest.mark.parametrize("value", [0, -1, True, False, 2.0, 1e3, "2", "", [], [2], {}])
def test_a_number_that_vllm_could_read_otherwise_is_refused(name, value):
    with pytest.raises(ApiError, match="whole number"):
        count_sequences({name: value}, LIMIT)


@pytest.mark.parametrize("value", [1, 0, "true", [], {}])
def test_a_beam_flag_that_vllm_could_read_otherwise_is_refused(value):
    with pytest.raises(ApiError, match="true or false"):
        count_sequences({"use_beam_search": value}, LIMIT)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=20),
)


@given(st.dictionaries(st.sampled_from(["prompt", "prompt_embeds", "n", "best_of"]), VALUES))
def test_any_fields_are_counted_within_the_limit_or_refused(fields):
    try:
        sequences = count_sequences(fields, LIMIT)
    except ApiError as refusal:
        sequences = 1 if refusal.status == 400 else 0
    assert 1 <= sequences <= LIMIT
