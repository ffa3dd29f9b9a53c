"""From settings to a model."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from heedful.config import FixedConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError
from heedful.models.protocol import Seq2Seq
from heedful.models.rnn import Bahdanau, Fixed, Luong
from heedful.models.transformer import Transformer

__all__ = ["Network", "build"]


class Network(nn.Module, Seq2Seq):
    """What `build` returns, for the type checker: a module that keeps the protocol."""

    def bf16_weights(self) -> list[Tensor]:
        """Return the weights of which training in bf16 may keep rounded copies (`heedful.fused.bf16_weights`)."""
        raise NotImplementedError


ORDERS = {"bahdanau": Bahdanau, "luong": Luong}


def build(config: ModelConfig, source: int, target: int) -> Network:
    """Return an untrained model for vocabularies of `source` and `target` tokens."""
    match config:
        case FixedConfig():
            return cast(Network, Fixed(config, source, target))
        case RnnConfig():
            return cast(Network, ORDERS[config.order](config, source, target))
        case TransformerConfig():
            return cast(Network, Transformer(config, source, target))
    raise ConfigError(f"no model is known for the settings {type(config).__name__}")
