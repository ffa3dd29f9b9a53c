"""Decoding by another engine, CTranslate2: the same model, converted once and cached; heedful re-reads what it writes.

The engine takes batches ahead: while heedful reads the attention of one, the next are decoded. It finds the words that
heedful's own decoding finds, up to rounding, with these exceptions, all of them with a beam above 1:

- a search ends when `beam` hypotheses are finished; heedful's ends when no other can be better
- a translation that reaches its limit is compared without its `</s>`
- `min_length`, `no_repeat` and `<pad>` are removed before the softmax, heedful removes them after it
- a `prefix` does not count in the score that hypotheses are compared by
"""

from __future__ import annotations

import logging
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch

from heedful.data.cache import Arrays, Writer, key_of, stored
from heedful.decoding import Decoding, Hypothesis
from heedful.errors import ConfigError, DeviceMemoryError, ModelError, choose
from heedful.interop.ctranslate2 import check_convertible, ctranslate2, max_positions, save_converted
from heedful.interop.folder import ModelParts
from heedful.models.device import out_of_memory
from heedful.text import END

ENGINES = ("heedful", "ctranslate2")
ROWS = 32  # sentences in a batch; more are not faster on a CPU, and wait longer for their attention
FORMAT = 1  # of the conversion: part of the key in the cache

LOG = logging.getLogger("heedful.translator")


class EngineBatch(NamedTuple):
    """Sentences to decode: the token ids of each, the most tokens of its translation, and those it begins with."""

    sources: list[tuple[int, ...]]
    limits: list[int]
    prefixes: list[tuple[int, ...]]


class CTranslate2Engine:
    """CTranslate2 with the model of some `parts`, in float32 or with weights of 8 bits.

    Raises ConfigError for models that it cannot run, and for a device that it does not compute on.
    """

    name, title = "ctranslate2", "CTranslate2"

    def __init__(self, parts: ModelParts, device: torch.device, int8: bool = False, threads: int = 0) -> None:
        package = ctranslate2()
        self.ended = check_convertible(parts).source_end  # whether the source's </s> is read
        if device.type not in ("cpu", "cuda"):
            raise ConfigError(f"the device is {device.type}; CTranslate2 computes on cpu and cuda")
        self.precision = "int8" if int8 else "float32"
        self.compute_type = "int8_float32" if int8 else "float32"
        if self.compute_type not in (known := package.get_supported_compute_types(device.type)):
            raise ConfigError(f"CTranslate2 has no {self.precision} on this {device.type}; it has {', '.join(known)}")
        self.device, self.threads = device, threads
        self.positions = max_positions(parts.config)
        self.source_tokens = [parts.source_codec.token(i) for i in range(len(parts.source_codec))]
        self.target_tokens = [parts.target.token(i) for i in range(len(parts.target))]
        self.target_ids = {token: index for index, token in enumerate(self.target_tokens)}
        self.files = _converted(parts, int8, package.__version__)
        self.workers = 0
        self._translator: Any = None
        self._lock = Lock()

    def check(self, how: Decoding) -> None:
        """Raise ConfigError for a setting of decoding that CTranslate2 does not have."""
        if how.sample:
            raise ConfigError(
                "sample draws random numbers by heedful's seed, which CTranslate2 does not have; leave out sample, or "
                "use the engine heedful"
            )
        if how.beam > 1 and how.penalty == "gnmt":
            raise ConfigError("penalty is gnmt; CTranslate2 has length and none: choose one, or the engine heedful")
        if how.max_length >= self.positions:
            raise ConfigError(
                f"max_length is {how.max_length:,}; the model was converted for at most {self.positions - 1:,} tokens: "
                "choose less, or the engine heedful"
            )

    def decode(self, batches: Iterable[EngineBatch], how: Decoding, many: bool) -> Iterator[list[list[Hypothesis]]]:
        """Yield the hypotheses of each sentence of each batch, best first; the next batches are decoded meanwhile.

        `many`: there are enough batches for all threads, each of which takes a batch of its own.
        """
        translator, workers = self._open(many)
        ahead: deque[tuple[EngineBatch, list[Any]]] = deque()
        for batch in batches:
            ahead.append((batch, self._submit(translator, batch, how)))
            if len(ahead) > workers:
                yield self._collect(*ahead.popleft(), how)
        while ahead:
            yield self._collect(*ahead.popleft(), how)

    def reading_threads(self, many: bool) -> int:
        """Return how many threads read meanwhile: half as many, if all of them decode; 0 leaves PyTorch's number."""
        threads = self.threads or torch.get_num_threads()
        return max(1, threads // 2) if many and self.device.type == "cpu" else 0

    def _open(self, many: bool) -> tuple[Any, int]:
        """Return CTranslate2's translator, and its number of workers: one for each thread if there are many batches.

        Otherwise there is one worker, which uses all threads. It stays open for later calls, also of other threads.
        """
        threads = self.threads or torch.get_num_threads()
        workers = threads if many and self.device.type == "cpu" else 1
        with self._lock:
            if self._translator is None or self.workers < workers:
                self._translator, self.workers = self._opened(threads, workers), workers
            return self._translator, self.workers

    def _opened(self, threads: int, workers: int) -> Any:  # noqa: ANN401  (a `ctranslate2.Translator`)
        try:
            translator = ctranslate2().Translator(
                str(self.files.folder),
                device=self.device.type,
                device_index=self.device.index or 0,
                compute_type=self.compute_type,
                inter_threads=workers,
                intra_threads=max(1, threads // workers),
            )
        except RuntimeError as error:
            raise ConfigError(f"CTranslate2 cannot open the model on {self.device}: {error}") from None
        LOG.debug(
            "CTranslate2 %s on %s: %d worker%s, %d threads; the model is in %s",
            self.precision,
            self.device,
            workers,
            "s" * (workers > 1),
            threads,
            self.files.folder,
        )
        return translator

    def _submit(self, translator: Any, batch: EngineBatch, how: Decoding) -> list[Any]:  # noqa: ANN401
        """Begin to decode a batch; the result of each sentence comes later."""
        prefixes = [[self.target_tokens[i] for i in prefix] for prefix in batch.prefixes]
        results: list[Any] = translator.translate_batch(
            [[self.source_tokens[i] for i in source[: len(source) - (not self.ended)]] for source in batch.sources],
            prefixes if any(prefixes) else None,
            asynchronous=True,
            beam_size=how.beam,
            # Of hypotheses with the same text one is kept, so that others are needed.
            num_hypotheses=how.beam if how.n_best > 1 else 1,
            length_penalty=_alpha(how),
            no_repeat_ngram_size=how.no_repeat,
            min_decoding_length=how.min_length,
            max_decoding_length=max(batch.limits),
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
        )
        return results

    def _collect(self, batch: EngineBatch, results: list[Any], how: Decoding) -> list[list[Hypothesis]]:
        """Wait for the results of a batch."""
        # Tokens that are removed before the softmax, or forced, make other numbers than log-probabilities.
        known = not how.no_repeat and not how.min_length
        hypotheses = []
        for pending, limit, prefix in zip(results, batch.limits, batch.prefixes, strict=True):
            result = _result(pending)
            each = []
            for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                ids = [self.target_ids[token] for token in tokens]
                one = _hypothesis(ids, score * len(ids) ** _alpha(how), limit)
                each.append(one if known and not prefix else one._replace(log_probs=()))
            hypotheses.append(each)
        return hypotheses


def _result(pending: Any) -> Any:  # noqa: ANN401  (of CTranslate2)
    """Wait for the result of a sentence; raise DeviceMemoryError if memory ran out."""
    try:
        return pending.result()
    except RuntimeError as error:
        if out_of_memory(error):
            raise DeviceMemoryError(f"CTranslate2 ran out of memory ({error}); use a smaller batch_tokens") from None
        raise ModelError(f"CTranslate2 cannot decode with this model: {error}") from None


def _alpha(how: Decoding) -> float:
    """Return the exponent of the length that a log-probability is divided by."""
    return 0.0 if how.penalty == "none" else float(how.alpha)


def _hypothesis(ids: Sequence[int], total: float, limit: int) -> Hypothesis:
    """Return a hypothesis of at most `limit` tokens; one that goes on is cut, and its log-probability is not known."""
    if len(ids) > limit or ids[-1] != END:
        return Hypothesis((*ids[: limit - 1], END), (), cut=True)
    return Hypothesis(tuple(ids), (total,))


def _converted(parts: ModelParts, int8: bool, version: str) -> Arrays:
    """Return the converted model, from the cache if it is there."""

    def fill(writer: Writer) -> None:
        with tempfile.TemporaryDirectory(prefix="heedful-") as folder:
            save_converted(Path(folder), parts, int8)
            for file in sorted(Path(folder).iterdir()):
                writer.add(file.name, file.read_bytes())

    key = key_of("ctranslate2", FORMAT, version, int8, _digest(parts))
    files, cached = stored(key, fill, LOG.warning, "the model for CTranslate2")
    LOG.debug("the model for CTranslate2 %s %s", "was converted before:" if cached else "is converted:", files.folder)
    return files


def _digest(parts: ModelParts) -> str:
    """Return a checksum of everything that a conversion follows from."""
    digest = blake2b(digest_size=16)
    codecs = (parts.source_codec.dump(), parts.target.dump())
    digest.update(repr((parts.config.plain()["model"], parts.config.text.max_length, *codecs)).encode())
    for name, weight in parts.model.state_dict().items():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def open_engine(
    name: str, parts: ModelParts, device: torch.device, int8: bool, threads: int
) -> CTranslate2Engine | None:
    """Return the engine of a name; None is heedful's own decoding."""
    choose("engine", name, ENGINES)
    if name == "heedful":
        if int8:
            raise ConfigError("int8 needs the engine ctranslate2; heedful's own decoding computes in fp32")
        return None
    return CTranslate2Engine(parts, device, int8, threads)


def batches_of(
    rows: Iterable[list[int]], batch: Callable[[list[int]], EngineBatch]
) -> tuple[list[list[int]], Iterator[EngineBatch]]:
    """Return batches of row numbers with at most `ROWS` each, and what the engine gets for each."""
    small = [some[i : i + ROWS] for some in rows for i in range(0, len(some), ROWS)]
    return small, map(batch, small)
