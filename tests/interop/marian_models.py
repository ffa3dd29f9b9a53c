"""Small Marian models made by `transformers` itself, for the tests to hold ours to."""

from __future__ import annotations

import io
import json
import random
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

ENGLISH, HINDI = (
    line.split()
    for line in (
        "the old cat sees a small dog near my house and eats green apples today",
        "वह बूढ़ी बिल्ली देखती एक छोटा कुत्ता पास मेरे घर और खाती हरे सेब आज",
    )
)
CODES = (">>fra<<", ">>hin<<")
SETTINGS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "activation_function": "swish",
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}


class Made(NamedTuple):
    """A model of `transformers`, its tokenizer, the folder that both were saved in, and sentences it was trained on."""

    path: Path
    model: Any
    tokenizer: Any
    pairs: list[tuple[str, str]]


def toy_pairs(count: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    """English words and, the other way round, what stands for each."""
    pick = random.Random(seed)
    rows = [[pick.randrange(len(ENGLISH)) for _ in range(pick.randint(2, 6))] for _ in range(count)]
    return [(" ".join(ENGLISH[i] for i in row) + ".", " ".join(HINDI[i] for i in row[::-1]) + "।") for row in rows]


def spm(texts: list[str], **options: object) -> bytes:
    import sentencepiece

    into = io.BytesIO()
    common: dict[str, Any] = {"vocab_size": 70, "hard_vocab_limit": False, "minloglevel": 3, "character_coverage": 1.0}
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(texts), model_writer=into, **(common | options))
    return into.getvalue()


def pieces(model: bytes) -> list[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return [processor.IdToPiece(i) for i in range(3, len(processor))]


def write_vocabularies(path: Path, separate: bool) -> tuple[int, int]:
    """Write the files of the tokenizer; return the sizes of the vocabularies."""
    pairs = toy_pairs()
    sides = [spm([x for x, _ in pairs]), spm([y for _, y in pairs])]
    (path / "source.spm").write_bytes(sides[0])
    (path / "target.spm").write_bytes(sides[1])
    if separate:
        tokens = [["</s>", "<unk>", "<pad>", *pieces(side)] for side in sides]
    else:
        # Somewhere in the middle, so that an order that is right by chance is not enough.
        both = list(dict.fromkeys([*pieces(sides[0]), *CODES, *pieces(sides[1])]))
        tokens = [["</s>", "<unk>", *both, "<pad>"]] * 2
    names = ("vocab.json", "target_vocab.json")
    for name, side in zip(names, tokens, strict=True):
        if separate or name == "vocab.json":
            (path / name).write_text(json.dumps({token: i for i, token in enumerate(side)}), encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps({"separate_vocabs": separate}), encoding="utf-8")
    return len(tokens[0]), len(tokens[1])


def marian(path: Path, separate: bool = False, steps: int = 0, **options: object) -> Made:
    """Make a model, train it for some steps, and save it."""
    from transformers import MarianConfig, MarianMTModel

    path.mkdir(parents=True)
    source, target = write_vocabularies(path, separate)
    pad = 2 if separate else source - 1
    sizes = {"vocab_size": source, "decoder_vocab_size": target, "share_encoder_decoder_embeddings": not separate}
    config = MarianConfig(**{**SETTINGS, **sizes, "pad_token_id": pad, "decoder_start_token_id": pad, **options})
    torch.manual_seed(3)
    model = MarianMTModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight += 0.1 * torch.randn_like(weight)
        # transformers makes both zero; Opus-MT's are not.
        model.final_logits_bias += 0.5 * torch.randn_like(model.final_logits_bias)
        model.get_decoder().embed_tokens.weight[pad] = torch.randn(config.d_model) * config.d_model**-0.5
    tokenizer = load_tokenizer(path)
    pairs = toy_pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for step in range(steps):
        some = [pairs[(step * 30 + i) % len(pairs)] for i in range(30)]
        batch = tokenizer([x for x, _ in some], text_target=[y for _, y in some], return_tensors="pt", padding=True)
        labels = batch.pop("labels")
        loss = model(**batch, labels=labels.masked_fill(labels == pad, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(path)
    return Made(path, model, tokenizer, pairs)


def load_tokenizer(path: Path) -> Any:
    from transformers import MarianTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to have sacremoses, and does not use it
        return MarianTokenizer.from_pretrained(path)


def load_model(path: Path) -> Any:
    from transformers import MarianMTModel

    model, info = MarianMTModel.from_pretrained(path, attn_implementation="eager", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()


@pytest.fixture(scope="session")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model with one vocabulary, trained a little, as Opus-MT has it; tests must not change it."""
    pytest.importorskip("transformers")
    return marian(tmp_path_factory.mktemp("opus") / "model", steps=80)


@pytest.fixture(scope="session")
def two_vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A model with a vocabulary for each language."""
    pytest.importorskip("transformers")
    return marian(
        tmp_path_factory.mktemp("opus2") / "model",
        separate=True,
        steps=80,
        activation_function="gelu",
        scale_embedding=False,
    )
