"""The kernels of additive attention compiled for a GPU (compute capability 9.0) that need not be there.

The interpreter runs what Triton would refuse to compile; and it knows no assembler.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from heedful.kernels import additive_rows, additive_tiles

PAD, ROWS, BA = 128, 32, 64
SIZES = {"PAD": PAD, "ROWS": ROWS, "BA": BA}

def ptx(kernel, pointers, constants, **options):
    function = kernel.jit()
    types = {n: "constexpr" if n in constants else pointers.get(n, "i32") for n in function.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(function.arg_names) if types[n][0] == "*"}
    source = ASTSource(function, types, constexprs=constants, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True, **options})
    assert made.asm["cubin"]
    return made.asm["ptx"]

F, I = "*fp32", "*i32"
tiles = dict.fromkeys(("Q", "K", "v", "e", "X", "Y", "de", "dx", "dv"), F)
tiles |= dict.fromkeys(("bits_q", "bits_k", "bits_x", "bits_y"), I)
for BT, BS in ((16, 128), (32, 64)):
    text = ptx(additive_tiles.scores, tiles, {"FAST": True, "BT": BT, "BS": BS, **SIZES}, num_warps=1, maxnreg=128)
    print(text.count("rcp.approx.ftz.f32"), text.count("div.full") + text.count("div.rn"), text.count("ex2"))
for both, kind in ((True, F), (False, "*bf16")):
    constants = {"FAST": True, "BOTH": both, "BN": 8, **SIZES}
    text = ptx(additive_tiles.slopes, tiles | {"dx": kind}, constants, num_warps=1)
    print(text.count("rcp.approx.ftz.f32"), text.count("div.full") + text.count("div.rn"), text.count("ex2"))
for turn, some, x in ((True, True, F), (False, False, "*bf16"), (True, False, "*fp16")):
    pointers = {"x": x, "seen": "*i1" if some else I, "X": F, "bits": I}
    ptx(additive_rows.exponentials, pointers, {"SOME": some, "TURN": turn, **SIZES}, num_warps=4)
for some in (True, False):
    pointers = {"e": F, "keep": "*i1" if some else F, "weights": F}
    ptx(additive_rows.softmax, pointers, {"SOME": some, "R": 8, "BLOCK": 128}, num_warps=4)
pointers = dict.fromkeys(("weights", "slope", "de", "turned"), F)
ptx(additive_rows.unsoftmax, pointers, {"PAD": PAD, "R": ROWS, "BLOCK": BA}, num_warps=4)
"""


@pytest.mark.slow
def test_they_compile_and_share_their_reciprocals(environment: dict[str, str]) -> None:
    """64 elements of a thread, two a at once: 64 reciprocals there, 64 more and 64 exponentials on the slow way."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    given = {**environment, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=given, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["128 0 64"] * 2 + ["64 0 32"] * 2
