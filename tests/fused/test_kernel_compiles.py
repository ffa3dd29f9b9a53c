"""Kernels of attention and of recurrence compiled for a GPU (compute capability 9.0) that need not be there.

The interpreter runs what Triton would refuse to compile; and it knows no assembler.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

COMPILED = """
import triton
import triton.language
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

F, I = "*fp32", "*i32"

def compiled(kernel, pointers, constants, even=(), capability=90, **options):
    # `even` are strides that are multiples of 16, for which Triton compiles another kernel.
    function = kernel.jit()
    constants = {n: x for n, x in constants.items() if n in function.arg_names}
    types = {n: "constexpr" if n in constants else pointers.get(n, "i32") for n in function.arg_names}
    whole = [n for n, kind in types.items() if kind[0] == "*" or n in even]
    aligned = {(function.arg_names.index(n),): [["tt.divisibility", 16]] for n in whole}
    source = ASTSource(function, types, constexprs=constants, attrs=aligned)
    target = GPUTarget("cuda", capability, 32)
    made = triton.compile(source, target=target, options={"enable_fp_fusion": True, **options})
    assert made.asm["cubin"]
    return made
"""

ADDITIVE = """
from heedful.fused.triton import additive

PAD, ROWS, BA = 128, 32, 64
SIZES = {"PAD": PAD, "ROWS": ROWS, "BA": BA}

def ptx(kernel, pointers, constants, **options):
    return compiled(kernel, pointers, constants, **options).asm["ptx"]

tiles = dict.fromkeys(("Q", "K", "v", "e", "X", "Y", "de", "dx", "dv"), F)
tiles |= dict.fromkeys(("bits_q", "bits_k", "bits_x", "bits_y"), I)
for BT, BS in ((16, 128), (32, 64)):
    text = ptx(additive.scores, tiles, {"FAST": True, "BT": BT, "BS": BS, **SIZES}, num_warps=1, maxnreg=128)
    print(text.count("rcp.approx.ftz.f32"), text.count("div.full") + text.count("div.rn"), text.count("ex2"))
for both, kind in ((True, F), (False, "*bf16")):
    constants = {"FAST": True, "BOTH": both, "BN": 8, **SIZES}
    text = ptx(additive.score_gradients, tiles | {"dx": kind}, constants, num_warps=1)
    print(text.count("rcp.approx.ftz.f32"), text.count("div.full") + text.count("div.rn"), text.count("ex2"))
for turn, some, x in ((True, True, F), (False, False, "*bf16"), (True, False, "*fp16")):
    pointers = {"x": x, "kept": "*i1" if some else I, "X": F, "bits": I}
    ptx(additive.exponentials, pointers, {"SOME": some, "TRANSPOSE": turn, **SIZES}, num_warps=4)
for some in (True, False):
    pointers = {"e": F, "keep": "*i1" if some else F, "weights": F}
    ptx(additive.softmax, pointers, {"SOME": some, "R": 8, "BLOCK": 128}, num_warps=4)
pointers = dict.fromkeys(("weights", "d_weights", "de", "transposed"), F)
ptx(additive.softmax_backward, pointers, {"PAD": PAD, "R": ROWS, "BLOCK": BA}, num_warps=4)
"""

SCALED = """
import torch
from heedful.fused.triton import recurrent_attention as attention, recurrent_cells as cells, scaled_kernels
from heedful.fused.triton.launch import power_of_2

SHARED = 232448  # bytes that a program of compute capability 9.0 may have

def tried(name, kernel, pointers, constants, most=SHARED, **options):
    made = compiled(kernel, pointers, constants, **options)
    assert made.metadata.shared <= most, f"{name} takes {made.metadata.shared} bytes of shared memory"
    print(name, made.metadata.shared)

def scaled(kernel, q, C, MASK, CAUSAL, BIAS, top=0):
    # As `KernelInputs` and its callers have it.
    kind = {"*fp32": torch.float32, "*fp16": torch.float16, "*bf16": torch.bfloat16}[q]
    x = torch.zeros(1, 1, 1, C, dtype=kind)
    given = scaled_kernels.KernelInputs(scaled_kernels.Scores(x, x, 1.0))
    pointers = {"q": q, "k": q, "lse": F, "bias": F if BIAS else q, "mask": (q, "*u8", q, F)[MASK], "factor": "fp32"}
    pointers |= {"received": F, "parts": F, "tops": F, "positions": "*i64", "weights": F, "mass": F}
    constants = {"C": C, "CAUSAL": CAUSAL, "BIAS": BIAS, "MASK": min(MASK, 2)}
    products = {"PRECISION": given.sizes[0], "CHANNELS": given.sizes[1], "ROWS": given.rows}
    name = f"{kernel} {q} {C} mask {MASK}"
    most = {"most": scaled_kernels._shared(C, kind)}
    options = {"num_warps": 4, "num_stages": given.stages, "even": "qb qh qt kb kh ks mb mh mt".split()}
    if kernel == "pass":
        constants |= {**products, "TOP": top > 0, "KEYS": given.keys, "GROUP": scaled_kernels.GROUP}
        tried(name, scaled_kernels._pass, pointers, constants, maxnreg=168, **most, **options)
        tried(name, scaled_kernels._pass, pointers, constants, capability=86, **most, **options)
    elif kernel == "sums":
        constants |= {**products, "KEYS": 64}
        tried(name, scaled_kernels._sums, pointers, constants, **most, **options)
    else:
        constants |= {"COUNT": top, "K": power_of_2(top), "R": scaled_kernels.QUERIES, "CHUNK": scaled_kernels.CHUNK}
        constants |= {"CHANNELS": given.sizes[1], "TOGETHER": scaled_kernels.together(power_of_2(top), given.sizes[1])}
        constants |= {"KEYS": given.keys, "GROUP": scaled_kernels.GROUP}
        tried(name, scaled_kernels._search, pointers, constants, num_warps=1)

# A mask of 3 is one of numbers in fp32 beside a narrower q.
for kernel, q, C, MASK, CAUSAL, BIAS, top in (
    ("look", "*bf16", 64, 1, True, False, 8), ("look", "*bf16", 64, 3, False, True, 8),
    ("look", "*fp32", 64, 2, True, True, 3), ("look", "*fp16", 200, 0, False, False, 16),
    ("sums", "*bf16", 64, 1, True, True, 0), ("sums", "*fp32", 256, 2, False, False, 0),
    ("sums", "*fp16", 64, 0, True, False, 0),
    ("pass", "*bf16", 64, 1, True, False, 8), ("pass", "*fp16", 64, 3, False, True, 0),
    ("pass", "*fp32", 64, 2, True, True, 8), ("pass", "*bf16", 256, 3, False, False, 0),
    ("pass", "*bf16", 128, 3, False, False, 8),
):
    scaled(kernel, q, C, MASK, CAUSAL, BIAS, top)

BLOCKS, ROWS = scaled_kernels.SUMMED
constants = {"CAUSAL": True, "KEYS": 128, "BLOCKS": BLOCKS, "ROWS": ROWS}
tried("entropies", scaled_kernels._entropies, {"parts": F, "entropy": F}, constants, num_warps=4)
names = "s q keys v values weights c dc d_weights de dq ds dk dv"
tables = dict.fromkeys(names.split(), F) | {"keep": "*i1"}
for S, ADDITIVE in ((16, True), (1024, False)):
    positions, columns, warps = attention._sizes(S, 512, 512, torch.float32)
    constants = {"SCALE": 0.5, "ADDITIVE": ADDITIVE, "BS": positions, "BLOCK": columns, "UNIT": 1}
    tried(f"ask {S}", attention._attend, tables, constants, num_warps=warps)
    tried(f"ask back {S}", attention._attend_back, tables, {**constants, "MORE": ADDITIVE}, num_warps=warps)
constants = {"BS": attention.KEY_ROWS, "BLOCK": attention.KEY_COLUMNS, "UNIT": 1}
tried("keys back", attention._keys_back, tables, constants, num_warps=1)
names = "gates u m s m_after s_after ds_after dm_after dm ds d_gates"
tables, constants = dict.fromkeys(names.split(), F), {"BLOCK": cells.BLOCK, "UNIT": 1}
for KEEP in (True, False):
    tried("lstm", cells._lstm, tables, {**constants, "KEEP": KEEP}, num_warps=cells.WARPS)
    tried("gru", cells._gru, tables, {**constants, "KEEP": KEEP}, num_warps=cells.WARPS)
from heedful.fused.triton import cached_attention

for kind, C, write, indexed in ((F, 64, True, True), ("*bf16", 64, True, False), (F, 200, False, False)):
    tables = dict.fromkeys("q new_k new_v k v c".split(), kind) | {"counts": "*i64", "rows": "*i64", "scale": "fp32"}
    constants = {"C": C, "WRITE": write, "INDEXED": indexed, "BS": 16, "BC": power_of_2(C)}
    constants["SUM"] = triton.language.float32
    tried(f"cached {C}", cached_attention._attend, tables, constants, num_warps=1)
from heedful.fused.triton import next_tokens

tables = dict.fromkeys("t forced tokens y chosen_record at_record pick_record parents".split(), "*i64")
tables |= dict.fromkeys("maxima sums value_record total_record top_record live done divisors limit_divisors".split(), F)
for kind, K, V in ((F, 1, 8000), ("*bf16", 5, 65002), (F, 12, 65002)):
    group, pointers = next_tokens._group(K, V), tables | {"logits": kind, "active": "*u8"}
    tried(f"groups {K}", next_tokens._group_maxima, pointers, {"G": group, "SIZE": 8192}, num_warps=8)
    sizes = {"K": K, "n": 2 * K, "PK": power_of_2(K), "PN": power_of_2(2 * K), "PD": power_of_2(2 * K)}
    sizes |= {"G": group, "W": power_of_2(-(-V // group)), "C": 8}
    choose = next_tokens._choose_token if K == 1 else next_tokens._choose_beam
    tried(f"choose {K}", choose, pointers, sizes, num_warps=4)
tables = dict.fromkeys("at_record pick_record slots order tokens parents".split(), "*i64")
tried("follow", next_tokens._follow_back, tables | {"value_record": F, "values": F}, {}, num_warps=1)
from heedful.fused.triton import linear

for tile in linear.TILES:
    constants = {"BIAS": True, "ACTIVATION": 2, "BM": tile.rows, "BN": tile.columns, "BK": linear.DEPTH}
    tables = dict.fromkeys("x w b y".split(), F)
    options = {"even": ("K", "x_row", "w_row"), "num_stages": linear.STAGES, "num_warps": tile.warps}
    tried(f"linear {tile.rows}", linear._linear, tables, constants, **options)
    tried(f"linear {tile.rows}", linear._linear, tables, constants, most=101376, capability=86, **options)
tables, constants = dict.fromkeys(names.split(), F), {"BLOCK": cells.BLOCK, "UNIT": 1}
tried("lstm back", cells._lstm_back, tables, constants, num_warps=cells.WARPS)
tried("gru back", cells._gru_back, tables, constants, num_warps=cells.WARPS)
"""


WIDE = """
import torch
from heedful.fused.triton import recurrent_attention as attention, recurrent_cells as cells

def widest(kernel, constants, warps):
    # Whether what grows with a width is fetched 16 bytes at once, though no width is known to be a multiple of 16.
    names = "s q keys v values weights c dc d_weights de dq ds dk dv"
    names += " gates u m s m_after s_after ds_after dm_after dm ds d_gates"
    tables = dict.fromkeys(names.split(), F) | {"keep": "*i1"}
    text = compiled(kernel, tables, constants, num_warps=warps).asm["ptx"]
    return text.count("ld.global.v4")

def all_of(**more):
    positions, columns, warps = attention._sizes(50, 1000, 1000, torch.float32)
    question = {"SCALE": 1.0, "ADDITIVE": True, "MORE": False, "BS": positions, "BLOCK": columns, **more}
    cell = {"KEEP": True, "BLOCK": cells.BLOCK, **more}
    print(*(widest(kernel, question, warps) > 30 for kernel in (attention._attend, attention._attend_back)))
    print(widest(attention._keys_back, {"BS": attention.KEY_ROWS, "BLOCK": attention.KEY_COLUMNS, **more}, 1) > 4)
    kernels = (cells._lstm, cells._lstm_back, cells._gru, cells._gru_back)
    print(*(widest(kernel, cell, cells.WARPS) >= 5 for kernel in kernels))

all_of(UNIT=4)
all_of(UNIT=4, A=1, E=1, D=1)  # widths of 4: Triton takes a 1 for a constant
"""


def run(script: str, environment: dict[str, str]) -> list[str]:
    """Return what a script prints that compiles kernels: where they are interpreted, they cannot be."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    given = {**environment, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED + script], capture_output=True, text=True, env=given, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_they_compile_and_share_their_reciprocals(environment: dict[str, str]) -> None:
    """64 elements of a thread, two a at once: 64 reciprocals there, 64 more and 64 exponentials on the slow way."""
    assert run(ADDITIVE, environment) == ["128 0 64"] * 2 + ["64 0 32"] * 2


@pytest.mark.slow
def test_those_that_read_weights_and_those_of_recurrence_compile(environment: dict[str, str]) -> None:
    """With every kind of mask and type, within the shared memory that there is."""
    cases, passes, others = 12, 5, 30  # a pass is compiled for two kinds of GPU
    assert len(run(SCALED, environment)) == cases + passes + others


@pytest.mark.slow
def test_widths_that_are_multiples_of_4_are_fetched_16_bytes_at_once(environment: dict[str, str]) -> None:
    assert run(WIDE, environment)[:3] == ["True True", "True", "True True True True"]
