"""Loss, schedule, loop, validation, checkpoints; `train` does it all."""

from heedful.training.display import Callback
from heedful.training.estimate import Estimate
from heedful.training.inputs import Inputs
from heedful.training.records import Outcome, Progress, Sample, Silent, Validation, Watch
from heedful.training.start import begin, train, try_out

__all__ = [
    "Callback",
    "Estimate",
    "Inputs",
    "Outcome",
    "Progress",
    "Sample",
    "Silent",
    "Validation",
    "Watch",
    "begin",
    "train",
    "try_out",
]
