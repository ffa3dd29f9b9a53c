"""Records to pictures. Nothing here knows torch.

`heatmap` and `overview` are for the terminal; `svg.heatmap` is the heat map as SVG, and `chart` has lines and bars.
"""

from heedful.draw import chart, svg
from heedful.draw.overview import overview
from heedful.draw.terminal import heatmap

__all__ = ["chart", "heatmap", "overview", "svg"]
