"""Reading weights from a model, and choosing how links are read from them."""

from heedful.observe.choosing import Measured, choose_readout, choose_symmetry, measured
from heedful.observe.evidence import Evidence, Judge, Sighted
from heedful.observe.influence import WAYS, Agreement, agreement
from heedful.observe.reading import Reading, read

__all__ = [
    "WAYS",
    "Agreement",
    "Evidence",
    "Judge",
    "Measured",
    "Reading",
    "Sighted",
    "agreement",
    "choose_readout",
    "choose_symmetry",
    "measured",
    "read",
]
