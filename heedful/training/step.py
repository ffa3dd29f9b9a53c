"""One training update: batches -> forward -> loss -> backward -> clip -> AdamW, at the rate of the schedule.

Read it from top to bottom: `learning_rate` is the schedule, `ModelWithLoss` computes the loss of a batch, for which
`Bf16Weights` rounds the weights, `TrainingStep` runs it forward and backward and updates the weights, `MovingAverage`
follows the weights and the running statistics of batch normalisation.

Nothing here reads a value back from the device. Losses and counts are summed on the device and read every few steps, so
a GPU never waits for Python and a step can be captured as a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from heedful.config import TrainingConfig
from heedful.data.batches import Batch
from heedful.fused.cuda_graphs import GraphedFunction
from heedful.models import Network
from heedful.models.image import running_statistics
from heedful.models.layers import padding_mask
from heedful.training.distributed import ALONE, Processes
from heedful.training.losses import AuxiliaryLoss, DecoderOutputs, attention_needed, cross_entropy


def learning_rate(step: int, config: TrainingConfig, halved: int = 0) -> float:
    """Return the learning rate of update `step`, counted from 1: linear warm-up, then decay.

    The decay with the root of the step does not depend on how many steps are planned, so a run can be made longer
    without becoming another run. The cosine reaches zero at the last step; a run that ends early by
    `training.patience` has not reached it. On a plateau the rate is halved, `halved` times so far.

    >>> settings = TrainingConfig(rate=1.0, warmup=100)
    >>> learning_rate(50, settings), learning_rate(100, settings), learning_rate(400, settings)
    (0.5, 1.0, 0.5)
    >>> settings = TrainingConfig(rate=1.0, warmup=100, decay="cosine", steps=300)
    >>> learning_rate(100, settings), round(learning_rate(200, settings), 2), learning_rate(300, settings)
    (1.0, 0.5, 0.0)
    >>> learning_rate(200, TrainingConfig(rate=1.0, warmup=100, decay="plateau"), halved=2)
    0.25
    """
    if step < config.warmup:
        return config.rate * step / config.warmup
    match config.decay:
        case "root":
            return config.rate * math.sqrt(max(config.warmup, 1) / step)
        case "cosine":
            done = (step - config.warmup) / max(1, config.steps - config.warmup)
            return config.rate * (1 + math.cos(math.pi * min(done, 1.0))) / 2
        case "plateau":
            return config.rate * 0.5**halved
    return config.rate


class ModelWithLoss(nn.Module):
    """A model with its loss: what DistributedDataParallel wraps, and what a CUDA graph captures."""

    def __init__(
        self,
        model: Network,
        smoothing: float = 0.0,
        rdrop: float = 0.0,
        auxiliary: Mapping[str, AuxiliaryLoss] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.smoothing, self.rdrop = model, smoothing, rdrop
        self.auxiliary = dict(auxiliary or {})
        self.need_weights = attention_needed(self.auxiliary.values())

    def forward(self, x: Tensor, y: Tensor, per_token: Tensor, links: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the total loss, the tokens predicted correctly, and auxiliary losses.  x (B, S), y (B, T).

        Every y_t is predicted from x and the tokens before it (teacher forcing). The total is the sum of the tokens'
        losses times `per_token`, plus each auxiliary loss times its weight and `per_token`. An auxiliary loss adds two
        tensors to the result: its sum, and the number of tokens it was computed for. R-Drop runs the batch twice.

        On the CPU, padding is removed before the vocabulary projection. Elsewhere that would need a value from the
        device; padding gets the weight 0 instead.
        """
        passes = 2 if self.rdrop and self.training else 1
        B = x.shape[0]
        x, y = x.repeat(passes, *[1] * (x.ndim - 1)), y.repeat(passes, 1)
        memory = self.model.encode(x, padding_mask(x))
        state = self.model.start(memory, y.shape[1] - 1)
        hidden, _, weights = self.model.step(y[:, :-1], state, memory, self.need_weights)
        targets = y[:, 1:]
        keep = targets != 0
        if x.device.type == "cpu":
            rows, tokens = hidden[keep], targets[keep]
            token_weights = (per_token / passes).expand(len(tokens))
        else:
            rows, tokens = hidden.flatten(0, 1), targets.flatten()
            token_weights = keep.flatten() * (per_token / passes)
        rdrop = self.rdrop if passes == 2 else 0.0
        total, correct = cross_entropy(self.model.logits(rows), tokens, token_weights, self.smoothing, rdrop)
        correct = (correct & (token_weights > 0)).sum() / passes
        outputs = DecoderOutputs(self.model, memory.keep[:B], targets[:B], hidden, weights, links)
        sums: list[Tensor] = []
        for auxiliary in self.auxiliary.values():
            value, count = auxiliary(outputs)
            total = total + value * (per_token * auxiliary.weight)
            sums += [value.detach(), count]
        return total, correct, *sums


class Loss(NamedTuple):
    """The mean loss over tokens, the number of tokens, and how many of them were predicted correctly."""

    mean: Tensor
    tokens: int
    correct: Tensor


def loss(model: Network, batch: Batch, smoothing: float = 0.0) -> Loss:
    """Return the mean cross-entropy of one batch."""
    mean, correct = ModelWithLoss(model, smoothing)(
        batch.x, batch.y, torch.ones((), device=batch.x.device) / batch.tokens
    )
    return Loss(mean, batch.tokens, correct)


class StepStats(NamedTuple):
    """Sums since the last reading: token losses, tokens predicted correctly, the first step that was not finite (or 0).

    `auxiliary` has the sum of each auxiliary loss and the number of tokens that it was computed for.
    """

    loss: float
    correct: float
    first_nonfinite_step: int
    auxiliary: Mapping[str, tuple[float, float]]


class Bf16Weights:
    """A module that computes a loss, called with bf16 copies in place of some of its weights.

    Autocast rounds each weight by a kernel of its own, and takes each gradient back to fp32 by another: 160 in a step
    of a Transformer with 4 + 4 layers, of a microsecond or two each. This does both for all weights together, with the
    same numbers. `weights` are those that the model declares (`bf16_weights()`): a Transformer's; recurrent models
    compute in fp32.
    """

    def __init__(self, module: nn.Module, weights: Sequence[Tensor]) -> None:
        self.module, self.weights = module, list(weights)
        self.copies = [torch.empty_like(w, dtype=torch.bfloat16, requires_grad=True) for w in self.weights]
        names = {id(weight): name for name, weight in module.named_parameters()}
        self.named = {names[id(weight)]: copy for weight, copy in zip(self.weights, self.copies, strict=True)}

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Round the weights as they are now, and call the module; under autocast, which rounds the rest."""
        if not self.copies:
            return self.module(*inputs)  # type: ignore[no-any-return]
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.weights)
        for copy in self.copies:
            copy.grad = None  # of a step that was interrupted
        return torch.func.functional_call(self.module, self.named, inputs)  # type: ignore[no-any-return]

    def set_gradients(self) -> None:
        """Set the weights' gradients to those of their copies."""
        pairs = [(w, c.grad) for w, c in zip(self.weights, self.copies, strict=True) if c.grad is not None]
        if not pairs:
            return
        gradients = [torch.empty_like(weight) for weight, _ in pairs]
        torch._foreach_copy_(gradients, [gradient for _, gradient in pairs])
        for (weight, _), gradient in zip(pairs, gradients, strict=True):
            weight.grad = gradient
        for copy in self.copies:
            copy.grad = None  # a captured CUDA graph may reuse its memory


class TrainingStep:
    """A model with its loss, its optimizer and, with `training.ema`, the moving average of its weights."""

    def __init__(
        self,
        model: Network,
        config: TrainingConfig,
        device: torch.device,
        bf16: bool,
        processes: Processes = ALONE,
        auxiliary: Mapping[str, AuxiliaryLoss] | None = None,
    ) -> None:
        self.config, self.device, self.bf16, self.processes = config, device, bf16, processes
        self.model, self.auxiliary = model, dict(auxiliary or {})
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.statistics = list(running_statistics(model).values())
        self.model_with_loss: nn.Module = ModelWithLoss(model, config.smoothing, config.rdrop, self.auxiliary)
        if processes.world > 1:
            ids = [device.index] if device.type == "cuda" else None
            with processes.together(working=True):
                self.model_with_loss = DistributedDataParallel(
                    self.model_with_loss, device_ids=ids, gradient_as_bucket_view=True
                )
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=torch.zeros((), device=device) if cuda else 0.0,  # a captured step reads it on the device
            betas=(0.9, 0.98),
            weight_decay=config.weight_decay,
            fused=True,
            capturable=cuda,
        )
        followed = [*self.parameters, *self.statistics]
        self.average = MovingAverage(followed, config.ema, device) if config.ema else None
        self.per_token = torch.zeros((), device=device)  # 1 / target tokens of the update
        self.step = torch.zeros((), device=device)
        self.sums = torch.zeros(2 + 2 * len(self.auxiliary), device=device)
        self.first_nonfinite_step = torch.zeros((), device=device)  # the first step that was not finite
        self.stream = torch.cuda.Stream(device) if cuda else None  # type: ignore[no-untyped-call]
        captured = cuda and config.capture and processes.world == 1
        pool = torch.cuda.graph_pool_handle() if captured else None
        self._backward = GraphedFunction(self._add_gradients, pool) if captured else self._add_gradients
        self._apply = GraphedFunction(self._update_and_clear, pool) if captured else self._update_and_clear
        self._single = GraphedFunction(self._single_batch, pool) if captured else None
        self.bf16_weights = Bf16Weights(self.model_with_loss, model.bf16_weights()) if captured and bf16 else None
        self.accumulated: list[Tensor] = []  # gradients of several batches, to which captured steps add

    def __call__(self, batches: Sequence[Batch], tokens: int, step: int, rate: float) -> None:
        """Update the weights from batches as if they were one; `tokens`: target tokens of all, in all processes."""
        torch.manual_seed((self.config.seed * 1_000_003 + step) * 1009 + self.processes.rank)
        with self._on_stream():
            self.per_token.fill_(self.processes.world / tokens)
            self.step.fill_(step)
            self._set_rate(rate)
            if self.average is not None:
                self.average.set_step(step)
            if self._single is not None and len(batches) == 1:
                self._single(*batches[0].tensors)
                return
            if self._single is not None:
                self._accumulate_gradients()
            for number, batch in enumerate(batches):
                with self._no_sync(last=number == len(batches) - 1):
                    self._backward(*batch.tensors)
            self._apply()

    def _add_gradients(
        self, x: Tensor, y: Tensor, links: Tensor | None = None, *, bf16_weights: Bf16Weights | None = None
    ) -> None:
        """Run one batch forward and backward: add its gradients, and its losses to the sums."""
        with self.processes.together(working=True) if self.processes.world > 1 else nullcontext():
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                total, correct, *auxiliary = (bf16_weights or self.model_with_loss)(x, y, self.per_token, links)
            total.backward()
        with torch.no_grad():
            tokens = total.detach().float() / self.per_token
            for term, value in zip(self.auxiliary.values(), auxiliary[::2], strict=True):
                tokens -= value * term.weight
            self.sums += torch.stack([tokens, correct.float(), *auxiliary])

    @torch.no_grad()
    def _update(self) -> list[Tensor]:
        """Clip the gradients and update the weights, unless something is not finite; return the gradients."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        broken = ~torch.isfinite(norm)  # the same in all processes, and not finite where the loss is not
        self.first_nonfinite_step += torch.where(
            broken & (self.first_nonfinite_step == 0), self.step, torch.zeros_like(self.step)
        )
        stop = (self.first_nonfinite_step > 0).float()
        # AdamW divides by the first and skips the update when the second is 1: clipping needs no pass of its own.
        self.optimizer.grad_scale = (norm / (self.config.clip or math.inf)).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimizer.found_inf = stop  # type: ignore[attr-defined]
        self.optimizer.step()
        self._share_statistics()
        if self.average is not None:
            self.average.update(stop)
        return gradients

    def _share_statistics(self) -> None:
        """Set running statistics to their mean over all processes, each of which computed those of its share."""
        if self.processes.world > 1 and self.statistics:
            sums = self.processes.add_up(torch.cat([one.flatten() for one in self.statistics]))
            parts = (sums / self.processes.world).split([one.numel() for one in self.statistics])  # type: ignore[no-untyped-call]
            for statistic, part in zip(self.statistics, parts, strict=True):
                statistic.copy_(part.view_as(statistic))

    @torch.no_grad()
    def _update_and_clear(self) -> None:
        """Update the weights and set the gradients to zero."""
        torch._foreach_zero_(self._update())

    def _single_batch(self, x: Tensor, y: Tensor, links: Tensor | None = None) -> None:
        """Update the weights from one batch, captured as one graph: its gradients are set, not added to others."""
        for parameter in self.parameters:
            parameter.grad = None
        self._add_gradients(x, y, links, bf16_weights=self.bf16_weights)
        if self.bf16_weights is not None:
            self.bf16_weights.set_gradients()
        for parameter in self.parameters:
            if parameter.grad is None:  # it took no part in the loss, but weight decay applies
                parameter.grad = torch.zeros_like(parameter)
        self._update()
        # The graph writes to the same memory when it is replayed; until then other captures may use it.
        for parameter in self.parameters:
            parameter.grad = None

    def _accumulate_gradients(self) -> None:
        """Let gradients be added to memory that stays the same from step to step, and is zero between updates."""
        self.accumulated = self.accumulated or [torch.zeros_like(parameter) for parameter in self.parameters]
        for parameter, gradient in zip(self.parameters, self.accumulated, strict=True):
            parameter.grad = gradient

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Run on a CUDA stream of our own: a graph cannot be captured on the default one."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream(self.device).wait_stream(self.stream)

    def _no_sync(self, last: bool) -> AbstractContextManager[None]:
        """Exchange gradients between processes only with the last of several batches."""
        if last or not isinstance(self.model_with_loss, DistributedDataParallel):
            return nullcontext()
        return self.model_with_loss.no_sync()

    def read(self) -> StepStats:
        """Return the sums since the last reading, over all processes, and reset them."""
        with self._on_stream():
            loss, correct, *sums = self.processes.add_up(self.sums.cpu()).tolist()
            first_nonfinite_step = int(self.first_nonfinite_step.item())
            self.sums.zero_()
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return StepStats(loss, correct, first_nonfinite_step, dict(zip(self.auxiliary, pairs, strict=True)))

    def close(self) -> None:
        """Release captured graphs and their memory."""
        for work in (self._backward, self._apply, self._single):
            if isinstance(work, GraphedFunction):
                work.close()


class MovingAverage:
    """a ← a + (1 - d)(w - a) after each update, d = min(decay, (1 + t) / (10 + t)): short at first, then longer."""

    def __init__(self, tensors: Sequence[Tensor], decay: float, device: torch.device) -> None:
        self.tensors, self.decay = list(tensors), decay
        self.values = [tensor.detach().clone() for tensor in self.tensors]
        self.part = torch.zeros((), device=device)  # 1 - d

    def set_step(self, step: int) -> None:
        """Set the decay of a step."""
        self.part.fill_(1 - min(self.decay, (1 + step) / (10 + step)))

    @torch.no_grad()
    def update(self, off: Tensor) -> None:
        """Move towards the current weights; not at all where `off` is 1."""
        differences = torch._foreach_sub(self.tensors, self.values)
        torch._foreach_mul_(differences, self.part * (1 - off))
        torch._foreach_add_(self.values, differences)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average: to validate the average, and again to continue training."""
        for tensor, value in zip(self.tensors, self.values, strict=True):
            kept = tensor.detach().clone()
            tensor.copy_(value)
            value.copy_(kept)


def mean_weights(models: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several models' weights."""
    return {
        name: torch.stack([m[name].double() for m in models]).mean(0).to(tensor.dtype)
        for name, tensor in models[0].items()
    }
