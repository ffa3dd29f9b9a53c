"""Running a model of transformers and reading its attention: which texts, which tokens, and what stays unchanged."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tiny_transformers import TEXTS, make
from torch import nn

import heedful
from heedful.errors import ConfigError, DataError, DeviceMemoryError, ModelError
from heedful.trace.model_attention import AttentionGroup

TEXT = TEXTS[0]


def test_an_encoder() -> None:
    model, tokenizer = make("bert")
    seen = heedful.see(model, tokenizer, TEXT, name="tiny")
    (group,) = seen.groups
    assert (seen.name, group.kind, group.generated, group.causal) == ("tiny", "self", None, False)
    assert group.backend == "flash for the CPU"
    assert group.modules == ("encoder.layer.0.attention.self", "encoder.layer.1.attention.self")
    assert group.source == group.target
    assert (group.source.tokens[0], group.source.tokens[-1]) == ("[CLS]", "[SEP]")
    assert len(seen) == 2
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    assert group.shape == (2, 4, ids.shape[1], ids.shape[1])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        wanted = torch.cat(model(ids, output_attentions=True).attentions).numpy()
    np.testing.assert_allclose(group.weights, wanted, atol=1e-5)


def test_generated_tokens_are_apart_from_the_prompt() -> None:
    model, tokenizer = make("llama")
    prompt = heedful.see(model, tokenizer, TEXT).group()
    group = heedful.see(model, tokenizer, TEXT, generate=4).group()
    T = prompt.shape[2]
    assert (group.generated, group.causal) == (T, True)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    settings: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        wanted = model.generate(ids, **settings)
    assert group.shape[2] == wanted.shape[1]
    assert group.source.tokens[:T] == prompt.source.tokens
    np.testing.assert_allclose(group.weights[:, :, :T, :T], prompt.weights, atol=1e-5)


def test_an_encoder_decoder_with_a_target() -> None:
    model, tokenizer = make("marian")
    seen = heedful.see(model, tokenizer, TEXT, target="La souris mange")
    encoder, decoder, cross = seen.groups
    assert [group.kind for group in seen.groups] == ["encoder", "decoder", "cross"]
    assert cross.source == encoder.source
    written = tokenizer(text_target="La souris mange", return_tensors="pt")["input_ids"]
    T = written.shape[1]
    assert len(cross.target.tokens) == len(decoder.target.tokens) == T
    # The decoder reads a start token first, and writes each token one step before it reads it.
    assert decoder.target.tokens[0] == "<pad>"
    assert decoder.target.tokens[1:] == cross.target.tokens[:-1]
    assert cross.target.tokens[-1] == "</s>"
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        told = model(ids, labels=written, output_attentions=True)
    for group, attentions in ((decoder, told.decoder_attentions), (cross, told.cross_attentions)):
        np.testing.assert_allclose(group.weights, torch.cat(attentions).numpy(), atol=1e-5)


def test_an_encoder_decoder_generates_its_target() -> None:
    model, tokenizer = make("bart")
    cross = heedful.see(model, tokenizer, TEXT, generate=6).group("cross")
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        wanted = model.generate(ids, max_new_tokens=6, do_sample=False, num_beams=1)[0]
    assert cross.shape[2] == len(wanted) - 1


def test_the_model_stays_as_it_was() -> None:
    model, tokenizer = make("llama")
    model.train()
    model.model.layers[1].eval()
    training = [module.training for module in model.modules()]
    configs = model.config.to_dict(), model.generation_config.to_dict()
    state, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    heedful.see(model, tokenizer, TEXT, generate=2)
    assert [module.training for module in model.modules()] == training
    assert (model.config.to_dict(), model.generation_config.to_dict()) == configs
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numbers).all()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.is_grad_enabled()


def test_eager_models_are_read_from_what_they_return() -> None:
    model, tokenizer = make("gemma2")  # which limits its scores, and so has no fused attention
    (group,) = heedful.see(model, tokenizer, TEXT).groups
    assert (group.backend, group.modules) == ("eager", ("model.layers.0", "model.layers.1"))
    assert group.causal


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_the_implementation_of_attention_is_restored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make("t5")
    model.set_attn_implementation(name)
    monkeypatch.setattr("heedful.observe.seeing._ways", lambda *_: ["eager" if name == "sdpa" else "sdpa"])
    seen = heedful.see(model, tokenizer, TEXT, target="it")
    assert {group.backend == "eager" for group in seen.groups} == {name == "sdpa"}
    configs = {id(m.config): m.config for m in model.modules() if hasattr(m, "config")}
    assert {config._attn_implementation for config in configs.values()} == {name}


def wrong(model: str = "gpt2", text: object = TEXT, **options: Any) -> None:
    made, tokenizer = make(model)
    heedful.see(made, tokenizer, text, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "facts"),
    [
        ({"text": " \n"}, DataError, "text.*blank"),
        ({"text": ["a", "b"]}, ConfigError, "text.*list"),
        ({"model": "bart", "target": ""}, DataError, "target.*blank"),
        ({"target": "x"}, ConfigError, "GPT2LMHeadModel.*target"),
        ({"model": "bert", "generate": 3}, ConfigError, "BertModel.*generate"),
        ({"generate": -1}, ConfigError, "generate=-1"),
        ({"generate": True}, ConfigError, "generate=True"),
        ({"model": "bart", "target": "x", "generate": 3}, ConfigError, "target and generate"),
        ({"text": "it " * 300}, DataError, "30. tokens.*256"),
        ({"generate": 250}, DataError, "tokens.*256"),
        ({"hold": [(0, 1)]}, ConfigError, r"hold: \(0, 1\)"),
        ({"hold": [3]}, ConfigError, r"hold: \(3,\)"),
        ({"word": [3]}, ConfigError, r"word=\[3\]"),
        ({"word": 3}, ConfigError, "word=3"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], facts: str) -> None:
    with pytest.raises(error, match=facts):
        wrong(**options)


def test_what_is_no_model_or_tokenizer() -> None:
    model, tokenizer = make("gpt2")
    with pytest.raises(ConfigError, match=r"model is str.*torch\.nn\.Module"):
        heedful.see("gpt2", tokenizer, TEXT)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tokenizer is NoneType"):
        heedful.see(model, None, TEXT)


def test_a_tokenizer_of_another_model() -> None:
    model, tokenizer = make("bert", vocab_size=100)
    with pytest.raises(DataError, match="token [0-9]+, but the model has 100 tokens"):
        heedful.see(model, tokenizer, TEXT)


def test_a_model_without_attention_names_its_architecture() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    _, tokenizer = make("gpt2")
    model = MambaForCausalLM(MambaConfig(vocab_size=480, hidden_size=16, num_hidden_layers=1)).eval()
    with pytest.raises(ModelError, match="MambaForCausalLM"):
        heedful.see(model, tokenizer, TEXT)


@pytest.mark.parametrize(
    ("error", "told", "facts"),
    [
        (RuntimeError("no\nkernel"), ModelError, "BertModel.*RuntimeError: no kernel"),
        (torch.OutOfMemoryError("CUDA"), DeviceMemoryError, "BertModel.*memory"),
    ],
)
def test_an_error_of_the_model_is_one_line_with_its_name(
    error: Exception, told: type[Exception], facts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = make("bert")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(model.encoder, "forward", fail)
    with pytest.raises(told, match=facts):
        heedful.see(model, tokenizer, TEXT)


SUMMARY = ("received", "entropy", "distance", "sharpness", "blocks")


@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "gemma2", "bart"])
def test_the_summary_of_a_long_text_is_that_of_all_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make(name)
    text = " ".join([TEXTS[0], TEXTS[1], TEXTS[0]])
    options = {"target": TEXTS[0]} if name == "bart" else {}
    whole = heedful.see(model, tokenizer, text, **options)
    monkeypatch.setattr("heedful.observe.groups.DENSE", 100)
    monkeypatch.setattr("heedful.fused.triton.scaled_plain.ELEMENTS", 900)  # several tiles
    row = {} if name == "bart" else {"word": "street"}
    seen = heedful.see(model, tokenizer, text, **options, **row)
    for long, short in zip(seen.groups, whole.groups, strict=True):
        assert long.weights is None
        assert (long.kind, long.modules, long.source, long.causal) == (
            *(short.kind, short.modules, short.source, short.causal),
        )
        for field in SUMMARY:
            np.testing.assert_allclose(getattr(long, field), getattr(short, field), atol=2e-4, rtol=1e-4)
        assert list(long.top) == long.rank()[:8]
        for at, one in short.largest(long.top).items():
            np.testing.assert_allclose(long.top[at].weights, one.weights, atol=1e-5)
            same = long.top[at].positions == one.positions
            assert same.mean() > 0.97  # of nearly equal weights either may be first
        _check_rows(long, short, bool(row))


def _check_rows(long: AttentionGroup, short: AttentionGroup, held: bool) -> None:
    assert bool(long.rows) == held
    for token, row in long.rows.items():
        assert short.weights is not None
        np.testing.assert_allclose(row, short.weights[:, :, token], atol=1e-5)


def test_heads_that_are_held_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.observe.groups.DENSE", 100)
    model, tokenizer = make("llama")
    group = heedful.see(model, tokenizer, TEXT, hold=[(1, None), (2, 3)]).group()
    assert set(group.top) == {(1, 1), (1, 2), (1, 3), (1, 4), (2, 3)}
    with pytest.raises(ConfigError, match="no layer 5"):
        heedful.see(model, tokenizer, TEXT, hold=[(5, 1)])
    with pytest.raises(DataError, match="'zebra'"):
        heedful.see(model, tokenizer, TEXT, word=["zebra"])


def test_a_model_inside_a_wrapper() -> None:
    model, tokenizer = make("llama")
    (group,) = heedful.see(nn.Sequential(model), tokenizer, TEXT).groups
    assert group.modules[0] == "model.layers.0.self_attn"
    with pytest.raises(ConfigError, match="Linear"):
        heedful.see(nn.Linear(2, 2), tokenizer, TEXT)


def test_a_long_text_is_not_read_with_eager_attention_if_there_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make("llama")
    model.set_attn_implementation("eager")
    assert heedful.see(model, tokenizer, TEXT).group().backend == "eager"
    monkeypatch.setattr("heedful.observe.groups.DENSE", 100)
    group = heedful.see(model, tokenizer, TEXT).group()
    assert (group.backend, group.weights) == ("flash for the CPU", None)
    assert model.config._attn_implementation == "eager"


def test_a_text_that_is_too_long_for_eager_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make("gemma2")
    monkeypatch.setattr("heedful.observe.seeing.MOST_EAGER", 8 * 20 * 20)  # 2 layers of 4 heads
    heedful.see(model, tokenizer, "it was")
    with pytest.raises(DataError, match=r"tokens.*Gemma2ForCausalLM.*20 tokens"):
        heedful.see(model, tokenizer, TEXT)


def test_a_model_of_a_file_has_the_name_of_its_class() -> None:
    model, tokenizer = make("llama")
    model.config._name_or_path = model.name_or_path = "None"
    assert heedful.see(model, tokenizer, TEXT).name == "LlamaForCausalLM"
    model.name_or_path = "org/model"
    assert heedful.see(model, tokenizer, TEXT).name == "org/model"


def test_a_head_that_only_one_kind_of_layers_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.observe.groups.DENSE", 100)
    model, tokenizer = make("bart", encoder_layers=3, decoder_layers=2)
    seen = heedful.see(model, tokenizer, TEXT, target="it was", hold=[(3, 1)])
    assert [list(group.top) for group in seen.groups] == [[(3, 1)], [], []]
    with pytest.raises(ConfigError, match="no layer 4"):
        heedful.see(model, tokenizer, TEXT, target="it was", hold=[(4, 1)])


def test_encoder_and_decoder_have_their_own_positions() -> None:
    import transformers

    heads = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    sizes = {"vocab_size": 480, "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "attention_window": 8}
    lengths = {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 12}
    model = transformers.LEDForConditionalGeneration(transformers.LEDConfig(**heads, **sizes, **lengths)).eval()
    _, tokenizer = make("bart")
    assert 12 < len(tokenizer(TEXT)["input_ids"]) <= 64
    seen = heedful.see(model, tokenizer, TEXT, target="it was")
    assert seen.group("cross").shape[3] >= 13
    with pytest.raises(DataError, match="tokens.*at most 12"):
        heedful.see(model, tokenizer, "it", target=TEXT)
    with pytest.raises(DataError, match="tokens.*at most 64"):
        heedful.see(model, tokenizer, 4 * TEXT, target="it")


@pytest.mark.parametrize(
    ("name", "missing"),
    [("t5", "decoder_start_token_id"), ("bart", "pad_token_id"), ("bart", "decoder_start_token_id")],
)
def test_a_target_of_a_model_that_is_not_set_up(name: str, missing: str) -> None:
    model, tokenizer = make(name)
    setattr(model.config, missing, None)
    with pytest.raises(ModelError, match=type(model).__name__):
        heedful.see(model, tokenizer, TEXT, target="it")


def test_two_threads_with_one_model() -> None:
    model, tokenizer = make("llama")
    model.train()
    model.set_attn_implementation("eager")
    inside, most, forward = 0, 0, model.forward
    wanted = heedful.see(model, tokenizer, TEXT).group().weights

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.02)
        try:
            return forward(*args, **more)
        finally:
            inside -= 1

    model.forward = counted
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: heedful.see(model, tokenizer, TEXT).group().weights, range(4)))
    assert most == 1
    assert model.training
    assert model.config._attn_implementation == "eager"
    for weights in found:
        np.testing.assert_allclose(weights, wanted, atol=1e-5)


def _draw(*_: object) -> None:
    np.random.rand(3)


def test_a_model_that_draws_from_numpy() -> None:
    model, tokenizer = make("bert")
    model.encoder.register_forward_pre_hook(_draw)
    np.random.seed(0)
    wanted = np.random.rand()
    np.random.seed(0)
    heedful.see(model, tokenizer, TEXT)
    assert np.random.rand() == wanted


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_a_map_with_weight_on_the_next_token_is_not_causal(rows: int) -> None:
    from heedful.observe.groups import GroupBuilder
    from heedful.observe.joining import numbered

    text = numbered(7)
    for t, j in [(6, 6), *((t, t + 1) for t in range(6)), (0, 6), (3, 6)]:
        weights = torch.eye(7)
        weights[t, j] = 0.5

        def tiles(_: object, weights: torch.Tensor = weights) -> Any:
            for begin in range(0, 7, rows):
                yield slice(begin, min(7, begin + rows)), weights[None, begin : begin + rows]

        groups = []
        for dense in (True, False):
            builder = GroupBuilder("self", (text, text), dense)
            builder.add("a", "math", 1, tiles)
            groups.append(builder.build())
        assert [group.causal for group in groups] == [j <= t] * 2
