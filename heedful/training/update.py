"""One update: gradients of one or several batches, and AdamW's step with them.

Nothing here asks the device for a value; what happened is added up there and read now and then. So a GPU never waits
for Python, and a step can be recorded as a graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from heedful.config import TrainingConfig
from heedful.data import Batch
from heedful.fused.bf16_weights import Bf16Weights
from heedful.models import Network
from heedful.training.average import Average
from heedful.training.guided import Guide
from heedful.training.loss import Learner
from heedful.training.processes import ALONE, Processes
from heedful.training.recorder import Recorder

__all__ = ["Happened", "Updater"]


class Happened(NamedTuple):
    """What happened since it was last asked: losses summed over tokens, tokens right, and the first bad step, or 0.

    Where links guide attention, `guided` is the loss of the tokens so taught, summed, and `linked` how many there were.
    """

    loss: float
    right: float
    bad: int
    guided: float = 0.0
    linked: float = 0.0


class Updater:
    """A model, its optimizer and, if wished, the moving average of its weights."""

    def __init__(
        self,
        model: Network,
        config: TrainingConfig,
        device: torch.device,
        bf16: bool,
        processes: Processes = ALONE,
        guide: Guide | None = None,
    ) -> None:
        self.config, self.device, self.bf16, self.processes = config, device, bf16, processes
        self.model = model
        self.parameters = list(model.parameters())
        self.learner: nn.Module = Learner(model, config.smoothing, config.rdrop, guide)
        if processes.world > 1:
            ids = [device.index] if device.type == "cuda" else None
            with processes.together(working=True):
                self.learner = DistributedDataParallel(self.learner, device_ids=ids, gradient_as_bucket_view=True)
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=torch.zeros((), device=device) if cuda else 0.0,  # a recorded step reads it on the device
            betas=(0.9, 0.98),
            weight_decay=config.weight_decay,
            fused=True,
            capturable=cuda,
        )
        self.average = Average(self.parameters, config.ema, device) if config.ema else None
        self.share = torch.zeros((), device=device)
        self.step = torch.zeros((), device=device)
        self.guide = guide
        self.sums = torch.zeros(2 if guide is None else 4, device=device)
        self.bad = torch.zeros((), device=device)  # the first step that was not finite
        self.stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
        recorded = cuda and config.capture and processes.world == 1
        pool = torch.cuda.graph_pool_handle() if recorded else None
        self._learn = Recorder(self._gradients, pool) if recorded else self._gradients
        self._move = Recorder(self._apply, pool) if recorded else self._apply
        self._alone = Recorder(self._whole, pool) if recorded else None
        self.bf16_weights = Bf16Weights(self.learner, model.bf16_weights()) if recorded and bf16 else None
        self.held: list[Tensor] = []  # gradients of several batches, which recorded steps add to

    def __call__(self, batches: Sequence[Batch], tokens: int, step: int, rate: float) -> None:
        """Learn from batches as if they were one; `tokens` are those of all of them, in all processes."""
        torch.manual_seed((self.config.seed * 1_000_003 + step) * 1009 + self.processes.rank)
        with self._streaming():
            self.share.fill_(self.processes.world / tokens)
            self.step.fill_(step)
            self._set_rate(rate)
            if self.average is not None:
                self.average.at(step)
            if self._alone is not None and len(batches) == 1:
                self._alone(*batches[0].tensors)
                return
            if self._alone is not None:
                self._hold()
            for number, batch in enumerate(batches):
                with self._quiet(last=number == len(batches) - 1):
                    self._learn(*batch.tensors)
            self._move()

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def read(self) -> Happened:
        """Return what happened since the last time, over all processes, and begin anew."""
        with self._streaming():
            loss, right, *links = self.processes.add_up(self.sums.cpu()).tolist()
            bad = int(self.bad.item())
            self.sums.zero_()
        return Happened(loss, right, bad, *links)

    def close(self) -> None:
        """Let go of what was recorded on a GPU."""
        for work in (self._learn, self._move, self._alone):
            if isinstance(work, Recorder):
                work.close()

    def _gradients(
        self, x: Tensor, y: Tensor, links: Tensor | None = None, *, bf16_weights: Bf16Weights | None = None
    ) -> None:
        """Add the gradients of one batch, and what it tells."""
        with self.processes.together(working=True):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                total, right, *guided = (bf16_weights or self.learner)(x, y, self.share, links)
            total.backward()
        with torch.no_grad():
            words = total.detach().float() / self.share
            if self.guide is not None:
                words -= guided[0] * self.guide.weight
            self.sums += torch.stack([words, right.float(), *guided])

    def _whole(self, x: Tensor, y: Tensor, links: Tensor | None = None) -> None:
        """Learn from one batch alone, as one piece of work: its gradients are set, not added to others."""
        for parameter in self.parameters:
            parameter.grad = None
        self._gradients(x, y, links, bf16_weights=self.bf16_weights)
        if self.bf16_weights is not None:
            self.bf16_weights.set_gradients()
        for parameter in self.parameters:
            if parameter.grad is None:  # nothing was learned for it, but it decays all the same
                parameter.grad = torch.zeros_like(parameter)
        self._advance()
        # What was recorded writes to the same memory again; until then it may serve what is recorded next.
        for parameter in self.parameters:
            parameter.grad = None

    def _hold(self) -> None:
        """Let gradients be added to memory that stays the same from step to step, and is zero between updates."""
        self.held = self.held or [torch.zeros_like(parameter) for parameter in self.parameters]
        for parameter, gradient in zip(self.parameters, self.held, strict=True):
            parameter.grad = gradient

    @torch.no_grad()
    def _apply(self) -> None:
        """Move the weights, and make room for the next gradients to be added to."""
        torch._foreach_zero_(self._advance())

    @torch.no_grad()
    def _advance(self) -> list[Tensor]:
        """Move the weights, unless something is not finite: then nothing moves any more. Return the gradients."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        broken = ~torch.isfinite(norm)  # the same in all processes, and not finite where the loss is not
        self.bad += torch.where(broken & (self.bad == 0), self.step, torch.zeros_like(self.step))
        stop = (self.bad > 0).float()
        # AdamW divides by the first and does nothing when the second is 1: the clipping costs no pass of its own.
        self.optimizer.grad_scale = (norm / (self.config.clip or math.inf)).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimizer.found_inf = stop  # type: ignore[attr-defined]
        self.optimizer.step()
        if self.average is not None:
            self.average.take(stop)
        return gradients

    @contextmanager
    def _streaming(self) -> Iterator[None]:
        """Work on a stream of our own: a graph cannot be recorded on the common one."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _quiet(self, last: bool) -> AbstractContextManager[None]:
        """Let gradients travel between processes only with the last of several batches."""
        if last or not isinstance(self.learner, DistributedDataParallel):
            return nullcontext()
        return self.learner.no_sync()
