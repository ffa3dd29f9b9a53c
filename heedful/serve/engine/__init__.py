"""The engine: translates the sentences of many requests together. It knows nothing of HTTP."""

__all__: list[str] = []
