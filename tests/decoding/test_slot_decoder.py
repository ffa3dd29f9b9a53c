"""Decoding in slots gives what plain decoding gives, for every model, rule and way; here without CUDA graphs."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from decoding_models import CONFIGS, make, sentences
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.config import FixedConfig, ImageConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.decoding import Decoding, Hypothesis, SlotDecoder, beam, beam_steps, sample, slot_decoder
from heedful.decoding.ensemble import Ensemble
from heedful.decoding.slot_decoder import bucket
from heedful.errors import ConfigError
from heedful.models import Memory, Network, build

LIMITS = [5, 9, 3, 12, 7, 4]
PREFIXES = [(4, 5), (), (6,), (7, 7, 8), (), (9, 4)]
WAYS = {
    "greedy": Decoding(),
    "beam": Decoding(beam=3),
    "wide": Decoding(beam=9, n_best=9),  # 2K continuations of more than V tokens
    "n-best": Decoding(beam=4, n_best=3, penalty="gnmt", alpha=0.6),
    "log-probability": Decoding(beam=2, penalty="none"),
    "sample": Decoding(sample=True, n_best=2, seed=5),
    "top": Decoding(sample=True, top_k=5, top_p=0.8, temperature=1.7),
}
RULES = {
    "free": {},
    "long": {"min_length": 2},
    "repeats": {"no_repeat": 1},
    "long repeats": {"min_length": 2, "no_repeat": 2},
    "three": {"no_repeat": 3},
    "endless": {"no_repeat": 900},
}
MORE: dict[str, ModelConfig] = {
    **CONFIGS,
    "scaled": RnnConfig(width=8, embedding=6, score="scaled", cell="lstm", layers=2),
    "concat": RnnConfig(width=8, embedding=6, score="concat", order="luong", cell="gru"),
    "general": RnnConfig(width=8, embedding=6, score="general", cell="rnn"),
    "rnn": FixedConfig(width=8, embedding=6, cell="rnn", layers=2),
    "ssru": TransformerConfig(layers=2, width=8, heads=2, inner=12, cell="ssru"),
    "ssru post": TransformerConfig(layers=1, width=8, heads=2, inner=12, norm="post", cell="ssru"),
    "joint": TransformerConfig(layers=1, width=8, heads=1, inner=12, tied="all", activation="gelu", scale=False),
    "silu": TransformerConfig(layers=2, width=12, heads=3, inner=8, tied="target", activation="silu", norm="post"),
}


def sources(x: Tensor, keep: Tensor) -> list[list[int]]:
    return [row[kept].tolist() for row, kept in zip(x, keep, strict=True)]


@torch.inference_mode()
def plain(
    model: Network, memory: Memory, limits: Sequence[int], how: Decoding, prefixes=None, ids=()
) -> list[list[Hypothesis]]:
    if how.sample:
        return sample(model, memory, limits, how, ids, prefixes)
    return beam(model, memory, limits, how, prefixes)


def check(found: list[list[Hypothesis]], wanted: list[list[Hypothesis]], near: float = 1e-5) -> None:
    assert [[h.ids for h in each] for each in found] == [[h.ids for h in each] for each in wanted]
    assert [[h.cut for h in each] for each in found] == [[h.cut for h in each] for each in wanted]
    for one, two in zip(found, wanted, strict=True):
        for a, b in zip(one, two, strict=True):
            assert a.log_probs == pytest.approx(b.log_probs, abs=near, nan_ok=True)


def both(
    model: Network, how: Decoding, prefixes=None, limits: Sequence[int] = LIMITS, rows: int = 4096
) -> list[list[Hypothesis]]:
    x, keep = sentences()
    with torch.inference_mode():
        memory = model.encode(x, keep)
    found = SlotDecoder(model, rows).decode(memory, limits, how, prefixes, sources(x, keep))
    check(found, plain(model, memory, limits, how, prefixes, sources(x, keep)))
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MORE)
def test_every_model_and_way(name: str, way: str) -> None:
    both(make(MORE[name]), WAYS[way])


@pytest.mark.parametrize("prefixes", [None, PREFIXES], ids=["free", "prefixes"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("way", ["greedy", "n-best", "sample"])
@pytest.mark.parametrize("name", ["luong", "transformer"])
def test_every_rule(name: str, way: str, rule: str, prefixes: list[tuple[int, ...]] | None) -> None:
    how = WAYS[way]
    rules = {field: getattr(how, field) for field in how.__dataclass_fields__} | RULES[rule]
    both(make(CONFIGS[name]), Decoding(**rules), prefixes)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("way", ["greedy", "n-best", "sample"])
@pytest.mark.parametrize("name", ["bahdanau", "every", "post"])
def test_sentences_enter_slots_that_others_have_left(name: str, way: str, rows: int) -> None:
    both(make(CONFIGS[name]), WAYS[way], PREFIXES, rows=max(rows, WAYS[way].beam))


def test_long_sentences_and_many_steps() -> None:
    """Past the 64 tokens that plain decoding has room for at first."""
    how = Decoding(beam=2, min_length=70)
    found = both(make(CONFIGS["transformer"]), how, limits=[80, 100, 75, 90, 71, 72], rows=4)
    assert all(len(each[0].ids) > 70 for each in found)


@pytest.mark.parametrize("beam", [{"sample": True}, {"beam": 1}, {"beam": 3, "n_best": 2}], ids=str)
def test_where_every_token_is_a_repetition_a_sentence_ends_early(beam: dict[str, int]) -> None:
    """There are nine tokens besides the special ones, and each may occur once."""
    found = both(make(CONFIGS["luong"]), Decoding(**beam, no_repeat=1, min_length=12), limits=[14] * 6)  # type: ignore[arg-type]
    assert all(len(h.ids) == 10 for each in found for h in each)


def test_a_search_ends_when_the_plain_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    model, how = make(CONFIGS["transformer"]), Decoding(beam=4, n_best=2)
    ended: dict[int, int] = {}
    leave = slot_decoder.SlotBatch.leave

    def noted(self: slot_decoder.SlotBatch, finished: dict[int, int]) -> object:
        ended.update({self.entries[slot].row: steps for slot, steps in finished.items()})
        return leave(self, finished)

    monkeypatch.setattr(slot_decoder.SlotBatch, "leave", noted)
    limits = [40] * 6
    both(model, how, limits=limits)
    with torch.inference_mode():
        memory = model.encode(*sentences())
        steps = enumerate(beam_steps(model, memory, limits, how), 1)
        assert ended == {row: count for count, finished in steps for row, _ in finished}
    assert min(ended.values()) < 40


@pytest.mark.parametrize("way", ["greedy", "n-best", "sample"])
def test_ensembles(way: str) -> None:
    names = ("luong", "transformer", "first")
    both(Ensemble([make(CONFIGS[name], seed=i) for i, name in enumerate(names)]), WAYS[way], PREFIXES, rows=8)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["greedy", "n-best", "sample"])
@pytest.mark.parametrize(
    "config",
    [RnnConfig(width=8, embedding=6, order="luong"), TransformerConfig(layers=1, width=8, heads=2, inner=8)],
    ids=["rnn", "transformer"],
)
def test_captions(config: ModelConfig, way: str) -> None:
    torch.manual_seed(1)
    model = build(config, ImageConfig(pixels=16, patch=8, filters=4, blocks=1), 12).eval()
    pixels = torch.randint(256, (6, 16, 16, 3), dtype=torch.uint8)
    ids = [[i] for i in range(6)]
    with torch.inference_mode():
        memory = model.encode(pixels, None)
    found = SlotDecoder(model, 8).decode(memory, LIMITS, WAYS[way], PREFIXES, ids)
    check(found, plain(model, memory, LIMITS, WAYS[way], PREFIXES, ids))


@pytest.mark.parametrize("way", ["greedy", "n-best", "sample"])
@pytest.mark.parametrize("name", ["luong", "transformer"])
def test_a_sentence_of_nan_ends_and_others_do_not_notice(name: str, way: str) -> None:
    """It computes NaN from a step on; the slot that it leaves is taken by another sentence."""
    model = make(CONFIGS[name])
    x, keep = sentences()
    x[x == 11] = 10
    with torch.no_grad():
        model.embedding.weight[11] = torch.nan
    prefixes = [(), (4, 11, 5), (), (11,), (), (5, 11)]
    with torch.inference_mode():
        memory = model.encode(x, keep)
        wanted = plain(model, memory, LIMITS, WAYS[way], prefixes, sources(x, keep))
    found = SlotDecoder(model, max(3, WAYS[way].beam)).decode(memory, LIMITS, WAYS[way], prefixes, sources(x, keep))
    finite = [all(h.finite for h in each) for each in wanted]
    assert [all(h.finite for h in each) for each in found] == finite
    assert not all(finite)
    for a, b, whole in zip(found, wanted, finite, strict=True):
        if whole:
            check([a], [b])
        else:
            assert [h.ids for h in a] == [h.ids for h in b]


@pytest.mark.parametrize("way", ["greedy", "n-best", "sample"])
@pytest.mark.parametrize("name", ["bahdanau", "first", "transformer"])
def test_a_result_does_not_depend_on_the_others(name: str, way: str) -> None:
    model = make(CONFIGS[name])
    x, keep = sentences()
    together = both(model, WAYS[way], PREFIXES, rows=8)
    for b in range(len(x)):
        with torch.inference_mode():
            memory = model.encode(x[b : b + 1], keep[b : b + 1])
        alone = SlotDecoder(model).decode(memory, [LIMITS[b]], WAYS[way], [PREFIXES[b]], sources(x, keep)[b : b + 1])
        check(alone, [together[b]])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(["luong", "every", "transformer", "post"]),
    K=st.integers(1, 5),
    drawn=st.booleans(),
    n=st.integers(1, 4),
    least=st.integers(0, 3),
    repeats=st.integers(0, 3),
    penalty=st.sampled_from(["length", "gnmt", "none"]),
    limits=st.lists(st.integers(4, 14), min_size=6, max_size=6),
    prefixes=st.lists(st.lists(st.integers(4, 11), max_size=3), min_size=6, max_size=6),
    rows=st.integers(5, 40),
    seed=st.integers(0, 100),
)
def test_any_settings(
    name: str, K: int, drawn: bool, n: int, least: int, repeats: int, penalty: str, limits: list[int],
    prefixes: list[list[int]], rows: int, seed: int,
) -> None:  # fmt: skip
    beam_or_samples = {"sample": True, "n_best": n, "seed": seed} if drawn else {"beam": K, "n_best": min(n, K)}
    how = Decoding(**beam_or_samples, min_length=least, no_repeat=repeats, penalty=penalty)  # type: ignore[arg-type]
    both(make(CONFIGS[name], seed=seed), how, [tuple(p) for p in prefixes], limits, rows)


class Replayed(slot_decoder.GraphedFunction):
    """A graph that calls the work again, and counts."""

    made: list[Replayed]

    def __init__(self, work: Callable[..., None]) -> None:
        super().__init__(work, pool=object())
        self.replays = 0
        Replayed.made.append(self)

    def _capture(self, inputs: tuple[Tensor, ...]) -> tuple[Replayed, list[Tensor]]:
        assert not inputs
        return self, []

    def replay(self) -> None:
        self.replays += 1
        self.work()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Replayed]:
    """As on a GPU, where each shape has a graph."""
    Replayed.made = []
    created = slot_decoder.SlotBatch.__init__

    def captured(self: slot_decoder.SlotBatch, *arguments: object) -> None:
        created(self, *arguments)  # type: ignore[arg-type]
        self.graph = Replayed(self._step)

    monkeypatch.setattr(slot_decoder.SlotBatch, "__init__", captured)
    return Replayed.made


def test_a_shape_is_captured_once_and_replayed(graphs: list[Replayed]) -> None:
    model = make(CONFIGS["transformer"])
    x, keep = sentences()
    decoder = SlotDecoder(model, batches=2)
    with torch.inference_mode():
        memory = model.encode(x, keep)
    for limit in (5, 6, 5):  # of one bucket
        check(decoder.decode(memory, [limit] * 6, Decoding()), plain(model, memory, [limit] * 6, Decoding()))
    assert len(graphs) == 1
    assert graphs[0].replays == 3 * 8 - 2  # four steps at once, and all but the first two are replayed
    decoder.decode(memory, LIMITS, Decoding(seed=3, max_length=50))  # another capacity
    decoder.decode(memory, LIMITS, Decoding(beam=2))
    assert len(graphs) == 3
    assert len(decoder.batches) == 2
    assert not graphs[0].graphs  # the oldest was released
    decoder.close()
    assert not any(graph.graphs for graph in graphs)
    assert not decoder.batches
    decoder.close()  # once more


def test_memory_is_released_with_the_decoder(graphs: list[Replayed]) -> None:
    """At once, not when the garbage collector comes by."""
    model = make(CONFIGS["transformer"])
    with torch.inference_mode():
        memory = model.encode(*sentences())
    decoder = SlotDecoder(model)
    decoder.decode(memory, LIMITS, Decoding())
    ((batch,),) = (decoder.batches.values(),)
    watched = weakref.ref(batch)
    graphs.clear()
    gc.disable()
    try:
        del batch, decoder
        assert watched() is None
    finally:
        gc.enable()


def test_two_threads_do_not_mix_their_sentences() -> None:
    model = make(CONFIGS["luong"])
    x, keep = sentences()
    with torch.inference_mode():
        memory = model.encode(x, keep)
    decoder = SlotDecoder(model, 4)
    ways = [Decoding(), Decoding(min_length=2)] * 4
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda how: decoder.decode(memory, LIMITS, how), ways))
    for each, how in zip(found, ways, strict=True):
        check(each, plain(model, memory, LIMITS, how))


def test_after_a_fault_it_goes_on(monkeypatch: pytest.MonkeyPatch, graphs: list[Replayed]) -> None:
    """Out of memory, say: everything is released, and the next call begins anew."""
    model = make(CONFIGS["luong"])
    x, keep = sentences()
    with torch.inference_mode():
        memory = model.encode(x, keep)
    decoder = SlotDecoder(model)
    with monkeypatch.context() as patch:
        patch.setattr(slot_decoder.SlotBatch, "finished", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            decoder.decode(memory, LIMITS, Decoding())
    assert not decoder.batches
    check(decoder.decode(memory, LIMITS, Decoding()), plain(model, memory, LIMITS, Decoding()))


def test_a_limit_without_room_is_an_error() -> None:
    model = make(CONFIGS["luong"])
    with torch.inference_mode():
        memory = model.encode(*sentences())
    with pytest.raises(ConfigError, match="sentence 3 of 6 may have 3 tokens"):
        SlotDecoder(model).decode(memory, LIMITS, Decoding(min_length=3))


def test_states_share_a_device_with_other_things(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many slots as there is memory for, and at least one."""
    model = make(CONFIGS["transformer"])
    with torch.inference_mode():
        memory = model.encode(*sentences())
    decoder = SlotDecoder(model)
    assert decoder._slots(memory, Decoding(), 40, 16) == 32
    assert decoder._slots(memory, Decoding(), 5, 16) == 6
    S = bucket(memory.keep.shape[1])
    size = decoder.sizes[1, S, 16]
    assert size == (2 * 2 * 17 + 5 * S) * 8 * 4  # L, keys and values, positions; h and L keys and values; D, bytes
    for room, slots in ((4 * size, 4), (1, 1)):
        monkeypatch.setattr(slot_decoder, "HOST_BYTES", room)
        assert decoder._slots(memory, Decoding(), 40, 16) == slots
    monkeypatch.undo()
    assert decoder._slots(memory, Decoding(beam=5), 10_000, 16) == 1536  # of 8,192 rows


def test_the_states_of_all_shapes_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not used for the longest time leave."""
    model = make(CONFIGS["transformer"])
    with torch.inference_mode():
        memory = model.encode(*sentences())
    decoder = SlotDecoder(model)
    rooms = {"all": 2**30, "one": 0}
    for name, kept in (("all", 3), ("one", 1)):
        monkeypatch.setattr(slot_decoder, "HOST_BYTES", rooms[name])
        for beam_width in (1, 2, 3):
            decoder.decode(memory, LIMITS, Decoding(beam=beam_width))
            sizes = [batch.state.nbytes for batch in decoder.batches.values()]
            rooms["one"] = max(rooms["one"], max(sizes))
        assert len(decoder.batches) == kept
        decoder.close()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 1000])
def test_buckets(n: int) -> None:
    assert bucket(n, down=True) <= n <= bucket(n)
    assert bucket(n) <= max(1, 1.5 * n)
    assert bucket(bucket(n)) == bucket(n) == bucket(bucket(n), down=True)


@pytest.fixture
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MORE)
def test_captured_steps_on_a_gpu(name: str, way: str, cuda: torch.device) -> None:
    model = make(MORE[name]).to(cuda)
    x, keep = sentences()
    ids = sources(x, keep)
    with torch.inference_mode():
        memory = model.encode(x.to(cuda), keep.to(cuda))
    decoder = SlotDecoder(model, 32)
    for limits, prefixes in ((LIMITS, PREFIXES), (LIMITS[::-1], None)):
        found = decoder.decode(memory, limits, WAYS[way], prefixes, ids)
        check(found, plain(model, memory, limits, WAYS[way], prefixes, ids), near=1e-3)
    (batch,) = decoder.batches.values()
    assert batch.graph is not None
    assert batch.graph.graphs  # it was captured
    decoder.close()


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["luong", "transformer", "every"])
def test_a_step_reads_nothing_from_the_gpu(name: str, way: str, cuda: torch.device) -> None:
    model = make(MORE[name]).to(cuda)
    x, keep = sentences()
    with torch.inference_mode():
        memory = model.encode(x.to(cuda), keep.to(cuda))
        decoder = SlotDecoder(model)
        decoder.decode(memory, LIMITS, WAYS[way], None, sources(x, keep))
        (batch,) = decoder.batches.values()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode")  # "a prototype feature"
            torch.cuda.set_sync_debug_mode("error")
        try:
            batch._step()
            batch.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_products_in_fp32_are_not_rounded_to_tf32(cuda: torch.device) -> None:
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.gpu
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("way", ["greedy", "beam", "n-best", "sample"])
def test_the_rest_of_a_batch_changes_no_bit(way: str, norm: str, cuda: torch.device) -> None:
    """Log-probabilities are compared exactly; nothing that is as good as another can change places."""
    torch.manual_seed(3)
    config = TransformerConfig(width=64, heads=4, inner=96, layers=2, tied="all", norm=norm)  # type: ignore[arg-type]
    model = build(config, 200, 200).to(cuda).eval()
    for weight in model.parameters():
        weight.data.mul_(3)  # so that tokens differ
    lengths = torch.randint(1, 40, (70,), generator=torch.Generator().manual_seed(5))
    x = torch.randint(4, 200, (70, 40), generator=torch.Generator().manual_seed(6)).to(cuda)
    keep = torch.arange(40, device=cuda) < lengths.to(cuda)[:, None]
    x = x.masked_fill(~keep, 0)

    def decoded(rows: list[int]) -> list[list[Hypothesis]]:
        some = x[rows][:, : int(lengths[rows].max())]
        limits = [int(lengths[row]) + 8 for row in rows]
        given = [tuple(each[each != 0].tolist()) for each in some]
        with torch.inference_mode():
            return SlotDecoder(model).decode(model.encode(some, some != 0), limits, WAYS[way], None, given)

    together = decoded(list(range(70)))
    for rows in ([0], [69], [3, 4], list(range(20, 37)), list(range(69, -1, -1))):
        assert decoded(rows) == [together[row] for row in rows]
