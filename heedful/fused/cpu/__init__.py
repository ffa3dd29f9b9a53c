"""Fast versions for CPUs; `fast_decode` runs on any device."""

__all__: list[str] = []
