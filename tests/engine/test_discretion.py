"""What vLLM logs of an exception does not quote the request that caused it."""

import logging
from typing import Any

import pytest

PROMPT = "canary-5a1d-regex"


@pytest.fixture
def discreet() -> None:
    """The record factory of a serving engine."""
    from saltwall_engine.discretion import withhold_messages

    withhold_messages()


def log_a_failure() -> None:
    """Logs as vLLM does: an exception with its trace, and an exception as an argument."""
    logger = logging.getLogger("vllm.entrypoints")
    logger.propagate = True
    try:
        try:
            raise KeyError(PROMPT)
        except KeyError:
            raise ValueError(f"Regex compilation timed out. Pattern: {PROMPT}")  # noqa: B904
    except ValueError as error:
        logger.exception("request failed")
        logger.error("request failed: %s", error)


def test_messages_are_withheld_and_types_and_places_stay(
    discreet: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the exception nor what it was raised from is quoted; where it was raised is."""
    logging.getLogger("vllm").propagate = True
    log_a_failure()
    assert "ValueError (its message may hold tenants' data)" in caplog.text
    assert "log_a_failure" in caplog.text
    assert PROMPT not in caplog.text


def test_without_it_the_request_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The control: the same failure on a stock logger."""
    logging.getLogger("vllm").propagate = True
    log_a_failure()
    assert PROMPT in caplog.text


def test_what_another_factory_adds_to_records_stays() -> None:
    """vLLM's formatter names the process from a field that its own record factory sets."""
    from saltwall_engine.discretion import withhold_messages

    def named(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = logging.LogRecord(*args, **kwargs)
        record.vllm_process_name = "APIServer"
        return record

    logging.setLogRecordFactory(named)
    for _ in range(2):
        withhold_messages()
        record = logging.getLogger("vllm.saltwall").makeRecord(
            "vllm.saltwall", logging.INFO, "file", 1, "served", (), None
        )
        assert vars(record)["vllm_process_name"] == "APIServer"
