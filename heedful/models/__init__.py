"""The models behind one protocol, and `build`, which makes them. They know tensors only, never text or files."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from heedful.config import FixedConfig, ImageConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError
from heedful.fused.cpu.linear import pack_weights
from heedful.models.protocol import Memory, NeedWeights, Reread, Seq2Seq, SlotState, State, Step
from heedful.models.rnn import Bahdanau, Fixed, Luong
from heedful.models.transformer import Transformer

__all__ = [
    "Memory",
    "NeedWeights",
    "Network",
    "Reread",
    "Seq2Seq",
    "SlotState",
    "State",
    "Step",
    "build",
    "pack_weights",
]

ORDERS = {"bahdanau": Bahdanau, "luong": Luong}


class Network(nn.Module, Seq2Seq):
    """The type of a model, for the type checker: a module that keeps the protocol."""

    def bf16_weights(self) -> list[Tensor]:
        """Return the weights of which training in bf16 may keep rounded copies (`heedful.training.step`)."""
        raise NotImplementedError


def build(config: ModelConfig, source: int | ImageConfig, target: int) -> Network:
    """Return an untrained model for vocabularies of `source` and `target` tokens, or with an image as the source."""
    match config:
        case FixedConfig():
            return cast(Network, Fixed(config, source, target))
        case RnnConfig():
            return cast(Network, ORDERS[config.order](config, source, target))
        case TransformerConfig():
            return cast(Network, Transformer(config, source, target))
    raise ConfigError(f"no model for settings of the type {type(config).__name__}")
