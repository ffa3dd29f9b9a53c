"""Serving models over HTTP: `engine` translates the sentences of many requests together, `http` is the web service.

Everything here needs the extra `serve`.
"""

__all__: list[str] = []
