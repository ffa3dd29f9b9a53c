"""Ways to write a sentence, each written once over the models' protocol."""

from heedful.decoding.beam import Found, beam, search
from heedful.decoding.ensemble import Ensemble
from heedful.decoding.flow import Flow
from heedful.decoding.rules import Hypothesis, Rules, log_probs
from heedful.decoding.settings import PENALTIES, Decoding, DecodingKeywords, batch_by_length, length_limit
from heedful.decoding.writing import Draw, Written, argmax, greedy, sample, write

__all__ = [
    "PENALTIES",
    "Decoding",
    "DecodingKeywords",
    "Draw",
    "Ensemble",
    "Flow",
    "Found",
    "Hypothesis",
    "Rules",
    "Written",
    "argmax",
    "batch_by_length",
    "beam",
    "greedy",
    "length_limit",
    "log_probs",
    "sample",
    "search",
    "write",
]
