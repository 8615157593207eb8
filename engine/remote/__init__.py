"""Models that another server runs: the back end's protocol over OpenAI-compatible HTTP (vLLM, SGLang)."""
