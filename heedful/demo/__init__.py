"""`heedful demo`: models trained on an embedded corpus, and their report.

`run` compares three models of the same size on Hindi–English pairs; `pronouns` looks for the head that resolves `it`.
"""

from heedful.demo.run import DemoDisplay, run
from heedful.demo.training import FAST, FULL, DemoModel, Plan, TrainingStatus

__all__ = ["FAST", "FULL", "DemoDisplay", "DemoModel", "Plan", "TrainingStatus", "run"]
