"""What may be decoded: the settings, length limits, and the rules that mask the scores of tokens at each step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.errors import ConfigError, NotFiniteError, check_value, choose
from heedful.models import Memory, Seq2Seq
from heedful.text import END, PAD, START

PENALTIES = ("gnmt", "length", "none")
# The limit of min_length and max_length: a model may never end, and the time may grow with the square of the length.
# The longest sentence that is encoded, 2,048 tokens, has a limit of 4,116 by default.
LONGEST = 10_000
BLOCK = 64


class DecodingKeywords(TypedDict, total=False):
    """The settings of `Decoding` as keyword arguments, as in `translator.translate(text, beam=5)`."""

    beam: int
    n_best: int
    penalty: str
    alpha: float
    min_length: int
    max_length: int
    no_repeat: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The settings of decoding.

    With a beam of 1 the most probable token is taken at every step; a wider beam keeps that many hypotheses and returns
    the best `n_best`. They are compared by their log-probability divided by |Y|^alpha (`penalty="length"`), by
    ((5 + |Y|) / 6)^alpha (`"gnmt"`), or as it is (`"none"`); |Y| counts the tokens with `</s>`. With `sample`, tokens
    are drawn at random, and `n_best` is the number of samples for each sentence.

    `min_length` and `max_length` are in tokens without `</s>`, at most 10,000; a `max_length` of 0 is 2n + 20 for n
    source tokens, and for captions of images 2n + 20 for the n tokens of the longest caption of the training.
    `no_repeat=3` forbids every sequence of three tokens that occurred before.
    """

    beam: int = 1
    n_best: int = 1
    penalty: str = "length"
    alpha: float = 1.0
    min_length: int = 0
    max_length: int = 0
    no_repeat: int = 0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("beam", self.beam, 1, 1000),
            ("n_best", self.n_best, 1, 1000),
            ("min_length", self.min_length, 0, LONGEST),
            ("max_length", self.max_length, 0, LONGEST),
            ("no_repeat", self.no_repeat, 0, 1000),
            ("top_k", self.top_k, 0, 10**9),
            ("seed", self.seed, 0, 2**63 - 1),
        ):
            expected = f"a whole number from {low} to {high}"
            check_value(name, value, int, range(low, high + 1).__contains__, expected)
        choose("penalty", str(self.penalty), PENALTIES)
        real = int | float
        check_value("alpha", self.alpha, real, lambda alpha: 0.0 <= alpha <= 10.0, "a number from 0 to 10")
        expected = "a number above 0; towards 0 it is greedy"
        check_value("temperature", self.temperature, real, lambda temperature: 0.0 < temperature < math.inf, expected)
        check_value("top_p", self.top_p, real, lambda share: 0.0 < share <= 1.0, "a number above 0 and at most 1")
        check_value("sample", self.sample, bool, lambda _: True, "True or False")
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raise ConfigError for settings that contradict each other."""
        if self.max_length and self.min_length > self.max_length:
            raise ConfigError(f"min_length is {self.min_length}, which is more than max_length, {self.max_length}")
        if self.sample and self.beam > 1:
            raise ConfigError("sample and beam exclude each other; leave out one of them")
        if not self.sample and self.n_best > self.beam:
            raise ConfigError(
                f"n_best is {self.n_best}, but a beam of {self.beam} finds at most {self.beam}; "
                "widen the beam, or sample"
            )
        drawing = (("temperature", self.temperature, 1.0), ("top_k", self.top_k, 0), ("top_p", self.top_p, 1.0))
        for name, value, plain in drawing:
            if not self.sample and value != plain:
                raise ConfigError(f"{name} is {value}, but nothing is drawn at random; add sample")

    def divisor(self, length: float) -> float:
        """Return what the log-probability of `length` tokens is divided by; it never falls with the length."""
        if self.penalty == "none":
            return 1.0
        return float((length if self.penalty == "length" else (5 + length) / 6) ** self.alpha)


GREEDY = Decoding()


def length_limit(length: int, how: Decoding | None = None, prefix: int = 0) -> int:
    """Return the most tokens, `</s>` included, that a translation of `length` source tokens may have."""
    if how and how.max_length:
        return how.max_length + 1
    return max(2 * length + 20 + prefix, how.min_length + 1 if how else 0)


def batch_by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield indices of sentences of similar length, batch by batch, with at most `tokens` tokens after padding."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and lengths[i] * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


class Hypothesis(NamedTuple):
    """A decoded sentence: token ids, ending with `</s>`; the log-probability of each; whether the limit cut it short.

    It was cut short if `</s>` is in the last position allowed and would not have been chosen there freely: it was not
    drawn, or another token was more probable. A hypothesis of another engine has one log-probability, that of all
    tokens together, or none if it is not known.

    Where a model computes NaN, the sentence ends there, with NaN for its last log-probability; `check` raises an
    error for such a hypothesis.
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    cut: bool = False

    @property
    def finite(self) -> bool:
        """Whether the model computed numbers."""
        return not (self.log_probs and math.isnan(self.log_probs[-1]))

    def check(self) -> None:
        """Raise NotFiniteError if the model computed NaN."""
        if not self.finite:
            raise NotFiniteError(
                f"the model's scores for token {len(self.ids)} of a translation are not numbers: its weights are "
                "finite, but what they compute for this text overflows; the model is unusable for it"
            )


def log_probs(logits: Tensor) -> Tensor:
    """Return the log-probability of each token.  (…, V) -> (…, V).  That of `<s>` is -∞: it follows nothing."""
    return log_probs_(logits.clone())


def log_probs_(logits: Tensor) -> Tensor:
    """Return the same, and overwrite the logits, which saves a copy."""
    logits = logits.float()
    logits.select(-1, START).fill_(-torch.inf)
    return logits.log_softmax(-1)


def next_log_probs(model: Seq2Seq, hidden: Tensor, memory: Memory, some: slice | None = None) -> Tensor:
    """Return the log-probability of each token that may follow, -∞ for others.  (B·K, D) -> (B·K, V).

    With a shortlist, it is that among the allowed tokens. `hidden` may be that of `some` sentences of the memory only.
    """
    if memory.allowed is None:
        return log_probs_(model.logits(hidden))
    return memory.log_probs(model, hidden, some)


def best(scores: Tensor, k: int, plus: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return each sentence's k largest scores, in order, and their positions.  scores (B, K, V) -> (B, k), (B, k).

    `plus` (B, K) is added to each row; positions count over K·V. The k largest lie in the k blocks with the largest
    maxima. Finding those blocks first avoids sorting all scores, and adding to all.
    """
    B, K, V = scores.shape
    plus = scores.new_zeros(1, 1).expand(B, K) if plus is None else plus
    if B * K * V < 2**15 or 4 * k * BLOCK > K * V:
        every = (scores + plus[:, :, None]).flatten(1)
        return every.topk(k, dim=1) if k > 1 else every.max(dim=1, keepdim=True)
    n = V // BLOCK
    highest = scores[:, :, : n * BLOCK].view(B, K, n, BLOCK).amax(-1) + plus[:, :, None]
    blocks = highest.flatten(1).topk(k, dim=1).indices  # over K·n
    begin = blocks // n * V + blocks % n * BLOCK
    positions = (begin[:, :, None] + torch.arange(BLOCK, device=scores.device)).flatten(1)
    if V % BLOCK:  # and those outside all blocks
        rest = torch.arange(n * BLOCK, V, device=scores.device) + V * torch.arange(K, device=scores.device)[:, None]
        positions = torch.cat([positions, rest.flatten().expand(B, -1)], dim=1)
    values, i = (scores.flatten(1).gather(1, positions) + plus.gather(1, positions // V)).topk(k, dim=1)
    return values, positions.gather(1, i)


class Rules:
    """The constraints on each sentence b: at most `limits[b]` ≥ 1 tokens, `</s>` included, and `prefixes[b]` first.

    `apply` takes R = B or B·K rows, K hypotheses for each sentence side by side.
    """

    def __init__(
        self,
        limits: Sequence[int],
        device: torch.device,
        settings: Decoding | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        settings = settings or GREEDY
        check_limits(limits, settings, prefixes)
        self.capacity = max(limits, default=0)
        self.shortest = min(limits, default=0)
        self.limits = torch.tensor(limits, dtype=torch.long, device=device)
        self.at_least, self.no_repeat = settings.min_length, settings.no_repeat
        self.forced = max((len(p) for p in prefixes or ()), default=0)
        self.prefixes = torch.full((len(limits), self.forced), -1, dtype=torch.long, device=device)
        for b, prefix in enumerate(prefixes or ()):
            self.prefixes[b, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)

    def select(self, rows: Tensor) -> None:
        """Keep some sentences."""
        self.limits, self.prefixes = self.limits[rows], self.prefixes[rows]
        self.shortest = int(self.limits.min()) if len(self.limits) else 0

    def part(self, some: slice) -> Rules:
        """Return the rules of some sentences side by side, without a copy."""
        rules = copy(self)
        rules.limits, rules.prefixes = self.limits[some], self.prefixes[some]
        return rules

    def join(self, other: Rules) -> None:
        """Append the sentences of other rules."""
        self._fit_prefixes(other)
        self.limits, self.prefixes = torch.cat([self.limits, other.limits]), torch.cat([self.prefixes, other.prefixes])
        self.shortest = min(self.shortest, other.shortest)

    def put(self, rows: Tensor, other: Rules) -> None:
        """Replace some sentences by those of other rules."""
        self._fit_prefixes(other)
        self.limits = self.limits.index_copy(0, rows, other.limits)
        self.prefixes = self.prefixes.index_copy(0, rows, other.prefixes)
        self.shortest = min(self.shortest, other.shortest)

    def _fit_prefixes(self, other: Rules) -> None:
        """Pad the prefixes of both to the same length."""
        self.forced = other.forced = max(self.forced, other.forced)
        for each in (self, other):
            each.prefixes = F.pad(each.prefixes, (0, self.forced - each.prefixes.shape[1]), value=-1)

    def advance(self) -> None:
        """Make the next position the first one, for sentences that are at different positions."""
        self.limits = self.limits - 1
        self.shortest -= 1
        if self.forced:
            self.forced -= 1
            self.prefixes = self.prefixes[:, 1:]

    def apply(self, scores: Tensor, tokens: Tensor) -> Tensor:
        """Set the scores of forbidden tokens to -∞, in place.  scores (R, V), tokens (R, t), those decoded so far.

        The limit is not applied here: see `last` and `end`.
        """
        t = tokens.shape[1]
        K = scores.shape[0] // max(len(self.limits), 1)
        free = scores.clone() if t < self.forced else None
        scores.select(1, PAD).fill_(-torch.inf)
        end = scores[:, END].clone() if t < self.at_least else None
        if end is not None:
            scores[:, END] = -torch.inf
        if 0 < self.no_repeat <= t:
            self._forbid_repeats(scores, tokens)
            if end is not None:  # where every token would be a repetition, the sentence ends before min_length
                scores[:, END] = torch.where(scores.amax(-1) == -torch.inf, end, -torch.inf)
        if free is not None:
            self._force(scores, free, self.prefixes[:, t].repeat_interleave(K))
        return scores

    def last(self, t: int) -> Tensor | None:
        """Return which sentences have to end with token t, counted from 0: (B,), or None if there are none."""
        return self.limits == t + 1 if t + 1 >= self.shortest else None

    def end(self, scores: Tensor, t: int) -> Tensor | None:
        """Allow only `</s>` in the last position; return where another token was more probable: (R,), None for none."""
        last = self.last(t)
        if last is None:
            return None
        last = last.repeat_interleave(scores.shape[0] // max(len(self.limits), 1))
        cut = last & (scores.amax(-1) > scores[:, END])
        self._force(scores, scores, torch.where(last, END, -1))
        return cut

    @staticmethod
    def _force(scores: Tensor, free: Tensor, tokens: Tensor) -> None:
        """Allow one token where it is not -1, with its score in `free`.  scores, free (R, V), tokens (R,)."""
        rows = (tokens >= 0).nonzero()[:, 0]
        token = tokens[rows]
        value = free[rows, token]
        scores[rows] = -torch.inf
        scores[rows, token] = value

    def _forbid_repeats(self, scores: Tensor, tokens: Tensor) -> None:
        """Forbid tokens that would complete an n-gram that occurred before."""
        n = self.no_repeat
        followers = tokens[:, n - 1 :]  # of each sequence of n - 1 tokens but the last
        runs = tokens.unfold(1, n - 1, 1)[:, : followers.shape[1]] if n > 1 else tokens[:, :, None][:, :, :0]
        same = (runs == tokens[:, None, tokens.shape[1] - n + 1 :]).all(-1)
        scores.scatter_(1, torch.where(same, followers, PAD), -torch.inf)


def check_limits(limits: Sequence[int], settings: Decoding, prefixes: Sequence[Sequence[int]] | None) -> None:
    """Raise ConfigError for a limit that is too small for min_length, or for the prefix."""
    least = settings.min_length
    if not prefixes and min(limits, default=1) > least:
        return
    for b, limit in enumerate(limits):
        forced = len(prefixes[b]) if prefixes else 0
        needs = ((0, "any"), (least, f"a min_length of {least}"), (forced, f"its prefix of {forced} tokens"))
        for size, what in needs:
            if limit <= size:
                raise ConfigError(
                    f"sentence {b + 1} of {len(limits)} may have {limit} tokens, `</s>` included: "
                    f"this leaves no room for {what}"
                )
