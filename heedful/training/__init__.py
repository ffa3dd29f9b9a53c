"""Training: `run_training` trains a model on sentence pairs. Start reading at `loop`, then `step`."""

from heedful.training.callbacks import Callback, Progress, Reporter, RunOutcome, Sample, Validation
from heedful.training.estimate import Estimate
from heedful.training.loop import estimate_run, run_training
from heedful.training.prepare import Inputs

__all__ = [
    "Callback",
    "Estimate",
    "Inputs",
    "Progress",
    "Reporter",
    "RunOutcome",
    "Sample",
    "Validation",
    "estimate_run",
    "run_training",
]
