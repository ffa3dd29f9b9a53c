"""Ways to write a sentence, each written once over the models' protocol."""

from heedful.decoding.greedy import Hypothesis, greedy

__all__ = ["Hypothesis", "greedy"]
