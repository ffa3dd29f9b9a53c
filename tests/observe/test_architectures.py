"""For every architecture our weights are those that eager attention returns: reading, padding, caches, generation."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from eager_attention import LONG, SETTINGS, SHORT, check, eager, padded
from tiny_transformers import ARCHITECTURES, DECODERS, ENCODER_DECODERS, ENCODERS, TEXTS, make
from torch import Tensor

import heedful
from heedful.draw.model_attention import ModelAttention
from heedful.errors import ConfigError
from heedful.observe import WatchedCalls

UNREAD = {"gemma2"}  # has no fused attention


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_see_equals_eager_attention(name: str) -> None:
    model, tokenizer = make(name)
    seen = heedful.see(model, tokenizer, SHORT, **({"target": TEXTS[3]} if name in ENCODER_DECODERS else {}))
    ids = tokenizer(SHORT)["input_ids"]
    labels = {"labels": torch.tensor([tokenizer(text_target=TEXTS[3])["input_ids"]])}
    check(seen, eager(model, ids, **(labels if name in ENCODER_DECODERS else {})))
    assert {group.backend == "eager" for group in seen.groups} == {name in UNREAD}


TINY: dict[str, Any] = {"vocab_size": 480, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**TINY, "intermediate_size": 48, "num_key_value_heads": 2}
OTHERS: dict[str, dict[str, Any]] = {
    "deberta-v2": {**TINY, "intermediate_size": 48},
    "longformer": {**TINY, "intermediate_size": 48, "attention_window": [4, 8]},
    "modernbert": {**TINY, "intermediate_size": 48, "local_attention": 4, "pad_token_id": 0},
    "xlnet": {"vocab_size": 480, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    "bloom": {"vocab_size": 480, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "gptj": {"vocab_size": 480, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4},
    "gpt_neo": {
        **{"vocab_size": 480, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "window_size": 4},
        "attention_types": [[["global", "local"], 1]],
    },
    "mixtral": GROUPED,
    "gpt_oss": {**GROUPED, "head_dim": 8, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1},
    "jamba": {**GROUPED, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2},  # one layer of attention
}
FUSED = {"modernbert", "mixtral", "jamba"}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of DeBERTa
@pytest.mark.parametrize("name", OTHERS)
def test_more_architectures(name: str) -> None:
    """Those without fused attention, with windows, and with layers of another kind."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    kind = (
        transformers.AutoModel
        if name in ("deberta-v2", "longformer", "modernbert", "xlnet")
        else (transformers.AutoModelForCausalLM)
    )
    model = kind.from_config(transformers.AutoConfig.for_model(name, **OTHERS[name])).eval()
    _, tokenizer = make("gpt2")
    ids = tokenizer(SHORT)["input_ids"]
    (group,) = heedful.see(model, tokenizer, SHORT).groups
    assert group.weights is not None
    wanted = eager(model, ids)["self"] if name != "longformer" else windows(model, ids)
    assert (group.backend != "eager") == (name in FUSED)
    np.testing.assert_allclose(group.weights, wanted, atol=1e-5)
    again = ModelAttention.build(ModelAttention("", [group]).plain())
    np.testing.assert_allclose(again.group().weights, group.weights, atol=1e-6)


def windows(model: Any, ids: list[int]) -> np.ndarray:
    """Longformer's weights, computed from the positions of its windows."""
    with torch.no_grad():
        layers = model(torch.tensor([ids]), output_attentions=True).attentions
    wanted = np.zeros((len(layers), 4, len(ids), len(ids)), dtype=np.float32)
    for i, (layer, window) in enumerate(zip(layers, model.config.attention_window, strict=True)):
        for t in range(len(ids)):
            for c in range(window + 1):
                if 0 <= (j := t + c - window // 2) < len(ids):
                    wanted[i, :, t, j] = layer[0, :, t, c].numpy()
    return wanted


def test_what_is_not_read_is_said() -> None:
    import transformers

    sizes = {
        f"num_{part}_{what}": n
        for part in ("encoder", "decoder")
        for what, n in (("layers", 1), ("attention_heads", 2))
    }
    config = transformers.ProphetNetConfig(
        vocab_size=480, hidden_size=16, encoder_ffn_dim=16, decoder_ffn_dim=16, **sizes
    )
    model = transformers.ProphetNetForConditionalGeneration(config).eval()
    _, tokenizer = make("gpt2")
    with pytest.warns(UserWarning, match="ProphetNet.*not read.*decoder.layers.0") as told:
        seen = heedful.see(model, tokenizer, SHORT, target="it")
    assert told[0].filename == __file__
    assert [group.kind for group in seen.groups] == ["encoder", "decoder"]


@pytest.mark.parametrize("name", [*ENCODERS, "gpt2", "llama", "bart", "t5"])
def test_padding_is_removed(name: str) -> None:
    model, tokenizer = make(name)
    batch, rows = padded(tokenizer, "right")
    target: list[int] | None = None
    given: dict[str, Any] = dict(batch)
    if name in ENCODER_DECODERS:
        target = [model.config.decoder_start_token_id, *rows[1][:5]]
        given |= {"decoder_input_ids": torch.tensor([target, target])}
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model(**given)
    for i, row in enumerate(rows):
        check(seen.attention(i), eager(model, row, target))
    with pytest.raises(ConfigError, match="row=2.*rows 0 to 1"):
        seen.attention(2)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [name for name in DECODERS if name not in UNREAD])
def test_generation_with_a_cache_and_padding(name: str, side: str) -> None:
    """Also with sliding windows, whose caches hold the last keys only."""
    model, tokenizer = make(name)
    batch, rows = padded(tokenizer, side)
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(**batch, **SETTINGS, pad_token_id=tokenizer.pad_token_id)
    length = batch["input_ids"].shape[1]
    for i, row in enumerate(rows):
        # The last token is written, and not read.
        ids = [*row, *written[i, length:-1].tolist()]
        attention = seen.attention(i)
        group = attention.group()
        assert group.generated == len(row)
        assert len(group.source.tokens) == len(ids)
        if side == "left" or i == 0:  # with padding in between, positions are others than without
            check(attention, eager(model, ids))


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "bart", "t5"])
def test_generation_equals_what_eager_generation_returns(name: str) -> None:
    model, tokenizer = make(name)
    ids = torch.tensor([tokenizer(SHORT)["input_ids"]])
    with heedful.watch(model, tokenizer) as seen:
        model.generate(ids, **SETTINGS)
    model.set_attn_implementation("eager")
    told = model.generate(ids, **SETTINGS, output_attentions=True, return_dict_in_generate=True)
    steps = {"self": told.attentions} if name in DECODERS else {}
    if name in ENCODER_DECODERS:
        steps = {"decoder": told.decoder_attentions, "cross": told.cross_attentions}
    for kind, attentions in steps.items():
        group = seen.attention().group(kind)
        assert group.weights is not None
        row = 0
        for step in attentions:
            wanted = torch.cat(step).numpy()
            T, S = wanted.shape[2:]
            offset = 0 if kind == "cross" else row + T - S
            found = group.weights[:, :, row : row + T, offset : offset + S]
            np.testing.assert_allclose(found, wanted, atol=1e-5)
            row += T
        assert row == group.weights.shape[2]


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_an_encoder_decoder_generates(name: str) -> None:
    model, tokenizer = make(name)
    batch, rows = padded(tokenizer, "right")
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(**batch, **SETTINGS)
    for i, row in enumerate(rows):
        attention = seen.attention(i)
        check(attention, eager(model, row, written[i, :-1].tolist()))
        decoder, cross = attention.group("decoder"), attention.group("cross")
        assert cross.target.tokens[:-1] == decoder.target.tokens[1:]


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3_text"])
def test_a_static_cache(name: str) -> None:
    model, tokenizer = make(name)
    row = tokenizer(SHORT)["input_ids"]
    settings = {**SETTINGS, "cache_implementation": "static", "disable_compile": True}
    with heedful.watch(model, tokenizer, copy=True) as seen:
        written = model.generate(torch.tensor([row]), **settings)
    check(seen.attention(), eager(model, written[0, :-1].tolist()))


def test_a_static_cache_that_was_not_copied() -> None:
    model, tokenizer = make("llama")
    settings = {**SETTINGS, "cache_implementation": "static", "disable_compile": True}
    with heedful.watch(model) as seen:
        model.generate(torch.tensor([tokenizer(SHORT)["input_ids"]]), **settings)
    with pytest.raises(ConfigError, match="copy=True"):
        seen.attention()


def test_generation_without_a_cache_gives_the_last_sequence() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(torch.tensor([row]), **SETTINGS, use_cache=False)
    check(seen.attention(), eager(model, written[0, :-1].tolist()))


def test_the_last_of_several_sequences() -> None:
    model, tokenizer = make("bert")
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        for text in (LONG, SHORT):
            model(**tokenizer(text, return_tensors="pt"))
    check(seen.attention(), eager(model, tokenizer(SHORT)["input_ids"]))
    assert seen.attention().group().source.tokens[1] == "the"


def test_assisted_generation_takes_tokens_back() -> None:
    model, tokenizer = make("llama")
    helper, _ = make("llama", num_hidden_layers=1)
    row = tokenizer(SHORT)["input_ids"]
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(torch.tensor([row]), **SETTINGS, assistant_model=helper)
    ids = written[0].tolist()
    found = seen.attention().group().weights
    assert found is not None
    T = found.shape[2]
    assert len(ids) - 1 <= T
    np.testing.assert_allclose(found[:, :, : len(ids) - 1, : len(ids) - 1], eager(model, ids[:-1])["self"], atol=1e-5)


def test_rows_that_end_early() -> None:
    model, tokenizer = make("llama")
    batch, rows = padded(tokenizer, "left")
    settings = {**SETTINGS, "min_new_tokens": None, "pad_token_id": tokenizer.pad_token_id}
    written = model.generate(**batch, **settings)
    length = batch["input_ids"].shape[1]
    end = int(written[1, length + 3])
    assert end not in written[0, length:].tolist()
    assert end not in written[1, length : length + 3].tolist()
    model.generation_config.eos_token_id = [end]
    with heedful.watch(model, tokenizer) as seen:
        again = model.generate(**batch, **settings)
    assert again.shape == written.shape
    check(seen.attention(1), eager(model, [*rows[1], *written[1, length : length + 4].tolist()]))
    check(seen.attention(0), eager(model, [*rows[0], *written[0, length:-1].tolist()]))


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_beam_search_is_refused(name: str) -> None:
    model, tokenizer = make(name)
    ids = torch.tensor([tokenizer(SHORT)["input_ids"]])
    with heedful.watch(model, tokenizer) as seen:
        model.generate(ids, **{**SETTINGS, "num_beams": 4})
    with pytest.raises(ConfigError, match="num_beams=1"):
        seen.attention()


def test_several_sequences_of_one_text() -> None:
    model, tokenizer = make("bart")
    batch, rows = padded(tokenizer, "right")
    torch.manual_seed(0)
    with heedful.watch(model, tokenizer) as seen:
        written = model.generate(**batch, **{**SETTINGS, "do_sample": True}, num_return_sequences=3)
    for i in range(6):
        check(seen.attention(i), eager(model, rows[i // 3], written[i, :-1].tolist()))


def test_without_a_tokenizer_tokens_are_numbered() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    with heedful.watch(model) as seen:
        model.generate(torch.tensor([row]), **SETTINGS)
    tokens = seen.attention().group().source.tokens
    assert tokens == tuple(str(i) for i in range(len(row) + 11))


def test_embeddings_instead_of_tokens() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model(inputs_embeds=model.get_input_embeddings()(torch.tensor([row])))
    check(seen.attention(), eager(model, row))
    assert seen.attention().group().source.tokens[:2] == ("0", "1")


def test_a_part_that_is_called_alone() -> None:
    model, tokenizer = make("llama")
    row = tokenizer(SHORT)["input_ids"]
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model.model(torch.tensor([row]))
    check(seen.attention(), eager(model, row))
    model, tokenizer = make("bart")
    row = tokenizer(SHORT)["input_ids"]
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model.get_encoder()(torch.tensor([row]))
    check(seen.attention(), {"encoder": eager(model, row, [2])["encoder"]})


def test_sound_instead_of_text() -> None:
    """The encoder's positions are numbered, and the decoder's tokens have names."""
    import transformers

    sizes = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    model, tokenizer = make("bart")
    config = transformers.WhisperConfig(
        **sizes, vocab_size=480, d_model=16, max_source_positions=20, num_mel_bins=8, pad_token_id=0
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    ids = tokenizer(SHORT)["input_ids"][:7]
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model(torch.randn(1, 8, 40), decoder_input_ids=torch.tensor([ids]))
    attention = seen.attention()
    assert [group.shape for group in attention.groups] == [(2, 2, 20, 20), (2, 2, 7, 7), (2, 2, 7, 20)]
    assert attention.group("cross").source.tokens[-1] == "19"
    assert attention.group("cross").target.tokens == (*attention.group("decoder").target.tokens[1:], "[next]")


def test_two_models_as_encoder_and_decoder() -> None:
    import transformers

    small = {**TINY, "intermediate_size": 48, "vocab_size": 480}
    decoder = transformers.BertConfig(**small, is_decoder=True, add_cross_attention=True)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(transformers.BertConfig(**small), decoder)
    config.decoder_start_token_id, config.pad_token_id = 2, 0
    torch.manual_seed(0)
    model = transformers.EncoderDecoderModel(config).eval()
    _, tokenizer = make("bert")
    ids = tokenizer(SHORT)["input_ids"]
    with heedful.watch(torch.nn.Sequential(model), tokenizer) as seen:
        written = model.generate(torch.tensor([ids]), **SETTINGS)
    attention = seen.attention()
    again = heedful.see(model, tokenizer, SHORT, generate=12)
    T = written.shape[1] - 1
    for kind in ("encoder", "decoder", "cross"):
        one, other = attention.group(kind).weights, again.group(kind).weights
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one[:, :, :T], other[:, :, :T], atol=1e-5)
    assert attention.group("decoder").modules[0].startswith("0.decoder.bert")


def test_another_library() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad(), heedful.watch(model) as seen:
        model(torch.randn(3, 5, 16))
    group = seen.attention(2).group()
    assert (group.kind, group.shape, len(group.source.tokens)) == ("self", (2, 4, 5, 5), 5)
    assert group.weights is not None
    np.testing.assert_allclose(group.weights[1], seen[1].array()[2], atol=1e-6)


class Attends(torch.nn.Module):
    """Attention of the last tokens to all, with a cache of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.past = torch.nn.Embedding(10, 8), torch.zeros(1, 0, 8)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        self.past = torch.cat([self.past, x], 1)
        k = self.past[:, None]
        return torch.nn.functional.scaled_dot_product_attention(x[:, None], k, k)


def test_a_cache_that_is_not_known() -> None:
    model = Attends()
    with torch.no_grad(), heedful.watch(model) as seen:
        model(torch.tensor([[1, 2, 3]]))
    assert seen.attention().group().shape == (1, 1, 3, 3)
    with torch.no_grad(), heedful.watch(model) as seen:
        model(torch.tensor([[4]]))
    with pytest.raises(ConfigError, match="cache"):
        seen.attention()


def test_what_cannot_be_joined() -> None:
    model, tokenizer = make("llama")
    ids = torch.tensor([tokenizer(SHORT)["input_ids"]])
    with heedful.watch(model, tokenizer, last=2) as seen:
        model.generate(ids, **SETTINGS)
    with pytest.raises(ConfigError, match="without last"):
        seen.attention()
    with heedful.watch(model, tokenizer, after="free") as seen:
        model.generate(ids, **SETTINGS)
    with pytest.raises(ConfigError, match="freed.*after='keep'"):
        seen.attention()
    with pytest.raises(ConfigError, match=r"layers\.0.*freed.*after='keep'"):
        seen[0].top()
    with torch.no_grad():
        cache = model(ids).past_key_values
        with heedful.watch(model) as seen:
            model(ids[:, :1], past_key_values=cache)
    with pytest.raises(ConfigError, match=f"{ids.shape[1]} tokens before the block"):
        seen.attention()
    with pytest.raises(ConfigError, match="row='a'"):
        seen.attention("a")  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with heedful.watch(model) as seen:
            pass
    with pytest.raises(ConfigError, match="scaled_dot_product_attention"):
        seen.attention()


def test_a_long_generation_is_summarised(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = make("mistral")
    batch, _ = padded(tokenizer, "left")
    with heedful.watch(model, tokenizer) as seen:
        model.generate(**batch, **SETTINGS)
    short = seen.attention(1).group()
    monkeypatch.setattr("heedful.observe.groups.DENSE", 100)
    long = seen.attention(1).group()
    assert long.weights is None
    for name in ("received", "entropy", "distance", "sharpness", "blocks"):
        np.testing.assert_allclose(getattr(long, name), getattr(short, name), atol=2e-4, rtol=1e-4)
    assert long.causal == short.causal


def test_the_largest_weights_of_a_call() -> None:
    model, tokenizer = make("gpt2")
    seen: WatchedCalls
    with torch.no_grad(), heedful.watch(model, tokenizer) as seen:
        model(**tokenizer(SHORT, return_tensors="pt"))
    top = seen[1].top(3)
    weights = seen[1].array()
    assert all(isinstance(array, np.ndarray) for array in (*top, weights))
    order = np.argsort(-weights, axis=-1, kind="stable")[..., :3]
    assert (top.positions[..., 2:, :] == order[..., 2:, :]).all()
    assert top.positions[0, 0, 0].tolist() == [0, -1, -1]
    np.testing.assert_allclose(top.mass, top.weights.sum(-1), atol=1e-6)
    np.testing.assert_allclose(top.weights, seen.attention()[1].top(3).weights[None], atol=1e-6)


def test_show_and_save(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    model, tokenizer = make("gpt2")
    with heedful.watch(model, tokenizer) as seen:
        model.generate(**tokenizer("The animal did not", return_tensors="pt"), **SETTINGS)
    seen.show()
    shown = capsys.readouterr().out
    assert "2.4" in shown  # the last head of the last layer
    path = tmp_path / "seen.json"
    seen.save(path)
    assert "GPT2LMHeadModel" in path.read_text()
