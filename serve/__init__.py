"""The OpenAI-compatible server: any strategy with a budget, by the name of a model."""
