"""Decoding: greedy, beam search, sampling and continuous batching, over the models' protocol only.

steps (greedy, sampling) · beam · rules (what may be decoded) · continuous_batching (for a service) · ensemble ·
slot_decoder (the same over static shapes, captured as CUDA graphs).
"""

from heedful.decoding.beam import Finished, beam, beam_steps
from heedful.decoding.continuous_batching import ContinuousBatch
from heedful.decoding.rules import (
    Decoding,
    DecodingKeywords,
    Hypothesis,
    Rules,
    batch_by_length,
    length_limit,
    log_probs,
)
from heedful.decoding.slot_decoder import SlotDecoder
from heedful.decoding.steps import DecodeStep, Sampler, argmax, decode_steps, greedy, sample

__all__ = [
    "ContinuousBatch",
    "DecodeStep",
    "Decoding",
    "DecodingKeywords",
    "Finished",
    "Hypothesis",
    "Rules",
    "Sampler",
    "SlotDecoder",
    "argmax",
    "batch_by_length",
    "beam",
    "beam_steps",
    "decode_steps",
    "greedy",
    "length_limit",
    "log_probs",
    "sample",
]
