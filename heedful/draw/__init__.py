"""Pictures of traces, without torch.

`heatmap` and `overview` are for the terminal. `views` has every picture by its name, as SVG, PNG or interactive page:
`svg` the heat map, `braid` ribbons between words, `heads` all heads at once, `regions` an image once for each word of
its caption, which is for the terminal, too. `all_heads` has those of other libraries' models, with a ranking. `chart`
has lines and bars.
"""

from heedful.draw import all_heads, braid, chart, heads, regions, svg, views
from heedful.draw.terminal import heatmap, overview

__all__ = ["all_heads", "braid", "chart", "heads", "heatmap", "overview", "regions", "svg", "views"]
