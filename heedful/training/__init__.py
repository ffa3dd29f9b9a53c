"""Loss, schedule, loop, validation, checkpoints; `train` does it all."""

from heedful.training.inputs import Inputs
from heedful.training.records import Outcome, Progress, Silent, Validation, Watch
from heedful.training.start import begin, recorded_inputs, train

__all__ = ["Inputs", "Outcome", "Progress", "Silent", "Validation", "Watch", "begin", "recorded_inputs", "train"]
