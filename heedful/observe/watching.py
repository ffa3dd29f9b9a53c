"""Watching a model of another library: every `scaled_dot_product_attention` inside it, with weights that can be read.

The call itself is not changed, so that the output is the same bit for bit; its arguments and the log-sum-exp of its
kernel are kept, and `heedful.fused.triton.scaled.ScaledWeights` reads from them. Neither the model nor a function is
changed: `_attention` is registered with PyTorch's dispatcher for a key that nothing else uses, and which is on in this
thread until the block ends, also with an error. So other operations cost nothing more. Which module made a call is
read from Python's call stack; a hook on the model, or on its encoder and decoder, records which tokens they read.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.library import Library, fallthrough_kernel
from torch.overrides import TorchFunctionMode

from heedful.draw.model_attention import ModelAttention
from heedful.errors import ConfigError, HeedfulError, choose, nearest
from heedful.fused.triton.policy import WAYS
from heedful.fused.triton.scaled import Caught, ScaledWeights, scaled_scores
from heedful.observe.joining import ForwardPass, Parts, join, recording

NOTHING = (
    "no call of scaled_dot_product_attention was recorded; likely the model did not run in this block and thread, its "
    "attention is eager or flex (attn_implementation='sdpa' in transformers), or it runs compiled"
)


@dataclass
class AttentionCall:
    """One call of attention: the module's name, which call of that module it is (from 0), and its weights.

    `weights` reads them (B, H, T, S), or is None once they were freed; they are from before dropout, and `dropout` is
    the share that was left out of the output's sum. `kept` is what `each` returned, and `run` the number of the
    model's forward pass.
    """

    module: str
    number: int
    shape: tuple[int, int, int, int]
    backend: str
    dropout: float
    weights: ScaledWeights | None
    kept: object = None
    run: int = -1

    def array(self) -> NDArray[np.float32]:
        """Return all weights as an array.  (B, H, T, S)."""
        return self._read().block().float().cpu().numpy()

    def top(self, count: int = 8) -> LargestWeights:
        """Return for every query the keys with the largest weights, as arrays."""
        positions, weights, mass = (x.cpu().numpy() for x in self._read().top(count))
        return LargestWeights(positions.astype(np.int32), weights.astype(np.float32), mass.astype(np.float32))

    def _read(self) -> ScaledWeights:
        if self.weights is None:
            raise ConfigError(
                f"the weights of {_module_name(self.module)} were freed; watch with after='keep' or 'cpu'"
            )
        return self.weights


class LargestWeights(NamedTuple):
    """For every query the keys with the largest weights, largest first, of equal ones the first.

    `positions` and `weights` (B, H, T, count), `mass` (B, H, T): how much of the row they cover. Where fewer may be
    attended to, the position is -1 and the weight 0.
    """

    positions: NDArray[np.int32]
    weights: NDArray[np.float32]
    mass: NDArray[np.float32]


class WatchedCalls(Sequence[AttentionCall]):
    """The recorded calls, in order: `calls[0]` is the first one, `calls["decoder.*"]` are those of some modules.

    `attention` joins them to one record of all layers, which `show` prints and `save` writes.
    """

    def __init__(self, parts: Parts | None = None, tokenizer: Any = None) -> None:  # noqa: ANN401
        self.calls: list[AttentionCall] = []
        self.unread: list[tuple[str, str]] = []  # modules whose call could not be kept, and why
        self.passes: list[ForwardPass] = []
        self.parts, self.tokenizer = parts, tokenizer

    def attention(self, row: int = 0) -> ModelAttention:
        """Return the attention of one row of the batch, in every layer.

        The calls of a layer while the model generates with a cache are one map, from which padding is removed. Of
        several sequences, it is the last. Without a tokenizer, tokens are numbered.
        """
        if not self.calls or self.parts is None:
            raise ConfigError("; ".join(f"{_module_name(name)}: {why}" for name, why in self.unread[:1]) or NOTHING)
        return join(self.parts, self.passes, self.calls, self.tokenizer, row)

    def show(self, view: str | None = None, *, row: int = 0, **options: Any) -> None:  # noqa: ANN401
        """Print a view of the attention, or show it in a notebook: see `ModelAttention.show`."""
        self.attention(row).show(view, **options)

    def save(self, path: str | Path, view: str | None = None, *, row: int = 0, **options: Any) -> str:  # noqa: ANN401
        """Write the attention to a file, .html, .svg, .png or .json: see `ModelAttention.save`."""
        return self.attention(row).save(path, view, **options)

    def _repr_html_(self) -> str:
        try:
            return self.attention().element()
        except HeedfulError as error:
            return f"<pre>{escape(str(self))}\nnot joined: {escape(str(error))}</pre>"

    def __len__(self) -> int:
        return len(self.calls)

    @overload
    def __getitem__(self, which: int) -> AttentionCall: ...
    @overload
    def __getitem__(self, which: slice | str) -> list[AttentionCall]: ...
    def __getitem__(self, which: int | slice | str) -> AttentionCall | list[AttentionCall]:
        if not isinstance(which, str):
            return self.calls[which]
        matching = [call for call in self.calls if fnmatchcase(call.module, which)]
        if not matching:
            near = nearest(which, self.modules)
            raise ConfigError(f"no module '{which}' called attention; choose from {', '.join(self.modules)}.{near}")
        return matching

    @property
    def modules(self) -> list[str]:
        """The names of the modules that called, in the order of their first call."""
        return list(dict.fromkeys(call.module for call in self.calls))

    @property
    def memory(self) -> int:
        """How many bytes of tensors are held, each counted once."""
        held: dict[int, int] = {}
        for call in self.calls:
            held |= call.weights.storages() if call.weights else {}
        return sum(held.values())

    def free(self) -> None:
        """Free all tensors; what `each` returned stays."""
        for call in self.calls:
            call.weights = None

    def to(self, device: torch.device | str) -> None:
        """Move all tensors to a device; what cannot be read any more is freed, and listed in `unread`."""
        for call in self.calls:
            try:
                call.weights = call.weights and call.weights.to(device)
            except Exception as error:  # another exception may be on its way, which must not be hidden
                call.weights = None
                self.unread.append((call.module, described(error)))

    def __str__(self) -> str:
        """One line for each module, and how much memory is held."""
        lines = []
        for name in self.modules:
            calls = [call for call in self.calls if call.module == name]
            shapes = ", ".join(dict.fromkeys(" × ".join(map(str, call.shape)) for call in calls))
            backends = ", ".join(dict.fromkeys(call.backend for call in calls))
            lines.append(f"{_module_name(name)}: {len(calls)} × ({shapes}) by {backends}")
        lines += [f"{_module_name(name)}: not read, {why}" for name, why in dict.fromkeys(self.unread)]
        lines += [] if lines else [NOTHING]
        return "\n".join([*lines, f"{len(self)} calls, {self.memory / 1024:,.1f} KiB held"])

    __repr__ = __str__


def _module_name(name: str) -> str:
    """Return a module's name; that of the whole model is empty."""
    return name or "(the model)"


def described(error: Exception) -> str:
    """Return an error in one line; for one that is not heedful's, with its type."""
    return str(error) if isinstance(error, HeedfulError) else f"{type(error).__name__}: {' '.join(str(error).split())}"


AFTER = ("keep", "cpu", "free")


@contextmanager
def watch(
    model: nn.Module,
    tokenizer: Any = None,  # noqa: ANN401
    *,
    only: str | Sequence[str] = "*",
    last: int | None = None,
    each: Callable[[AttentionCall], object] | None = None,
    after: str = "keep",
    copy: bool = False,
    how: str = "auto",
) -> Iterator[WatchedCalls]:
    """Watch every `scaled_dot_product_attention` inside a model: `with watch(model) as calls: model(…)`.

    After the block, `calls.show()` prints the attention of all layers, and `calls.save("x.html")` writes it. The
    `tokenizer` names the tokens; without it they are numbered.

    `only` are names of modules, with `*` as a wildcard; `last` keeps so many calls of each module (None: all). `each`
    is called with each call while its tensors are there; what it returns is kept instead of them. `after` is what
    happens to q and k when the block ends: "keep", "cpu" (moved there) or "free". `copy` keeps copies, for models that
    write into their keys later (static caches). `how` is what reads the weights, as in `scaled_attend`.
    """
    patterns = _checked(only, last, each, after, copy, how)
    modules = _modules(model, patterns)
    parts = Parts.of(model)
    watched = WatchedCalls(parts, tokenizer)
    watcher = _Watcher(watched, modules, patterns, last, each, copy, how)
    with ExitStack() as until:
        until.callback({"keep": lambda: None, "cpu": lambda: watched.to("cpu"), "free": watched.free}[after])
        until.enter_context(recording(parts, watched.passes))
        until.enter_context(watcher)
        if any(isinstance(module, _FUSED_LAYERS) for module in modules.values()):
            until.enter_context(_NotFused())
        yield watched
    if not watched.calls and not watched.unread:
        warnings.warn(NOTHING, UserWarning, stacklevel=3)


def _checked(only: object, last: object, each: object, after: str, copy: object, how: str) -> tuple[str, ...]:
    """Raise ConfigError for wrong arguments of `watch`; return the names of modules that are wanted."""
    choose("thing to do after it (after)", after, AFTER)
    choose("way (how)", how, WAYS)
    if last is not None and (not isinstance(last, int) or isinstance(last, bool) or last < 1):
        raise ConfigError(f"last={last!r}: how many calls of each module are kept, 1 or more; None, or nothing: all")
    if each is not None and not callable(each):
        raise ConfigError(f"each={each!r}: a function that is called with each call, or None")
    if not isinstance(copy, bool):
        raise ConfigError(f"copy={copy!r}: True or False")
    patterns = (only,) if isinstance(only, str) else tuple(only) if isinstance(only, Iterable) else ()
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigError(f"only={only!r}: the name of a module, or several; * matches anything")
    return patterns


def _modules(model: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Module]:
    """Return all modules by name; raise ConfigError for what is no model, and for names that no module has."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"a torch.nn.Module can be watched, not {type(model).__name__}")
    if "_orig_mod" in model._modules:
        raise ConfigError("a compiled model cannot be watched; watch the one it was compiled from (model._orig_mod)")
    modules: dict[str, nn.Module] = {}
    seen: set[int] = set()
    # As `named_modules`, in the same order and in a third of the time.
    left: list[tuple[str, nn.Module]] = [("", model)]
    while left:
        name, module = left.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        children = module._modules
        if "_orig_mod" in children or getattr(module, "_compiled_call_impl", None) is not None:
            raise ConfigError(
                f"{_module_name(name)} is compiled, and cannot be watched; watch the model before it is compiled"
            )
        if not isinstance(module, torch.jit.ScriptModule):
            modules[name] = module
        if children:
            prefix = f"{name}." if name else ""
            left += [(prefix + key, child) for key, child in reversed(children.items()) if child is not None]
    for pattern in patterns:
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in modules):
            raise ConfigError(f"no module is named '{pattern}'.{nearest(pattern, modules)}")
    return modules


# In evaluation PyTorch runs these as one operation without visible attention, unless a function mode is on.
_FUSED_LAYERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


class _NotFused(TorchFunctionMode):
    """A function mode that changes nothing."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        return func(*args, **(kwargs or {}))


class _Active(threading.local):
    """The blocks that are open in this thread, the innermost last."""

    def __init__(self) -> None:
        self.watchers: list[_Watcher] = []


_ACTIVE = _Active()
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_CALL = nn.Module._call_impl.__code__


@cache
def _key() -> Any:  # noqa: ANN401  (of type DispatchKey, which has no member for it)
    """Register `_attention` for a dispatch key, and return that.

    PyTorch's own tests of its dispatcher use the key. It comes before all others, so that autocast, gradients and
    transforms of functions are as without it.
    """
    name = "TESTING_ONLY_GenericMode"
    everything, attention = Library("_", "IMPL"), Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    # For all other operations: as if the key were not there.
    everything.fallback(fallthrough_kernel, name)  # type: ignore[no-untyped-call]
    attention.impl("scaled_dot_product_attention", _attention, name)  # type: ignore[no-untyped-call]
    _LIBRARIES.extend((everything, attention))
    return torch._C._dispatch_key_parse(name)


_LIBRARIES: list[Library] = []  # what they register lives as long as they do


def _attention(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """Call `scaled_dot_product_attention`, and let the open blocks keep it."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_key())):
        if not _ACTIVE.watchers or torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            return _ATTENTION(*args, **kwargs)
        names = [(watcher, watcher.calling(sys._getframe(1))) for watcher in _ACTIVE.watchers]
        calls = [(watcher, name) for watcher, name in names if name is not None]
        if not calls:
            return _ATTENTION(*args, **kwargs)
        with Caught() as caught:
            output = _ATTENTION(*args, **kwargs)
        for watcher, name in calls:
            watcher.keep(name, caught, args, kwargs)
        return output


class _Watcher:
    """What one block records: a context manager."""

    def __init__(
        self,
        watched: WatchedCalls,
        modules: dict[str, nn.Module],
        patterns: Sequence[str],
        last: int | None,
        each: Callable[[AttentionCall], object] | None,
        copy: bool,
        how: str,
    ) -> None:
        self.watched, self.last = watched, last
        self.each, self.copy, self.how = each, copy, how
        self.modules = modules  # held, so that no id is given to another module
        self.names = {id(module): name for name, module in modules.items()}
        self.wanted = cache(lambda name: any(fnmatchcase(name, pattern) for pattern in patterns))
        self.numbers: dict[str, int] = {}
        self.keys: dict[str, _GrowingKeys] = {}
        self.guard = torch._C._IncludeDispatchKeyGuard(_key())

    def __enter__(self) -> None:
        self.guard.__enter__()  # type: ignore[no-untyped-call]
        _ACTIVE.watchers.append(self)

    def __exit__(self, *error: object) -> None:
        _ACTIVE.watchers.remove(self)
        self.guard.__exit__(*error)
        for keys in self.keys.values():
            keys.share()

    def calling(self, frame: FrameType | None) -> str | None:
        """Return the name of the innermost module of the model that is running, or None if it is not wanted."""
        while frame is not None:
            if frame.f_code is _CALL:
                name = self.names.get(id(frame.f_locals["self"]))
                if name is not None:
                    return name if self.wanted(name) else None
            frame = frame.f_back
        return None

    def call(self, name: str, number: int, caught: Caught, arguments: _Arguments) -> AttentionCall:
        """Return one call, with what its weights are read from."""
        q, k, mask = _four_axes(arguments.q, arguments.k, arguments.mask)
        scores = scaled_scores(q, k, scale=arguments.scale, causal=arguments.causal, mask=mask)
        lse, backend = caught.of(scores.q)
        if self.copy:
            mask = None if scores.mask is None else scores.mask.clone()
            scores = replace(scores, q=scores.q.clone(), k=scores.k.clone(), mask=mask)
        weights = ScaledWeights(scores, lse, backend, self.how)
        return AttentionCall(name, number, weights.shape, backend, arguments.dropout, weights)

    def keep(self, name: str, caught: Caught, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep one call."""
        number = self.numbers.get(name, 0)
        self.numbers[name] = number + 1
        try:
            call = self.call(name, number, caught, _arguments(*args, **kwargs))
        except Exception as error:  # whatever it is, the model goes on as if it were not watched
            self.watched.unread.append((name, described(error)))
            return
        call.run = len(self.watched.passes) - 1
        if self.each is not None:
            call.kept, call.weights = self.each(call), None
        elif self.last is None and call.weights is not None and call.weights.scores.k.device.type == "cpu":
            self.keys.setdefault(name, _GrowingKeys()).add(call)
        self.watched.calls.append(call)
        if self.last is not None and number >= self.last:
            self.watched.calls = [c for c in self.watched.calls if c.module != name or c.number > number - self.last]


SHARED = 16  # calls after which keys are shared


class _GrowingKeys:
    """The calls of a module that continue one sequence: each has the keys of the call before it, and some more.

    A cache that grows copies all keys at every step, so that keeping each copy would take memory that grows with the
    square of the length. From time to time the keys of all calls become views of those of the newest one, if they are
    equal. Only on the CPU: to compare them, a GPU would have to wait.
    """

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []
        self.shared = 0  # the number of calls whose keys are views of those of the last of them

    def add(self, call: AttentionCall) -> None:
        """Add the next call; if it does not continue the one before, it begins anew."""
        before = self.calls[-1] if self.calls else None
        B, H, T, S = call.shape
        if before is None or (*before.shape[:2], before.shape[3]) != (B, H, S - T):
            self.share()
            self.calls, self.shared = [call], 0
            return
        self.calls.append(call)
        if len(self.calls) - self.shared > SHARED:
            self.share()

    def share(self) -> None:
        """Let the keys of all calls be views of those of the last."""
        last = self.calls[-1].weights if len(self.calls) > max(1, self.shared) else None
        if last is None or not last.unchanged:
            return
        k = last.scores.k
        # Of those that share their keys already, the last is compared for all.
        compared = [call.weights for call in self.calls[max(0, self.shared - 1) : -1]]
        try:
            equal = all(one is not None and one.has_first_keys(k) for one in compared)
        except Exception:  # such as of a transform of functions; the model goes on as if it were not watched
            equal = False
        if not equal:
            self.calls, self.shared = self.calls[-1:], 0
            return
        for call in self.calls[:-1]:
            if call.weights is not None and call.weights.unchanged:
                call.weights = call.weights.with_first_keys(k)
        self.shared = len(self.calls)


class _Arguments(NamedTuple):
    q: Tensor
    k: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    scale: float | None


def _arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> _Arguments:
    """Sort the arguments of `scaled_dot_product_attention`."""
    return _Arguments(query, key, attn_mask, float(dropout_p), is_causal, scale)


def _four_axes(q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return q (B, H, T, C), k (B, G, S, C) and a mask that fits; PyTorch takes more than that."""
    usual = type(q) is type(k) is Tensor and q.dim() == k.dim() == 4 and not (q.is_nested or k.is_nested)
    if usual and mask is None and q.shape[0] == k.shape[0] and q.shape[1] % k.shape[1] == 0:
        return q, k, mask
    if any(x is not None and (x.is_nested or type(x) not in (Tensor, nn.Parameter)) for x in (q, k, mask)):
        raise ConfigError("nested tensors and subclasses of Tensor cannot be read")
    if q.dim() != k.dim() or not 2 <= q.dim() <= 4:
        raise ConfigError(f"q of {q.dim()} axes and k of {k.dim()}; 2 to 4 can be read")
    if mask is not None and not 2 <= mask.dim() <= 4:
        raise ConfigError(f"a mask of {mask.dim()} axes; 2 to 4 can be read")
    if q.dim() == 3:
        # Without heads: the first axis is the batch, of the mask, too.
        q, k = q[:, None], k[:, None]
        mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask
    elif q.dim() == 2:
        q, k = q[None, None], k[None, None]
    B = max(q.shape[0], k.shape[0])
    q, k = q.expand(B, *q.shape[1:]), k.expand(B, *k.shape[1:])
    if q.shape[1] % k.shape[1]:
        raise ConfigError(f"q has {q.shape[1]} heads and k has {k.shape[1]}")
    return q, k, mask
