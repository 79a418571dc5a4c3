"""A vLLM scheduler on the auditor's bench: the engine around it is vLLM's own, without a model."""
