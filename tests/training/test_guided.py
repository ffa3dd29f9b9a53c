"""Links that guide attention: the loss by hand, whatever the batches, and what it teaches."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TINY, copies, write_pairs
from safetensors.torch import load_file
from small_runs import pad
from torch import Tensor

import heedful
from heedful.alignment import parse
from heedful.config import Config, RnnConfig, TrainingConfig, TransformerConfig
from heedful.data.batches import Batch, Batches
from heedful.data.corpus import Corpus
from heedful.data.links import CorpusLinks
from heedful.errors import ConfigError, DataError
from heedful.models import NeedWeights, Network, build
from heedful.models.transformer import MultiHead
from heedful.trace.readout import Readout
from heedful.training.guided import GuidedAttention, agreement, links_loss, target_weights
from heedful.training.losses import auxiliary_losses
from heedful.training.step import ModelWithLoss, TrainingStep

CPU = torch.device("cpu")
MODELS = {
    "additive": RnnConfig(width=8, embedding=6, dropout=0.0),
    "concat": RnnConfig(cell="lstm", order="luong", score="concat", width=8, embedding=6, dropout=0.0),
    "general": RnnConfig(order="luong", score="general", feed=False, width=8, embedding=6, dropout=0.0),
    "transformer": TransformerConfig(layers=3, width=8, heads=2, inner=8, dropout=0.0),
}
every = pytest.mark.parametrize("kind", MODELS)
PAIRS = [([4, 5, 3], [4, 3]), ([6, 3], [5, 6, 4, 3]), ([8, 7, 4, 5, 3], [5, 3]), ([4, 4, 3], [6, 6, 3])]
# Words are tokens here. The third pair has no links.
LINKS = [[(0, 0), (1, 0)], [(0, 1)], [], [(1, 0), (0, 1), (1, 1)]]


def make(kind: str) -> Network:
    torch.manual_seed(0)
    return build(MODELS[kind], 9, 7).double().train()


def batches() -> Batches:
    sizes = [[np.ones(sum(len(pair[side]) - 1 for pair in PAIRS), int)] for side in (0, 1)]
    counts = [np.array([len(pair[side]) - 1 for pair in PAIRS]) for side in (0, 1)]
    flat = np.array([link for links in LINKS for link in links])
    words = [(*size, count) for size, count in zip(sizes, counts, strict=True)]
    links = CorpusLinks.of((flat, np.array([len(one) for one in LINKS])), *words)
    corpus = Corpus.of(*zip(*PAIRS, strict=True), links=links)
    return Batches(corpus, start=2, tokens=100, sentences=10, seed=1)


def guide(
    weight: float = 0.5, heads: int = 1, late: bool = False, layer: int = 0, ends: bool = True
) -> GuidedAttention:
    return GuidedAttention(weight, NeedWeights(layer=layer), heads, late, ends)


def taught(number: int, ends: bool = True) -> dict[int, list[int]]:
    """What the words of a pair are to look at; the last token of a side is </s>."""
    x, y = PAIRS[number]
    found = {t: [s for s, at in LINKS[number] if at == t] for t in range(len(y) - 1)}
    rest = [len(x) - 1] if ends and LINKS[number] else []
    return {t: sources or rest for t, sources in found.items() if sources or rest}


def test_which_layer_and_heads():
    def found(family: str, **training: object) -> GuidedAttention | None:
        model = {"family": family} | ({"layers": 4, "heads": 4} if family == "transformer" else {})
        config = Config.build({"model": model, "training": training})
        assert "guided" not in auxiliary_losses(config, linked=False)
        term = auxiliary_losses(config, linked=True).get("guided")
        assert term is None or isinstance(term, GuidedAttention)
        return term

    one = found("transformer")
    assert one is not None
    assert (one.need_weights, one.heads, one.late) == (NeedWeights(layer=2), 1, True)
    assert found("transformer", guided_step="same") == GuidedAttention(one.weight, one.need_weights, 1, False)
    assert found("rnn") == GuidedAttention(one.weight, NeedWeights(layer=0), 1, False)
    other = found("transformer", guided_layer=4, guided_heads=0, guided_step="next", guided=2)
    assert other == GuidedAttention(2.0, NeedWeights(layer=3), 4, True)
    assert other.readout.step == "next"
    assert (other.readout.layer, other.readout.heads) == (4, (1, 2, 3, 4))
    assert found("rnn", guided=0) is None
    assert found("rnn", guided_unlinked="free") == GuidedAttention(
        one.weight, NeedWeights(layer=0), 1, False, ends=False
    )
    with pytest.raises(ConfigError, match=r"links guide attention, but model.family=fixed has no attention"):
        found("fixed")
    with pytest.raises(ConfigError, match=r"training.guided_layer is 5, but the model has 4 layers"):
        found("transformer", guided_layer=5)
    with pytest.raises(ConfigError, match=r"training.guided_heads is 2, but the model has 1 heads? in a layer"):
        found("rnn", guided_heads=2)


def test_wanted_weights_by_hand():
    x, y = torch.tensor([[4, 5, 3], [4, 3, 0], [4, 5, 3]]), torch.tensor([[4, 5, 6, 3], [4, 5, 3, 0], [4, 5, 3, 0]])
    links = torch.tensor([0, 1, 8, 12, 36])  # of (3, 4, 3): two words, one, and one; the last is none
    free = [[[0.5, 0.5, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]], [[1, 0, 0], *[[0, 0, 0]] * 3], [[0, 0, 0]] * 4]
    assert target_weights(links, x != 0, y, guide(ends=False)).tolist() == free
    # Words without links look at </s>; </s> itself, padding and a pair without links are left alone.
    ends = [[[0.5, 0.5, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]], [[1, 0, 0], [0, 1, 0], *[[0, 0, 0]] * 2], [[0, 0, 0]] * 4]
    assert target_weights(links, x != 0, y, guide()).tolist() == ends
    assert target_weights(links, x != 0, y, guide(late=True)).tolist() == [[[0, 0, 0], *rows[:-1]] for rows in ends]


def test_loss_by_hand():
    wanted = torch.tensor([[[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]]])
    one, other = [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.75, 0.25], [0.0, 0.0]]
    weights = torch.tensor([[one, other]])
    found, linked = links_loss(weights, wanted)
    rows = [-(math.log(0.25) + math.log(0.75)) / 2, -math.log(0.5), -math.log(0.5), -math.log(0.25)]
    assert found.item() == pytest.approx(sum(rows) / 2)
    assert linked.item() == 2
    twice, linked = links_loss(torch.cat([weights, weights.flip(1)]), wanted)
    assert twice.item() == pytest.approx(found.item())
    assert linked.item() == 2


def test_a_weight_of_zero_does_no_harm():
    scores = torch.tensor([[[[300.0, 0.0]]]], requires_grad=True)
    found, _ = links_loss(scores.softmax(-1), torch.tensor([[[0.0, 1.0]]]))
    found.backward()
    assert found.isfinite()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def plain_loss(model: Network, batch: Batch, guide: GuidedAttention) -> tuple[Tensor, Tensor]:
    """Words' and links' losses as the formulas have them, with all weights looked at, token by token."""
    memory = model.encode(batch.x, batch.x != 0)
    y = batch.y[:, :-1]
    model.unrolls = lambda *_: False
    hidden, _, weights = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights())
    words = torch.nn.functional.cross_entropy(
        model.logits(hidden).flatten(0, 1), batch.y[:, 1:].flatten(), ignore_index=0, reduction="sum"
    )
    links = torch.zeros((), dtype=torch.float64)
    layer = guide.need_weights.layer or 0
    for row, number in enumerate(batch.rows):
        for token, linked in taught(number, guide.ends).items():
            alpha = weights[row, layer if weights.shape[1] > 1 else 0, : guide.heads, token + guide.late]
            links -= alpha[:, linked].log().mean()
    return words, links


def gradients(model: Network) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]


@every
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_the_loss_is_that_of_words_and_links(kind, late, ends):
    model, plain = make(kind), make(kind)
    own = guide(late=late, layer=1, heads=2, ends=ends) if kind == "transformer" else guide(late=late, ends=ends)
    batch = batches().batch(np.arange(4))
    share = torch.tensor(1.0 / batch.tokens, dtype=torch.float64)
    total, _, links, linked = ModelWithLoss(model, auxiliary={"guided": own})(batch.x, batch.y, share, batch.links)
    words, wanted = plain_loss(plain, batch, own)
    assert links.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert linked.item() == (6 if ends else 4)
    assert total.item() == pytest.approx(((words + 0.5 * wanted) / batch.tokens).item(), rel=1e-5)
    total.backward()
    ((words + 0.5 * wanted) / batch.tokens).backward()
    torch.testing.assert_close(gradients(model), gradients(plain), rtol=1e-4, atol=1e-7)


@every
def test_it_does_not_depend_on_batches(kind):
    """One batch, the same one padded, two that are added up, or the shares of two processes."""
    made = batches()

    def found(*shares: Batch) -> list[Tensor]:
        model = make(kind)
        tokens = sum(batch.tokens for batch in shares)
        for batch in shares:
            learner = ModelWithLoss(model, 0.1, auxiliary={"guided": guide()})
            learner(batch.x, batch.y, torch.tensor(1.0 / tokens).double(), batch.links)[0].backward()
        return gradients(model)

    whole = found(made.batch(np.arange(4)))
    assert any(bool(gradient.abs().max() > 1e-3) for gradient in whole)
    for shares in (
        [made.batch(np.arange(4), fixed=True)],
        [made.batch(np.array([3, 0])), made.batch(np.array([1, 2]))],
        [made.batch(np.arange(4), rank=rank, world=2) for rank in (0, 1)],
        [made.batch(np.arange(4), rank=rank, world=5, fixed=True) for rank in range(5)],
    ):
        torch.testing.assert_close(found(*shares), whole, rtol=1e-4, atol=1e-8)


@every
def test_two_passes_are_as_one_without_dropout(kind):
    """Of a batch with links that are none, as a GPU has it: they must not be taken for those of the second pass."""
    batch, share = batches().batch(np.arange(4), fixed=True), torch.tensor(0.1).double()
    found = []
    for rdrop in (0.0, 3.0):
        model = make(kind)
        total, *_ = told = ModelWithLoss(model, 0.1, rdrop, {"guided": guide()})(batch.x, batch.y, share, batch.links)
        total.backward()
        found.append((torch.stack([t.double() for t in told]), gradients(model)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-8)


def test_only_the_guided_layer_is_computed_in_the_plain_way(monkeypatch):
    calls: list[MultiHead] = []
    own = MultiHead.forward
    monkeypatch.setattr(MultiHead, "forward", lambda self, *given: (calls.append(self), own(self, *given))[1])
    model, batch = make("transformer"), batches().batch(np.arange(4))
    memory = model.encode(batch.x, batch.x != 0)
    y = batch.y[:, :-1]
    weights = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights(layer=1)).weights
    assert weights is not None
    assert weights.shape == (4, 1, 2, *y.shape[1:], batch.x.shape[1])
    assert calls == [model.decoder[1].across]
    every = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights()).weights
    torch.testing.assert_close(weights[:, 0], every[:, 1])


def test_agreement_counts_the_best_token_of_each_row():
    model, batch = make("additive").eval(), batches().batch(np.arange(4))
    with torch.inference_mode():
        memory = model.encode(batch.x, batch.x != 0)
        weights = model.step(batch.y[:, :-1], model.start(memory, 4), memory, NeedWeights()).weights
        hits, linked = agreement(model, batch, guide())
    best = weights[:, 0, 0].argmax(-1)
    tokens = {(row, t): right for row in range(len(PAIRS)) for t, right in taught(row).items()}
    assert linked.item() == len(tokens)
    assert hits.item() == sum(int(best[row, t]) in right for (row, t), right in tokens.items())


def test_an_update_tells_the_losses_apart():
    batch = batches().batch(np.arange(4))
    config = TrainingConfig(smoothing=0.0)
    one, other = (
        TrainingStep(make("additive").float(), config, CPU, False, auxiliary=own)
        for own in ({"guided": guide(5.0)}, {})
    )
    one([batch], batch.tokens, 1, 0.0)
    other([Batch(batch.x, batch.y, batch.rows, batch.tokens)], batch.tokens, 1, 0.0)
    guided, plain = one.read(), other.read()
    assert guided.loss == pytest.approx(plain.loss, rel=1e-4)
    assert guided.correct == plain.correct
    value, linked = guided.auxiliary["guided"]
    assert (linked, dict(plain.auxiliary)) == (6, {})
    assert value > 0.5


def reversed_pairs(count: int = 400) -> tuple[list[tuple[str, str]], list[str]]:
    """Sentences to be written from the end, in words of letters that are cut, and the links that this means."""
    pairs = [(x, " ".join(reversed(y.split()))) for x, y in copies(count)]
    lengths = [len(x.split()) for x, _ in pairs]
    return pairs, [" ".join(f"{i}-{n - 1 - i}" for i in range(n)) for n in lengths]


def settings(family: str = "rnn", **training: object) -> dict[str, dict[str, Any]]:
    models = {"rnn": TINY["model"], "transformer": {"layers": 2, "width": 32, "heads": 2, "inner": 32, "dropout": 0.1}}
    return {
        "text": {"kind": "word"},
        "model": {"family": family, **models[family]},
        "training": {**TINY["training"], **training},
    }


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_links_are_learned(family, tmp_path):
    """Far sooner than the words, and the model comes with the read-out that finds them."""
    pairs, links = reversed_pairs()
    more = {"steps": 120, "valid_every": 120, "guided": 1.0, "metric": "loss"}
    translator = heedful.train(pairs, tmp_path / "m", links=links, settings=settings(family, **more))
    assert translator.readout == Readout(
        1, (1,), translator.readout.step, threshold=0.3, chosen="guided by given links"
    )
    lines = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    assert [line["valid_links"] for line in lines if "valid_links" in line][-1] > 0.8
    losses = [line["guided"] for line in lines if "guided" in line]
    assert losses[-1] < 0.3 < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_words_without_links_are_learned_to_have_none(family, tmp_path):
    """Every other word is linked to nothing: what is read has no link for it, unless it was left alone."""
    pairs, lines = reversed_pairs()
    links = [" ".join(line.split()[::2]) for line in lines]
    found = []
    for unlinked in ("end", "free"):
        more = {"steps": 200, "valid_every": 200, "metric": "loss", "guided_unlinked": unlinked}
        out = tmp_path / unlinked
        translator = heedful.train(pairs, out, links=links, settings=settings(family, **more))
        read = translator.align(*map(list, zip(*pairs[:50], strict=True)))
        right = [len(one.pairs & parse(line)) / max(1, len(one.pairs)) for one, line in zip(read, links, strict=False)]
        found.append(sum(right) / len(right))
    assert found[0] > 0.1 + found[1], found


def test_links_that_are_not_learned_yet_are_not_said_to_be(tmp_path):
    pairs, links = reversed_pairs()
    heedful.train(pairs, tmp_path / "m", links=links, settings=settings(steps=1, valid_every=1, metric="loss"))
    lines = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    (share,) = [line["valid_links"] for line in lines if "valid_links" in line]
    assert 0 <= share < 0.7


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def test_a_guided_run_is_not_undone_for_better_words(tmp_path):
    """A rate far too high makes the words worse at once: without links the model it began with is the result."""
    pairs, links = reversed_pairs(100)
    heedful.train(pairs, tmp_path / "first", settings=settings(steps=2, valid_every=1, metric="loss"))
    wild = {"training": {**TINY["training"], "steps": 1, "valid_every": 1, "metric": "loss", "rate": 5.0, "warmup": 0}}
    before = weights(tmp_path / "first")
    for name, given in (("free", None), ("guided", links)):
        heedful.train(pairs, tmp_path / name, init=tmp_path / "first", links=given, settings=wild, preset="none")
    assert all(torch.equal(value, before[key]) for key, value in weights(tmp_path / "free").items())
    assert not all(torch.equal(value, before[key]) for key, value in weights(tmp_path / "guided").items())


def test_a_resumed_run_is_the_same_to_the_bit(tmp_path):
    """With words cut anew in every epoch, and links given as numbers."""
    pairs, lines = reversed_pairs(200)
    links = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in lines]
    own = settings(guided=0.5) | {"text": {"regularise": 0.3, "size": 20}}
    for steps, out in ((40, "whole"), (20, "parts")):
        heedful.train(
            pairs, tmp_path / out, links=links, settings=own | {"training": own["training"] | {"steps": steps}}
        )
    heedful.train(pairs, tmp_path / "parts", links=links, settings=own, resume=True)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    with pytest.raises(DataError, match="the sentence pairs are not those that the run"):
        heedful.train(pairs, tmp_path / "parts", links=[[]] * len(pairs), settings=own, resume=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "fixed"], "links guide attention, but model.family=fixed has no attention"),
        (["--model", "transformer", "--set", "training.guided_layer=9"], "training.guided_layer is 9, but the model"),
        (["--model", "rnn", "--set", "training.guided_layer=2"], "training.guided_layer is 2, but the model has 1"),
    ],
)
def test_what_cannot_be_guided_is_refused_before_pairs_are_read(heedful_cli, tmp_path, options, words):
    """The file of pairs is not even there."""
    for preset in ([], ["--preset", "small"]):
        files = [tmp_path / "no.tsv", "--links", tmp_path / "no.txt", "--out", tmp_path / "m"]
        done = heedful_cli("train", *files, *options, *preset)
        assert (done.code, words in done.err) == (2, True)
        assert heedful_cli("train", *files, *options, "--set", "training.guided=0").err.count("no.tsv")


def test_a_layer_that_many_pairs_would_bring_is_not_refused_at_once(heedful_cli, tmp_path):
    files = [tmp_path / "no.tsv", "--links", tmp_path / "no.txt", "--out", tmp_path / "m"]
    assert "no.tsv" in heedful_cli("train", *files, "--set", "training.guided_layer=6").err


def test_links_that_are_ignored_change_nothing(tmp_path):
    pairs, links = reversed_pairs(200)
    heedful.train(pairs, tmp_path / "with", links=links, settings=settings(guided=0, steps=20))
    heedful.train(pairs, tmp_path / "without", settings=settings(steps=20))
    heedful.train(pairs, tmp_path / "guided", links=links, settings=settings(steps=20))
    with_, without, guided = (weights(tmp_path / out) for out in ("with", "without", "guided"))
    assert all(torch.equal(tensor, with_[name]) for name, tensor in without.items())
    assert not all(torch.equal(tensor, guided[name]) for name, tensor in without.items())


def test_on_the_command_line(heedful_cli, tmp_path):
    pairs, links = reversed_pairs(200)
    file = write_pairs(tmp_path / "pairs.tsv", pairs)
    (tmp_path / "links.txt").write_text("\n".join(links) + "\n")
    told = [f"--set=text.kind=word --set=training.{key}={value}" for key, value in TINY["training"].items()]
    options = ["--links", tmp_path / "links.txt", "--out", tmp_path / "m", *" ".join(told).split()]
    done = heedful_cli("train", file, *options, "--steps", 10, "--set", "training.valid_every=10")
    assert done.code == 0, done.err
    assert "links between words guide attention: layer 1, 1 head, training.guided=" in done.err
    assert "% of the links" in done.err
    assert ", guided " in done.err
    again = heedful_cli("train", "--resume", "--out", tmp_path / "m", "--steps", 20)
    assert again.code == 0, again.err
    assert "links between words guide attention" in again.err
    two = heedful_cli("train", file, file, *options)
    assert two.code == 2
    assert "one file of pairs, but there are 2" in two.err
    (tmp_path / "links.txt").write_text("9-0\n" + "\n".join(links[1:]) + "\n")
    wrong = heedful_cli("train", file, "--links", tmp_path / "links.txt", "--out", tmp_path / "n")
    assert wrong.code == 2
    assert "links.txt, line 1: the link '9-0' points past the end of the source" in wrong.err


@pytest.mark.slow
def test_words_that_are_taught_to_have_no_links_are_counted(heedful_cli, tmp_path):
    pairs, links = reversed_pairs(260)
    file = write_pairs(tmp_path / "pairs.tsv", pairs[:200])
    options = ["--valid", write_pairs(tmp_path / "valid.tsv", pairs[200:]), "--dry-run", "--out", tmp_path / "m"]
    options += ["--set", "text.kind=word", "--set", "data.duplicates=keep", "--links", tmp_path / "links.txt"]
    said = "target words in pairs with links have none"

    def told(lines: list[str], *more: str) -> str:
        (tmp_path / "links.txt").write_text("\n".join(lines) + "\n")
        done = heedful_cli("train", file, *options, *more)
        assert done.code == 0, done.err
        return done.err

    # Every other link of the first half is gone, and all links of the rest.
    some = [" ".join(line.split()[::2]) for line in links[:100]] + [""] * 100
    words = sum(len(target.split()) for _, target in pairs[:100])
    without = words - sum(len(line.split()) for line in some)
    logged = told(some)
    assert f"{without:,} of {words:,} {said}" in logged
    assert "training.guided_unlinked" in logged
    assert said not in told(links[:200])
    assert said not in told(some, "--set", "training.guided_unlinked=free")


def test_links_of_pairs_for_validation(heedful_cli, tmp_path):
    """Whether links are learned is measured on those of the validation pairs, which have a file of their own."""
    pairs, links = reversed_pairs(260)
    for name, rows in (("train", slice(200)), ("valid", slice(200, 260))):
        write_pairs(tmp_path / f"{name}.tsv", pairs[rows])
        (tmp_path / f"{name}.txt").write_text("\n".join(links[rows]) + "\n")
    told = " ".join(f"--set=text.kind=word --set=training.{key}={value}" for key, value in TINY["training"].items())
    options = ["--valid", tmp_path / "valid.tsv", "--set", "training.valid_every=5", "--steps", 5, *told.split()]
    with_links = [tmp_path / "train.tsv", "--links", tmp_path / "train.txt", *options]
    without = heedful_cli("train", *with_links, "--out", tmp_path / "without")
    assert "the validation pairs have no links" in without.err
    assert "% of the links" not in without.err
    done = heedful_cli("train", *with_links, "--valid-links", tmp_path / "valid.txt", "--out", tmp_path / "with")
    assert done.code == 0, done.err
    assert "% of the links" in done.err
    again = heedful_cli("train", "--resume", "--out", tmp_path / "with", "--steps", 10)
    assert "% of the links" in again.err  # the record knows of them
    for lines, words in (
        (links[200:259], "valid.txt: only 59 lines, but"),
        (links[200:], "valid.txt, line 61: no pair for these links"),
        ([*links[200:259], "0-99"], "valid.txt, line 60: the link '0-99' points past the end of the target"),
    ):
        more = ["0-0"] * (words.count("61"))
        (tmp_path / "valid.txt").write_text("\n".join([*lines, *more]) + "\n")
        wrong = heedful_cli("train", *with_links, "--valid-links", tmp_path / "valid.txt", "--out", tmp_path / "n")
        assert (wrong.code, words in wrong.err) == (2, True), wrong.err
    for alone in (["--links", tmp_path / "train.txt"], options[:2]):
        done = heedful_cli("train", tmp_path / "train.tsv", *alone, "--valid-links", "x", "--out", tmp_path / "n")
        assert (done.code, "--valid-links are the links of --valid" in done.err) == (2, True)


def test_links_of_pairs_for_validation_in_python(tmp_path):
    pairs, links = reversed_pairs(120)
    own = settings(steps=2, valid_every=2, metric="loss")
    given = {"valid": pairs[100:], "settings": own}
    heedful.train(pairs[:100], tmp_path / "m", links=links[:100], valid_links=links[100:], **given)
    assert "valid_links" in (tmp_path / "m" / "metrics.jsonl").read_text()
    with pytest.raises(ConfigError, match="valid_links are the links of valid"):
        heedful.train(pairs[:100], tmp_path / "n", valid_links=links[100:], **given)
    with pytest.raises(DataError, match="^the links of the validation pairs: only 19 lines, but more pairs"):
        heedful.train(pairs[:100], tmp_path / "n", links=links[:100], valid_links=links[101:], **given)
    with pytest.raises(DataError, match="^the links of the pairs, line 101: .* 100 pairs"):
        heedful.train(pairs[:100], tmp_path / "n", links=links, **given)


def test_pad_is_not_linked():
    """What fills up a batch has no weight to be taught: zeros in, nothing out."""
    x, y = pad([[0, 0], [4, 3]]), pad([[0, 0, 0], [2, 4, 3]])
    total, *_ = ModelWithLoss(make("additive"), auxiliary={"guided": guide()})(
        x, y, torch.tensor(1.0).double(), torch.tensor([4, 8])
    )
    assert total.isfinite()
