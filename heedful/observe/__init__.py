"""Reading weights from a model."""

from heedful.observe.reading import Reading, read

__all__ = ["Reading", "read"]
