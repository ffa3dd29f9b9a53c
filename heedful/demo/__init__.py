"""`heedful demo`: the embedded corpus, models of the same size trained side by side, and their report."""

from heedful.demo.run import DemoDisplay, run
from heedful.demo.training import FAST, FULL, DemoModel, Plan, TrainingStatus

__all__ = ["FAST", "FULL", "DemoDisplay", "DemoModel", "Plan", "TrainingStatus", "run"]
