"""Reading attention weights from a model, ours or another's, and influence: what words depended on."""

from heedful.observe.influence import NAMES, WAYS, Agreement, agreement
from heedful.observe.reading import Reading, read
from heedful.observe.watching import Call, Seen, watch

__all__ = [
    "NAMES",
    "WAYS",
    "Agreement",
    "Call",
    "Reading",
    "Seen",
    "agreement",
    "read",
    "watch",
]
