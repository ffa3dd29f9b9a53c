"""The models behind one protocol. They know tensors only, never text or files."""

from heedful.fused.cpu.transformer import pack_weights
from heedful.models.build import Network, build
from heedful.models.protocol import Memory, NeedWeights, Seq2Seq, State, Step

__all__ = ["Memory", "NeedWeights", "Network", "Seq2Seq", "State", "Step", "build", "pack_weights"]
