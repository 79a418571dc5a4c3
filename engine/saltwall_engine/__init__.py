"""The vLLM plugin: salted block hashes, tickets and policy enforced inside the engine."""
