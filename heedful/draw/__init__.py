"""Records to pictures. Nothing here knows torch."""

from heedful.draw.terminal import heatmap

__all__ = ["heatmap"]
