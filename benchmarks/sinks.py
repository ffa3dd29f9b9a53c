"""How much weight goes to the first token: the attention sink of a decoder-only model, SmolLM2-135M, by layer.

python benchmarks/sinks.py [--models DIR] [--markdown] [--pictures DIR]

Four English texts of 100 to 200 tokens, of our own. For each layer, the mean over heads and over the queries from the
17th token on of the weight on the first token:

    as it is      the text alone: its first token is a word
    BOS           the token for the beginning, <|im_start|>, is before it; the weight on that token
    second        the same, the weight on the first word, which is now the second token
    replaced      another word is in the place of the first one; mean of six words
    moved         the first word is further back, after the twelfth; the weight on it there, and (`new first`) the
                  weight on the word that is now the first
    equal         if a query had the same weight on all tokens up to itself
    value         the length of the first token's value vectors by the mean length of all others

If the word attracted the weight, `moved` would be large and `replaced` small.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from model_packages import MODELS, SMOLLM, fetch, largest_difference
from numpy.typing import NDArray
from torch import Tensor

import heedful
from heedful.draw import chart
from heedful.draw.model_attention import ModelAttention
from heedful.errors import HeedfulError
from heedful.interop.transformers import open_transformers
from heedful.observe.tokens import tokenize

FROM = 16  # the first query that counts
AFTER = 12  # words, after which the first one is moved
PROMPT = "The capital of France is"
OTHERS = ("Table", "Seven", "Green", "Because", "Walking", "Never")
TEXTS = (
    # A story.
    "Once a month the ferry brought letters to the island. The old keeper of the lighthouse carried them up the "
    "hill in a leather bag, and read the addresses aloud to himself, because he liked the names of distant towns. "
    "One evening there was a letter for him. He put it on the kitchen table, made tea, and looked at it for an hour "
    "before he opened it. It came from a woman whom he had met thirty years before, on the mainland, in a shop that "
    "sold maps. She wrote that the shop was closed now, and that she had kept one map for him: the map of his own "
    "island, drawn by somebody who had never been there. He read the letter twice, lit the lamp in the tower, and "
    "began to write.",
    # An explanation.
    "Water expands when it freezes, which is why ice floats. In most other substances the solid is denser than the "
    "liquid and sinks. In ice each molecule is held by four neighbours at fixed angles, and the open lattice takes "
    "more space than the crowd of molecules in the liquid. A lake therefore freezes from above. The layer of ice "
    "keeps the cold air away from the water below, and fish survive the winter near the ground, where the "
    "temperature stays at about four degrees. If ice were heavier than water, lakes would freeze from below, and "
    "few of them would melt in spring.",
    # Instructions.
    "Peel two large onions and cut them into thin rings. Heat three spoons of oil in a wide pan, add the onions and "
    "a little salt, and stir them over a low flame until they are soft and brown; this takes about half an hour and "
    "cannot be hurried. Meanwhile boil a litre of stock. Add a spoon of flour to the onions, stir for one minute, "
    "and pour in the stock slowly. Let the soup simmer for twenty minutes. Toast four slices of bread, put cheese "
    "on them, and place one slice in each bowl before you pour the soup over it.",
    # A conversation.
    "Where did you leave the keys? I put them on the shelf beside the door, as always, and now they are gone. Did "
    "you look in your coat? Twice, and under the newspaper, and in the bowl with the apples. Perhaps the cat played "
    "with them again. Last week she carried a glove into the garden and hid it behind the roses. Then let us ask "
    "the cat. She will not tell us anything before she has had her dinner, and perhaps not even then. Wait, what is "
    "that sound in the washing machine?",
)


class SinkTable(NamedTuple):
    """Shares of weight by layer, each (L,)."""

    plain: NDArray[np.float64]
    bos: NDArray[np.float64]
    second: NDArray[np.float64]
    replaced: NDArray[np.float64]
    new_first: NDArray[np.float64]
    moved: NDArray[np.float64]
    value: NDArray[np.float64]


NAMES = ("as it is", "BOS", "second", "replaced", "new first", "moved", "value")


def replaced(text: str, word: str) -> str:
    """Return a text with another first word."""
    return f"{word} {text.split(maxsplit=1)[1]}"


def moved(text: str) -> str:
    """Return a text with its first word further back."""
    first, *others = text.split()
    return " ".join([others[0].capitalize(), *others[1:AFTER], first.lower(), *others[AFTER:]])


def token_of(tokenizer: Any, text: str, word: int) -> int:  # noqa: ANN401
    """Return the number of the first token of a word that white space separates."""
    start = len(" ".join(text.split()[:word])) + (word > 0)
    _, read = tokenize(tokenizer, text)
    return next(i for i, (first, last) in enumerate(read.spans) if first <= start < last)


def share(model: Any, tokenizer: Any, text: str, tokens: Sequence[int] = (0,)) -> NDArray[np.float64]:  # noqa: ANN401
    """Return the mean weight on some tokens, over heads and over the queries that count.  -> (tokens, L)."""
    weights = heedful.see(model, tokenizer, text).group("self").weights
    assert weights is not None
    means: NDArray[np.float64] = weights[:, :, FROM:, list(tokens)].mean((1, 2), dtype=np.float64).T
    return means


def value_lengths(model: Any, tokenizer: Any, text: str) -> NDArray[np.float64]:  # noqa: ANN401
    """Return the length of the first token's values by the mean of all others', mean over heads.  -> (L,)."""
    ratios: list[float] = []

    def keep(module: torch.nn.Module, inputs: tuple[Tensor, ...], values: Tensor) -> None:
        lengths = values[0].view(len(values[0]), model.config.num_key_value_heads, -1).norm(dim=-1)  # (T, heads)
        ratios.append(float((lengths[0] / lengths[FROM:].mean(0)).mean()))

    projections = [part for name, part in model.named_modules() if name.endswith("v_proj")]
    hooks = [part.register_forward_hook(keep) for part in projections]
    try:
        with torch.no_grad():
            model(**tokenizer(text, return_tensors="pt"))
    finally:
        for hook in hooks:
            hook.remove()
    return np.array(ratios)


def measure(model: Any, tokenizer: Any, texts: Sequence[str] = TEXTS) -> SinkTable:  # noqa: ANN401
    """Return the table of the mean over texts."""
    rows = []
    for text in texts:
        begun = share(model, tokenizer, tokenizer.bos_token + text, (0, 1))
        back = moved(text)
        changed = share(model, tokenizer, back, (0, token_of(tokenizer, back, AFTER)))
        others = [share(model, tokenizer, replaced(text, word))[0] for word in OTHERS]
        plain, values = share(model, tokenizer, text)[0], value_lengths(model, tokenizer, text)
        rows.append(SinkTable(plain, begun[0], begun[1], np.mean(others, axis=0), changed[0], changed[1], values))
    return SinkTable(*(np.mean(column, axis=0) for column in zip(*rows, strict=True)))


def equal_share(lengths: Sequence[int]) -> float:
    """Return the mean weight on the first token if every query had equal weights."""
    return float(np.mean([np.mean(1 / np.arange(FROM + 1, length + 1)) for length in lengths]))


def report(table: SinkTable, equal: float, markdown: bool = False) -> list[str]:
    """Return the table in lines: shares in %, the length of values as a ratio."""
    rows = [(str(i + 1), [column[i] for column in table]) for i in range(len(table.plain))]
    rows.append(("mean", [column.mean() for column in table]))
    cells = [[name, *(f"{100 * x:.1f}" for x in row[:-1]), f"{row[-1]:.2f}"] for name, row in rows]
    head = ["layer", *NAMES]
    lines = [f"weight on a token in %; equal weights: {100 * equal:.1f}", ""]
    if markdown:
        return [*lines, f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(c)} |" for c in cells)]
    return lines + ["".join(f"{cell:>10}" for cell in row) for row in (head, *cells)]


def draw(table: SinkTable, seen: ModelAttention, folder: Path) -> None:
    """Write the pictures of the guide: weights on a token by layer, and a text that was generated on in one head."""
    folder.mkdir(parents=True, exist_ok=True)
    layers = tuple(float(i + 1) for i in range(len(table.plain)))
    columns = {
        "the first token": table.plain,
        "another word in its place": table.replaced,
        "the same word further back": table.moved,
    }
    series = [chart.Series(name, layers, tuple((100 * column).tolist())) for name, column in columns.items()]
    picture = chart.lines(series, f"Weight on one token of {SMOLLM.model}", "layer", "mean weight in %")
    (folder / "self-attention-sink.svg").write_text(picture, encoding="utf-8")
    seen.save(folder / "self-attention-generated.svg", layer=24, head=5)
    print(f"pictures are in {folder}")


def main() -> None:
    """Fetch the model, measure, and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--models", type=Path, default=MODELS, help=f"folder for the model (default: {MODELS})")
    options.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    options.add_argument("--pictures", type=Path, help="also write the pictures of docs/guide/self-attention.md here")
    args = options.parse_args()
    opened = open_transformers(str(fetch(SMOLLM, args.models)))
    model, tokenizer = opened.model, opened.tokenizer
    lengths = [len(tokenize(tokenizer, text)[0]) for text in TEXTS]
    print(f"{SMOLLM.model}, {model.dtype}; texts of {', '.join(map(str, lengths))} tokens")
    difference = largest_difference(model, tokenizer, list(TEXTS))
    print(f"largest difference from eager output_attentions: {difference:.1e}")
    table = measure(model, tokenizer)
    print("\n".join(report(table, equal_share(lengths), args.markdown)))
    if args.pictures:
        draw(table, heedful.see(model, tokenizer, PROMPT, generate=12, name=SMOLLM.model), args.pictures)


if __name__ == "__main__":
    try:
        main()
    except HeedfulError as error:
        sys.exit(f"error: {error}")
