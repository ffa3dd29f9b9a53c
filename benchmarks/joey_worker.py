"""What `cpu_training.py` runs under the interpreter that has Joey NMT: its own training loop, some batches at a time.

JOEY_PYTHON benchmarks/joey_worker.py SETTINGS.json     (Joey NMT's settings, and `threads` and `batches`)

After every `batches` updates it writes a line of JSON to its standard output, target tokens (without padding) and
seconds, and waits for a line before it goes on, so that it can take turns with others. It imports nothing of heedful.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.prediction import prepare
from joeynmt.training import TrainManager


class Paced:
    """Joey's batches; between some of them it is somebody else's turn."""

    def __init__(self, inner: Any, batches: int, answers: Any) -> None:  # noqa: ANN401
        self.inner, self.batches, self.answers = inner, batches, answers
        self.batch_sampler = inner.batch_sampler
        self.count = self.tokens = 0
        self.begin = self.used = 0.0

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            if self.count % self.batches == 0:
                self._turn()
            self.count += 1
            self.tokens += int(batch.ntokens)
            yield batch

    def _turn(self) -> None:
        if self.count:
            spent = [time.perf_counter() - self.begin, time.process_time() - self.used]
            print(json.dumps([self.tokens, *spent]), file=self.answers, flush=True)
        if not sys.stdin.readline():
            raise SystemExit
        self.tokens, self.begin, self.used = 0, time.perf_counter(), time.process_time()


def main() -> None:
    """Train until nobody asks any more."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers, sys.stdout = sys.stdout, sys.stderr
    logging.disable(logging.INFO)
    torch.set_num_threads(settings.pop("threads"))
    batches = settings.pop("batches")
    args = parse_global_args(settings, rank=0, mode="train")
    model, train, dev, _ = prepare(args, rank=0, mode="train")
    make_iter = train.make_iter
    train.make_iter = lambda **own: Paced(make_iter(**own), batches, answers)
    print(sum(p.numel() for p in model.parameters()), file=answers, flush=True)
    trainer = TrainManager(
        rank=0,
        model=model,
        model_dir=args.model_dir,
        device=args.device,
        n_gpu=args.n_gpu,
        num_workers=args.num_workers,
        autocast=args.autocast,
        seed=args.seed,
        train_args=args.train,
        dev_args=set_validation_args(args.test),
    )
    trainer._save_checkpoint = lambda *_: None
    trainer.train_and_validate(train_data=train, valid_data=dev)


if __name__ == "__main__":
    main()
