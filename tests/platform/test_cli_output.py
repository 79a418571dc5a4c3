"""What a command says must not decide how it ends."""

import os

from saltwall_platform.cli.output import tell


def test_a_closed_pipe_takes_everything() -> None:
    """Also what is flushed when the stream is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        tell(stream, "one")
        tell(stream, "two")


def test_what_a_stream_cannot_hold_is_replaced() -> None:
    """A model's name may be in any script."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="latin-1") as stream:
        tell(stream, "é 模型")
    with os.fdopen(reading, encoding="latin-1") as said:
        assert said.read() == "é ??"
