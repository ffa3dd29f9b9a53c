"""Reading weights from a model, ours or another's, and choosing how links are read from them."""

from heedful.observe.choosing import Measured, choose_readout, choose_symmetry, measured
from heedful.observe.evidence import Evidence, Judge, Sighted
from heedful.observe.influence import NAMES, WAYS, Agreement, agreement
from heedful.observe.reading import Reading, read
from heedful.observe.seen import Call, Seen
from heedful.observe.watching import watch

__all__ = [
    "NAMES",
    "WAYS",
    "Agreement",
    "Call",
    "Evidence",
    "Judge",
    "Measured",
    "Reading",
    "Seen",
    "Sighted",
    "agreement",
    "choose_readout",
    "choose_symmetry",
    "measured",
    "read",
    "watch",
]
