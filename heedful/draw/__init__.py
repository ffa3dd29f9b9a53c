"""Records to pictures. Nothing here knows torch.

`heatmap` is the one for the terminal; `svg.heatmap` is the same as SVG, and `chart` has lines and bars.
"""

from heedful.draw import chart, svg
from heedful.draw.terminal import heatmap

__all__ = ["chart", "heatmap", "svg"]
