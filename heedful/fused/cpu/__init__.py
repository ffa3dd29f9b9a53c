"""Fast versions for CPUs; `FastDecoder` runs on any device."""

__all__: list[str] = []
