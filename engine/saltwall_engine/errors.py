"""What the engine plugin raises."""

from collections.abc import Sequence


class BootRefused(RuntimeError):
    """The engine must not start like this; the message names each setting and its remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(
            "Saltwall refuses to start this engine:\n" + "\n".join(f"  - {p}" for p in problems)
        )


class UnsaltedRequest(RuntimeError):
    """A request without a tenant's salt reached the block hasher, which hashes none such."""
