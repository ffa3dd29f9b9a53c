"""Decoding token by token: greedily or by sampling, as a stream of steps or as hypotheses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.decoding.rules import Decoding, Hypothesis, Rules, best, next_log_probs
from heedful.models import Memory, NeedWeights, Seq2Seq
from heedful.text import END, START


class DecodeStep(NamedTuple):
    """One step: for each sentence still going, its number, its new token, and the log-probability of that.

    `weights` (sentences, L, H, S) are attention weights, if requested and the model has attention; `finished`
    are the hypotheses that end with this step, by number.
    """

    rows: list[int]
    ids: list[int]
    log_probs: list[float]
    weights: Tensor | None
    finished: list[tuple[int, Hypothesis]]


class TokenChooser(Protocol):
    """A way to choose the next tokens."""

    def __call__(self, scores: Tensor, rows: Sequence[int], t: int) -> Tensor:
        """Return a token for each row.  scores (R, V), log-probabilities with forbidden tokens at -∞ -> (R,)."""
        ...


def argmax(scores: Tensor, rows: Sequence[int], t: int) -> Tensor:
    """Return the most probable token of each row."""
    if not scores.is_cpu:
        return best(scores[:, None], 1)[1][:, 0]
    return torch.from_numpy(scores.numpy().argmax(1))  # with vector instructions: a tenth of the time of torch.max


class Sampler:
    """Draws tokens at random, from the `top_k` most probable, and of these from the fewest that have `top_p` together.

    A sentence's random numbers follow from the seed, its source tokens, and the number of the sample: what is drawn
    does not depend on the other sentences.
    """

    def __init__(self, settings: Decoding, sources: Sequence[Sequence[int]], numbers: Sequence[int]) -> None:
        self.settings = settings
        self.random = [
            np.random.default_rng([settings.seed, number, *_entropy(source)])
            for source, number in zip(sources, numbers, strict=True)
        ]

    def __call__(self, scores: Tensor, rows: Sequence[int], t: int) -> Tensor:
        """Draw a token for each row.  scores (R, V) -> (R,)."""
        drawn = torch.tensor([[self.random[row].random()] for row in rows], dtype=torch.float64)
        return draw(scores, drawn, self.settings, torch.device("cpu"))

    def table(self, row: int, count: int) -> npt.NDArray[np.float64]:
        """Return the next `count` random numbers of a row: those that as many calls would draw."""
        return self.random[row].random(count)


def draw(scores: Tensor, drawn: Tensor, settings: Decoding, where: torch.device) -> Tensor:
    """Draw a token for each row.  scores (R, V), drawn (R, 1) in [0, 1) -> (R,), on the device of the scores.

    Probabilities are in double precision, on a device that has it: the last of many thousand small ones would be lost
    otherwise. The maximum is subtracted first: divided by a tiny temperature, all would be -∞ otherwise.
    """
    k = min(settings.top_k or scores.shape[-1], scores.shape[-1])
    tokens = None
    device = scores.device
    if settings.top_k or settings.top_p < 1:
        scores, tokens = scores.topk(k, dim=-1)  # largest first
        tokens = tokens.to(where)
    scores = scores.to(where, torch.float64)
    probs = torch.softmax((scores - scores.amax(-1, keepdim=True)) / settings.temperature, dim=-1)
    not_numbers = probs.isnan().any(-1, keepdim=True)
    cumulative = probs.nan_to_num_(0.0).cumsum(-1)
    if settings.top_p < 1:
        cumulative = torch.where(cumulative - probs < settings.top_p, probs, 0.0).cumsum(-1)
    # The first whose sum is larger than what was drawn: it never has probability 0.
    at = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True)
    last = (cumulative < cumulative[:, -1:]).sum(-1, keepdim=True)
    # Of a row with NaN the position of a NaN score is taken, by which it is known.
    at = torch.where(not_numbers, scores.isnan().to(torch.uint8).argmax(-1, keepdim=True), torch.minimum(at, last))
    return (at if tokens is None else tokens.gather(1, at))[:, 0].to(device)


def _entropy(ids: Sequence[int]) -> list[int]:
    return list(np.frombuffer(sha256(np.asarray(ids, dtype=np.int64).tobytes()).digest(), dtype=np.uint32))


class NextTokens(NamedTuple):
    """The next token of each row, as a tensor (R,) and as a list, its log-probability, and whether the limit cut."""

    tokens: Tensor
    ids: list[int]
    log_probs: list[float]
    cut: list[bool]


def next_tokens(scores: Tensor, chosen: Tensor, last: Tensor | None) -> NextTokens:
    """Return the `chosen` tokens (R,), but `</s>` in the `last` position of a sentence, and where scores are NaN.

    scores (R, V) are the log-probabilities, `last` (R,) is None if no sentence is in its last position.
    """
    cut = None
    if last is not None:
        cut = last & (chosen != END)
        chosen = chosen.masked_fill(cut, END)
    values = scores.gather(1, chosen[:, None])[:, 0].tolist()
    ids = chosen.tolist()
    if not_numbers := [i for i, value in enumerate(values) if value != value]:
        ids = [END if i in not_numbers else token for i, token in enumerate(ids)]
        chosen = torch.tensor(ids, device=scores.device)
    return NextTokens(chosen, ids, values, [False] * len(ids) if cut is None else cut.tolist())


def decode_steps(
    model: Seq2Seq,
    memory: Memory,
    rules: Rules,
    choose: TokenChooser = argmax,
    need_weights: NeedWeights | None = None,
    stopped: AbstractSet[int] = frozenset(),
) -> Iterator[DecodeStep]:
    """Decode a sentence for each of the memory's, a token at a time; to be iterated without gradients.

    Finished sentences leave the batch, and each has its own limit: the result of one does not depend on the others.
    Those whose numbers are in `stopped`, a set that may grow meanwhile, leave after the next token. A sentence whose
    scores are not numbers ends there, with `</s>` and NaN for its log-probability.
    """
    B, device = memory.keep.shape[0], memory.keep.device
    rows = list(range(B))
    state = model.start(memory, rules.capacity)
    y = torch.full((B, 1), START, device=device)
    tokens = torch.empty((B, min(64, rules.capacity)), dtype=torch.long, device=device)
    history: list[tuple[list[int], list[float]]] = [([], []) for _ in rows]
    for t in range(rules.capacity):
        hidden, state, weights = model.step(y, state, memory, need_weights)
        scores = rules.apply(next_log_probs(model, hidden[:, -1], memory), tokens[:, :t])
        chosen, ids, values, cut = next_tokens(scores, choose(scores, rows, t), rules.last(t))
        finished = []
        for row, token, value, short in zip(rows, ids, values, cut, strict=True):
            history[row][0].append(token)
            history[row][1].append(value)
            if token == END:
                ended, scored = history[row]
                finished.append((row, Hypothesis(tuple(ended), tuple(scored), short)))
        yield DecodeStep(rows, ids, values, None if weights is None else weights[:, :, :, 0], finished)
        if t == tokens.shape[1]:
            tokens = torch.cat([tokens, tokens], dim=1)
        tokens[:, t] = chosen
        y = chosen[:, None]
        if END in ids or stopped:
            going = [i for i, token in enumerate(ids) if token != END and rows[i] not in stopped]
            if not going:
                return
            if len(going) == len(rows):
                continue
            rows = [rows[i] for i in going]
            kept = torch.tensor(going, device=device)
            state, memory, y, tokens = state.select(kept), memory.select(kept), y[kept], tokens[kept]
            rules.select(kept)


@torch.inference_mode()
def greedy(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Hypothesis]:
    """Take the most probable token at every step; at most `limits[b]` ≥ 1 tokens, `</s>` included."""
    return _collect(decode_steps(model, memory, Rules(limits, memory.keep.device, settings, prefixes)), len(limits))


@torch.inference_mode()
def sample(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Draw `n_best` hypotheses for each sentence of the memory; `sources` are its tokens, see `Sampler`."""
    n = settings.n_best
    rows = [b for b in range(len(limits)) for _ in range(n)]
    sampler = Sampler(settings, [sources[b] for b in rows], [i for _ in limits for i in range(n)])
    memory = memory.select(torch.tensor(rows, dtype=torch.long, device=memory.keep.device)) if n > 1 else memory
    each = [limits[b] for b in rows]
    rules = Rules(each, memory.keep.device, settings, [prefixes[b] for b in rows] if prefixes else None)
    drawn = _collect(decode_steps(model, memory, rules, sampler), len(each))
    return [drawn[b * n : (b + 1) * n] for b in range(len(limits))]


def _collect(steps: Iterator[DecodeStep], count: int) -> list[Hypothesis]:
    hypotheses = dict(finished for step in steps for finished in step.finished)
    return [hypotheses[row] for row in range(count)]
