"""Settings as small frozen dataclasses: each field knows what it allows, unknown keys are refused with a guess."""

from heedful.config.config import Config, read_recipe, section_of, settings
from heedful.config.models import MODELS, FixedConfig, ModelConfig, RecurrentConfig, RnnConfig, TransformerConfig
from heedful.config.runs import DataConfig, TextConfig, TrainingConfig

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Config",
    "DataConfig",
    "FixedConfig",
    "ModelConfig",
    "RecurrentConfig",
    "RnnConfig",
    "TextConfig",
    "TrainingConfig",
    "TransformerConfig",
    "__version__",
    "read_recipe",
    "section_of",
    "settings",
]
