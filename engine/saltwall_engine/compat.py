"""What differs between the vLLM versions that Saltwall supports."""

from typing import Any


def fail(scheduler: Any, request: Any, message: str) -> None:
    """Finishes a waiting request with an error when the present step's output is processed.

    Uses the way of requests whose grammar did not compile: a set of ids in vLLM 0.32, and errors by
    id in 0.33, which alone shows the message to the client.
    """
    failed = scheduler.grammar_compile_error_reqs
    if isinstance(failed, set):
        failed.add(request.request_id)
        return
    from vllm.outputs import RequestError

    failed[request.request_id] = RequestError(code="validation_error", message=message)
