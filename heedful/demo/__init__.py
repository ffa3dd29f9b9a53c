"""`heedful demo`: the embedded corpus, translators of the same size side by side, and what the comparison shows."""

from heedful.demo.plan import FAST, FULL, Contestant, Plan
from heedful.demo.race import Standing
from heedful.demo.run import Watch, run
from heedful.demo.words import summary

__all__ = ["FAST", "FULL", "Contestant", "Plan", "Standing", "Watch", "run", "summary"]
