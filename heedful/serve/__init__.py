"""The service: models behind HTTP, and the page that shows where they look. Everything here needs the extra `serve`."""

__all__: list[str] = []
