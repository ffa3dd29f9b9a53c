"""One pass over all weights of scaled dot-product attention, P = exp(scale·q·k − lse), without storing them.

A program of `_pass` has one block of keys and loops over the queries. The weight that a position receives is summed
over the tiles, and over their rows at the end; Σ p·log p of a row over this block is written to a buffer, which
`_entropies` sums. There are no atomic additions, so the result is deterministic. For the top positions, the largest
score of every group of `GROUP` keys is written, too. Queries are processed in slabs, so that a buffer has at most
`BUFFER` elements, or as many as q if that is more. With a causal mask, blocks of keys after the last query of a slab
have neither a program nor a place in the buffers, and what was not written there is not read.

The `count` largest weights of a query are in the `count` groups with the largest maxima. `_search` computes only those
groups again: 8 groups of 16 keys for the top 8, for any length. A program is one warp with one query. Scores are
compared as integers in the same order, whose maximum over a warp is one instruction; of equal ones the first position
is taken.

The definition is `scaled_plain`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.fused.triton.launch import kernel, part, power_of_2
from heedful.fused.triton.scaled_plain import LOW, Scores, Summary, Top

if TYPE_CHECKING:
    import triton.language as tl


ROWS = 64  # slabs are multiples of it
GROUP = 16  # keys of which `_pass` writes the largest score
BUFFER = 1 << 24  # elements of each buffer: 64 MiB
BY_QUERIES = 1.0  # the same for each element of q: a forward pass holds several times as much in its other layers
SUMMED = (16, 128)  # blocks and queries that a program of `_entropies` adds at once
MOST = 65_535  # queries of a slab: the limit of a grid's second axis
LOG2E = 1.4426950408889634
WIDEST = 256  # channels per head
MOST_TOP = 16  # positions in a search
QUERIES = 1  # of a program of `_search`
CHUNK = 512  # groups that are compared together
FETCHED = 2048  # elements of keys that are loaded together
# Bytes of shared memory, as compiled for compute capability 8.6 and 9.0: up to 64 channels, more than 64, and more than
# 128 in fp32.
SHARED = (73728, 90112, 106496)


@part
def _tile(
    q, k, level, b, mask, rows, columns, mt, ms, T, S, factor,
    CAUSAL: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, EDGE: tl.constexpr, PRECISION: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """log2 of the weights of a tile, -1e30 or less for 0.  q (R, C), k (C, N), level (R,), b (N,) -> (R, N)."""
    if MASK:
        # The mask is the initial value of the product, not added afterwards: so it is converted to the layout of the
        # product, and not the product to that of the mask, which makes every sum over a row far slower.
        valid = (rows < T)[:, None] & (columns < S)[None, :]
        at = rows.to(tl.int64)[:, None] * mt + columns.to(tl.int64)[None, :] * ms
        m = tl.load(mask + at, valid, 0)
        low = -1e30 / factor
        if MASK == 1:
            m = tl.where(m != 0, 0.0, low)
        else:
            m = m.to(tl.float32)
            m = tl.where(m <= -1e30, low, m * (1.4426950408889634 / factor))
        z = tl.dot(q, k, m, input_precision=PRECISION) * factor - level[:, None]
    else:
        z = tl.dot(q, k, input_precision=PRECISION) * factor - level[:, None]
    if BIAS:
        z += b[None, :]
    if EDGE:
        valid = (columns < S)[None, :]
        if CAUSAL:
            valid &= columns[None, :] <= rows[:, None]
        z = tl.where(valid, z, -1e30)
    return z


@part
def _halves(x, ROWS: tl.constexpr, N: tl.constexpr) -> tl.tensor:
    """The first and the second half of each row, for half as many columns each.  (R, N) -> (R, N/2) twice."""
    return tl.split(tl.permute(tl.reshape(x, [ROWS, 2, N // 2]), (0, 2, 1)))


@part
def _sum_of_products(p, z, ROWS: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr) -> tl.tensor:
    """Σ p·z of each row.  (R, N) -> (R,)."""
    if PRECISION == "ieee":
        return tl.sum(p * z, 1)
    # tl.sum adds pairs of products: three instructions for two. A thread has the same columns of all four quarters, so
    # here it takes five for four.
    p0, p1 = _halves(p, ROWS, N)
    z0, z1 = _halves(z, ROWS, N)
    p00, p01 = _halves(p0, ROWS, N // 2)
    z00, z01 = _halves(z0, ROWS, N // 2)
    p10, p11 = _halves(p1, ROWS, N // 2)
    z10, z11 = _halves(z1, ROWS, N // 2)
    return tl.sum(((p00 * z00 + p01 * z01) + p10 * z10) + p11 * z11, 1)


@kernel("T", "S", "H", "begin", "end", "bb", "bh", "group")
def _pass(
    q, k, lse, bias, mask, received, parts, tops, H, T, S, begin, end,
    qb, qh, qt, kb, kh, ks, bb, bh, mb, mh, mt, ms, group, factor,
    C: tl.constexpr, CAUSAL: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, TOP: tl.constexpr,
    PRECISION: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr,
) -> None:  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    sentence, head = pair // H, pair % H
    first = tl.program_id(1) * KEYS
    columns = first + tl.arange(0, KEYS)
    c = tl.arange(0, CHANNELS)
    q += sentence * qb + head * qh
    k += sentence * kb + (head // group) * kh
    mask += sentence * mb + head * mh
    lse += pair * T
    slab = end - begin
    parts += (pair * tl.num_programs(1) + tl.program_id(1)) * slab - begin
    groups = tl.num_programs(1) * (KEYS // GROUP)
    tops += (pair * slab - begin) * groups + tl.program_id(1) * (KEYS // GROUP)
    at = columns.to(tl.int64)[None, :] * ks + c[:, None]
    kt = tl.load(k + at, (columns < S)[None, :] & (c < C)[:, None], 0.0)
    b = tl.zeros([KEYS], tl.float32)
    if BIAS:
        b = tl.load(bias + sentence * bb + head * bh + columns, columns < S, -1e30)
    total = tl.zeros([ROWS, KEYS], tl.float32)
    # Rows before `start` attend to none of these keys, rows from `plain` on to all of them; up to `full` they are whole
    # tiles. Whole tiles without a mask run in the second loop; the others, which are few, in the first.
    start, plain = begin, begin
    if CAUSAL:
        start = tl.maximum(begin, first // ROWS * ROWS)
        plain = tl.maximum(begin, tl.minimum(end, first + KEYS))
    if first + KEYS > S:
        plain = end
    full = begin + slab // ROWS * ROWS
    ahead = tl.cdiv(tl.maximum(plain - start, 0), ROWS)
    rest = tl.where((plain <= full) & (full < end), 1, 0)
    r = tl.arange(0, ROWS)
    g = tl.arange(0, KEYS // GROUP)
    q += r.to(tl.int64)[:, None] * qt + c[None, :]
    tops += r.to(tl.int64)[:, None] * groups + g[None, :]
    for unmasked in tl.static_range(2):
        for i in range(0, (full - plain) // ROWS if unmasked else ahead + rest):
            if unmasked:
                t = plain + i * ROWS
                qs = tl.load(q + t.to(tl.int64) * qt, (c < C)[None, :], 0.0)
                level = tl.load(lse + t + r)
            else:
                t = tl.where(i < ahead, start + i * ROWS, full)
                qs = tl.load(q + t.to(tl.int64) * qt, (t + r < end)[:, None] & (c < C)[None, :], 0.0)
                level = tl.load(lse + t + r, t + r < end, float("inf"))
            rows = t + r
            # Finite for a row with nothing to attend to, so that 0 · z is 0.
            level = tl.where(level == float("inf"), 1e30, level * 1.4426950408889634)
            z = _tile(
                qs,
                kt,
                level,
                b,
                mask,
                rows,
                columns,
                mt,
                ms,
                T,
                S,
                factor,
                CAUSAL,
                BIAS,
                MASK,
                unmasked == 0,
                PRECISION,
            )
            p = tl.exp2(z)
            total += p
            valid = rows < end
            products = _sum_of_products(p, z, ROWS, KEYS, PRECISION)
            if unmasked:
                tl.store(parts + rows, products)
            else:
                tl.store(parts + rows, products, valid)
            if TOP:
                # A group is not 16 adjacent keys, but those that one thread holds of the product.
                best = tl.max(tl.max(tl.reshape(z, [ROWS, KEYS // 64, 8, 4, 2]), 4), 2)
                best = tl.reshape(best, [ROWS, KEYS // GROUP])
                if unmasked:
                    tl.store(tops + t.to(tl.int64) * groups, best)
                else:
                    tl.store(tops + t.to(tl.int64) * groups, best, valid[:, None])
    place = received + pair * S + columns
    before = tl.load(place, columns < tl.where(begin > 0, S, 0), 0.0)
    tl.store(place, before + tl.sum(total, 0), columns < S)


@kernel("T", "begin", "end", "blocks")
def _entropies(
    parts, entropy, T, begin, end, blocks,
    CAUSAL: tl.constexpr, KEYS: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr,
) -> None:  # fmt: skip
    """-Σ p·log p of the queries of a slab, from the sums of p·log2 p over each block of keys."""
    pair = tl.program_id(0).to(tl.int64)
    rows = begin + tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    slab = end - begin
    parts += pair * blocks * slab - begin
    last = blocks
    if CAUSAL:
        last = tl.minimum(blocks, (begin + (tl.program_id(1) + 1) * ROWS - 1) // KEYS + 1)
    total = tl.zeros([BLOCKS, ROWS], tl.float32)
    for first in range(0, last, BLOCKS):
        block = first + tl.arange(0, BLOCKS)
        valid = (block < last)[:, None] & (rows < end)[None, :]
        if CAUSAL:
            valid &= block[:, None] * KEYS <= rows[None, :]
        total += tl.load(parts + block.to(tl.int64)[:, None] * slab + rows[None, :], valid, 0.0)
    tl.store(entropy + pair * T + rows, tl.sum(total, 0) * -0.6931471805599453, rows < end)


@kernel("T", "S", "H", "bb", "bh", "group")
def _sums(
    q, k, lse, bias, mask, H, T, S, qb, qh, qt, kb, kh, ks, bb, bh, mb, mh, mt, ms, group, factor,
    C: tl.constexpr, CAUSAL: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr,
    PRECISION: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
) -> None:  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    sentence, head = pair // H, pair % H
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, CHANNELS)
    q += sentence * qb + head * qh
    k += sentence * kb + (head // group) * kh
    mask += sentence * mb + head * mh
    bias += sentence * bb + head * bh
    qs = tl.load(q + rows.to(tl.int64)[:, None] * qt + c[None, :], (rows < T)[:, None] & (c < C)[None, :], 0.0)
    zero = tl.zeros([ROWS], tl.float32)
    top, mass = zero - 1e30, zero
    last = S
    if CAUSAL:
        last = tl.minimum(S, (tl.program_id(1) + 1) * ROWS)
    for first in range(0, last, KEYS):
        columns = first + tl.arange(0, KEYS)
        at = columns.to(tl.int64)[None, :] * ks + c[:, None]
        kt = tl.load(k + at, (columns < S)[None, :] & (c < C)[:, None], 0.0)
        b = tl.zeros([KEYS], tl.float32)
        if BIAS:
            b = tl.load(bias + columns, columns < S, -1e30)
        z = _tile(qs, kt, zero, b, mask, rows, columns, mt, ms, T, S, factor, CAUSAL, BIAS, MASK, True, PRECISION)
        higher = tl.maximum(top, tl.max(z, 1))
        mass = mass * tl.exp2(top - higher) + tl.sum(tl.exp2(z - higher[:, None]), 1)
        top = higher
    log_sum = (top + tl.log2(mass)) * 0.6931471805599453
    # A row with NaN is not empty.
    nothing = (top <= -1e29) & (mass == mass)
    tl.store(lse + pair * T + rows, tl.where(nothing, float("inf"), log_sum), rows < T)


class KernelInputs:
    """The arguments of the kernels for some scores: pointers, strides and constants."""

    def __init__(self, scores: Scores) -> None:
        B, H, T, S = scores.shape
        self.q, self.k = (x if x.stride(-1) == 1 else x.contiguous() for x in (scores.q, scores.k))
        if not self.q.is_cuda:
            # Triton's interpreter reads bf16 as integers in matrix products.
            self.q, self.k = self.q.float(), self.k.float()
        mask, bias = scores.mask, scores.bias
        self.bias = self.q if bias is None else (bias.float() * LOG2E).clamp(min=LOW).contiguous()
        spread = self.bias.expand(B, H, S).stride()[:2] if bias is not None else (0, 0)
        # As bytes: Triton cannot load booleans everywhere.
        self.mask = self.q if mask is None else mask.view(torch.uint8) if mask.dtype == torch.bool else mask
        along = (0, 0, 0, 0) if mask is None else self.mask.expand(B, H, T, S).stride()
        self.strides = (*self.q.stride()[:3], *self.k.stride()[:3], *spread, *along)
        self.group, self.factor = H // scores.k.shape[1], scores.scale * LOG2E
        C = self.q.shape[-1]
        kind = 0 if mask is None else 1 if mask.dtype == torch.bool else 2
        self.compiled = (C, scores.causal, bias is not None, kind)
        # Rows and keys of a tile that fits into registers. tf32 would round factors of fp32 to 11 bits.
        wide = scores.q.dtype == torch.float32
        self.rows, self.keys = (32, 64) if wide else (64, 128) if C <= 128 else (64, 64)
        # Tiles that are loaded ahead: shared memory holds only one wide tile.
        self.stages = 1 if C > 128 else 3
        self.registers = _registers(str(self.q.device)) if not wide and C <= 64 else None
        self.sizes = ("ieee" if wide else "tf32", max(16, power_of_2(C)))


def unfit(scores: Scores) -> str:
    """Return why the kernels cannot take these scores, or ""."""
    if scores.level is not None:
        return "the kernels take no mask that makes every score of a row very low or very high"
    if not scores.scale:
        return "the kernels take a scale other than 0"
    if scores.q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"the kernels take fp32, fp16 and bf16, not {str(scores.q.dtype).removeprefix('torch.')}"
    C = scores.q.shape[-1]
    if C > WIDEST:
        return f"the kernels take heads of at most {WIDEST} channels"
    needed, available = _shared(C, scores.q.dtype), _available(str(scores.q.device))
    return f"{needed:,} bytes of shared memory are needed, {available:,} available" if needed > available else ""


def _shared(C: int, kind: torch.dtype) -> int:
    """Return how many bytes of shared memory the kernels need at most."""
    return SHARED[0 if C <= 64 else 2 if C > 128 and kind == torch.float32 else 1]


@cache
def _properties(device: str) -> Any:  # noqa: ANN401  (PyTorch's type)
    return torch.cuda.get_device_properties(device)


def _available(device: str) -> int:
    """Return how many bytes of shared memory a program may have on a device; the interpreter has no limit."""
    if not device.startswith("cuda"):
        return SHARED[-1]
    return int(getattr(_properties(device), "shared_memory_per_block_optin", SHARED[-1]))


def _registers(device: str) -> int | None:
    """Return the limit of registers for a thread of `_pass`, or None.

    On compute capability 9, with 168, three programs run on a multiprocessor together, and the loop spills nothing. On
    others it would spill (compiled for 8.6 and 12.0), and it was not measured.
    """
    return 168 if device.startswith("cuda") and _properties(device).major == 9 else None


# torch.compile takes their results as constants, as that of `policy._missing`.
for _function in (_available, _registers):
    _function._dynamo_marked_constant = True  # type: ignore[attr-defined]


def log_sum_exp(scores: Scores) -> Tensor:
    """Return log Σ_j exp(scores_tj), +inf for a row with nothing to attend to.  (B, H, T)."""
    B, H, T, S = scores.shape
    lse = torch.full((B, H, T), torch.inf, device=scores.q.device)
    inputs = KernelInputs(scores)
    if lse.numel() and S:
        with torch.cuda.device_of(lse):
            _sums[(B * H, -(-T // inputs.rows))](
                inputs.q, inputs.k, lse, inputs.bias, inputs.mask, H, T, S, *inputs.strides,
                inputs.group, inputs.factor, *inputs.compiled, *inputs.sizes, inputs.rows, 64,
                num_warps=4, num_stages=inputs.stages,
            )  # fmt: skip
    return lse


def slabs(B: int, H: int, T: int, columns: int, elements: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the first and last query of each slab; the buffers have `columns` elements for each query and head.

    `elements` are those of q.
    """
    most = min(max(BUFFER, int(BY_QUERIES * elements)) // max(1, B * H * columns), MOST)
    rows = max(ROWS, most // ROWS * ROWS)
    for begin in range(0, T, rows):
        yield begin, min(T, begin + rows)


def summary(scores: Scores, lse: Tensor, count: int = 0) -> Summary:
    """Summarise all weights in one pass.  lse (B, H, T) in fp32; `count` positions with the largest weights, or 0."""
    B, H, T, S = scores.shape
    device, causal = scores.q.device, scores.causal
    if not B * H * T * S:
        none = torch.full((B, H, T, count), -1, dtype=torch.int64, device=device)
        rows = torch.zeros(B, H, T, device=device)
        top = Top(none, torch.zeros(B, H, T, count, device=device), torch.zeros_like(rows)) if count else None
        return Summary(torch.zeros(B, H, S, device=device), rows, top)
    inputs, lse = KernelInputs(scores), lse.contiguous()
    keys = inputs.keys
    n = -(-S // keys)
    groups = keys // GROUP
    ranges = list(slabs(B, H, T, n * groups if count else n, scores.q.numel()))
    # A block of keys adds to what is there from its second slab on, and with a causal mask it may have its first later.
    at_once = len(ranges) == 1 and not (causal and T < S)
    received = (torch.empty if at_once else torch.zeros)((B, H, S), device=device)
    entropy = torch.empty((B, H, T), device=device)
    positions, weights, mass = entropy, entropy, entropy
    if count:
        positions = torch.empty((B, H, T, count), dtype=torch.int64, device=device)
        weights, mass = torch.empty((B, H, T, count), device=device), torch.empty_like(entropy)
    given = (*inputs.strides, inputs.group, inputs.factor, *inputs.compiled)
    with torch.cuda.device_of(lse):
        for begin, end in ranges:
            slab = end - begin
            blocks = min(n, -(-end // keys)) if causal else n
            parts = torch.empty((B, H, blocks, slab), device=device)
            tops = torch.empty((B, H, slab, blocks * groups), device=device) if count else parts
            _pass[(B * H, blocks)](
                inputs.q, inputs.k, lse, inputs.bias, inputs.mask, received, parts, tops, H, T, S, begin, end,
                *given, count > 0, *inputs.sizes,
                inputs.rows, keys, GROUP, num_warps=4, num_stages=inputs.stages, maxnreg=inputs.registers,
            )  # fmt: skip
            _entropies[(B * H, -(-slab // SUMMED[1]))](
                parts, entropy, T, begin, end, blocks, causal, keys, *SUMMED, num_warps=4
            )
            if count:
                K, channels = power_of_2(count), inputs.sizes[1]
                _search[(B * H, -(-slab // QUERIES))](
                    inputs.q, inputs.k, lse, inputs.bias, inputs.mask, tops,
                    positions, weights, mass, H, T, S, begin, end,
                    blocks * groups, *given, count,
                    K, QUERIES, CHUNK, channels, together(K, channels), keys, GROUP, num_warps=1,
                )  # fmt: skip
            del parts, tops  # before the next ones are allocated
    return Summary(received, entropy, Top(positions, weights, mass) if count else None)


@part
def _ordered(z) -> tl.tensor:
    """z as an integer in the same order."""
    bits = z.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@kernel("T", "S", "H", "begin", "end", "groups", "bb", "bh", "group")
def _search(
    q, k, lse, bias, mask, tops, positions, weights, mass, H, T, S, begin, end, groups,
    qb, qh, qt, kb, kh, ks, bb, bh, mb, mh, mt, ms, group, factor,
    C: tl.constexpr, CAUSAL: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, COUNT: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, CHUNK: tl.constexpr, CHANNELS: tl.constexpr, TOGETHER: tl.constexpr,
    KEYS: tl.constexpr, GROUP: tl.constexpr,
) -> None:  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    sentence, head = pair // H, pair % H
    rows = begin + tl.program_id(1) * R + tl.arange(0, R)
    active = rows < end
    LOWEST: tl.constexpr = -0x80000000
    NOWHERE: tl.constexpr = 0x7FFFFFFF
    slot = tl.arange(0, K)[None, :]
    # The groups with the largest maxima, in descending order; `least` is the last of them.
    tops += (pair * (end - begin) + rows - begin) * groups
    best = tl.full([R, K], LOWEST, tl.int32)
    where = tl.full([R, K], NOWHERE, tl.int32)
    least = tl.full([R], LOWEST, tl.int32)
    last = groups
    if CAUSAL:
        last = tl.minimum(groups, ((begin + (tl.program_id(1) + 1) * R - 1) // KEYS + 1) * (KEYS // GROUP))
    for first in range(0, last, CHUNK):
        g = first + tl.arange(0, CHUNK)[None, :]
        x = tl.load(tops[:, None] + g, active[:, None] & (g < last), 0.0)
        x = tl.where(g < last, _ordered(x), LOWEST)
        if tl.max((tl.max(x, 1) > least).to(tl.int32), 0) > 0:
            merged = tl.full([R, K], LOWEST, tl.int32)
            places = tl.full([R, K], NOWHERE, tl.int32)
            for j in tl.static_range(COUNT):
                least = tl.maximum(tl.max(x, 1), tl.max(best, 1))
                m = least[:, None]
                new = tl.min(tl.where(x == m, g, NOWHERE), 1)
                at = tl.minimum(new, tl.min(tl.where(best == m, where, NOWHERE), 1))[:, None]
                merged = tl.where(slot == j, m, merged)
                places = tl.where(slot == j, at, places)
                x = tl.where(g == at, LOWEST, x)
                best = tl.where(where == at, LOWEST, best)
            best = merged
            where = places
    # Their keys: those that one thread of `_pass` had.
    per: tl.constexpr = KEYS // GROUP
    g = where // per * KEYS + (where % per) // 4 * 64 + (where % 4) * 2
    g = tl.where(best == LOWEST, S, g)
    member = tl.arange(0, GROUP)
    member = member // 2 * 8 + member % 2
    columns = tl.reshape(g[:, :, None] + member[None, None, :], [R, K * GROUP])
    valid = active[:, None] & (columns < S)
    q += sentence * qb + head * qh
    k += sentence * kb + (head // group) * kh
    # Some keys at a time with all channels, so that adjacent threads read whole cache lines.
    PARTS: tl.constexpr = K * GROUP // TOGETHER
    c = tl.arange(0, CHANNELS)
    at = tl.minimum(rows, end - 1).to(tl.int64)[:, None] * qt + c[None, :]
    a = tl.load(q + at, (c < C)[None, :], 0.0).to(tl.float32)
    part = tl.arange(0, PARTS)[None, :, None]
    groups_by_part = tl.reshape(g, [R, PARTS, K // PARTS])
    s = tl.zeros([R, PARTS, TOGETHER], tl.float32)
    for n in tl.static_range(PARTS):
        keys_of_part = tl.sum(tl.where(part == n, groups_by_part, 0), 1)
        keys_of_part = tl.minimum(tl.reshape(keys_of_part[:, :, None] + member[None, None, :], [R, TOGETHER]), S - 1)
        at = keys_of_part.to(tl.int64)[:, :, None] * ks + c[None, None, :]
        key = tl.load(k + at, (c < C)[None, None, :], 0.0)
        s = tl.where(part == n, tl.sum(a[:, None, :] * key.to(tl.float32), 2)[:, None, :], s)
    s = tl.reshape(s, [R, K * GROUP])
    level = tl.load(lse + pair * T + rows, active, float("inf"))
    level = tl.where(level == float("inf"), 1e30, level * 1.4426950408889634)
    z = s * factor - level[:, None]
    if BIAS:
        z += tl.load(bias + sentence * bb + head * bh + columns, valid, -1e30)
    if MASK:
        at = rows.to(tl.int64)[:, None] * mt + columns.to(tl.int64) * ms
        m = tl.load(mask + sentence * mb + head * mh + at, valid, 0)
        if MASK == 1:
            z = tl.where(m != 0, z, -1e30)
        else:
            m = m.to(tl.float32)
            z = tl.where(m <= -1e30, -1e30, z + m * 1.4426950408889634)
    if CAUSAL:
        z = tl.where(columns <= rows[:, None], z, -1e30)
    x = tl.where(valid, _ordered(z), LOWEST)
    out = (pair * T + rows) * COUNT
    covered = tl.zeros([R], tl.float32)
    for j in tl.static_range(COUNT):
        largest = tl.max(x, 1)
        at = tl.min(tl.where(x == largest[:, None], columns, NOWHERE), 1)
        best_z = (largest ^ ((largest >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        # Not >, which would be False for NaN.
        none = (largest == LOWEST) | (best_z <= -1e29)
        tl.store(positions + out + j, tl.where(none, -1, at).to(tl.int64), active)
        weight = tl.where(none, 0.0, tl.exp2(best_z))
        covered += weight
        tl.store(weights + out + j, weight, active)
        x = tl.where(columns == at[:, None], LOWEST, x)
    tl.store(mass + pair * T + rows, covered, active)


def together(K: int, channels: int) -> int:
    """Return how many keys of K groups are loaded together: at least one group."""
    return min(K * GROUP, max(GROUP, FETCHED // channels))
