"""Attacks on a scheduler, each by whoever may send requests; stock vLLM gives in to most."""
