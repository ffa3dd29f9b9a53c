"""Records to pictures. Nothing here knows torch.

`heatmap` and `overview` are for the terminal; `views` has every picture by its name, as SVG, PNG or a page: `svg` the
heat map, `braid` ribbons between words, `heads` all heads at once; and `chart` has lines and bars.
"""

from heedful.draw import braid, chart, heads, svg, views
from heedful.draw.overview import overview
from heedful.draw.terminal import heatmap

__all__ = ["braid", "chart", "heads", "heatmap", "overview", "svg", "views"]
