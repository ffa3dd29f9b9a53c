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
from small_runs import pad

from heedful.decoding import Decoding, beam, greedy, log_probs
from heedful.interop.folder import ModelParts
from heedful.models import NeedWeights
from heedful.text import PAD, START

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


LIMIT = 30


def ids(parts: ModelParts, made: Made, side: str) -> list[int]:
    """Marian's id for each of ours, by the names in its own files."""
    name = "target_vocab.json" if side == "target" and made.tokenizer.separate_vocabs else "vocab.json"
    theirs = json.loads((made.path / name).read_text(encoding="utf-8"))
    codec = getattr(parts, side)
    return [({"<s>": theirs["<pad>"]} | theirs)[codec.token(i)] for i in range(len(codec))]


def theirs(made: Made, texts: list[str], side: str = "source") -> list[list[int]]:
    key = {"source": "text", "target": "text_target"}[side]
    return made.tokenizer(**{key: texts})["input_ids"]


SENTENCES = [
    "the old cat sees.",
    "a small dog near my house and eats green apples today.",
    "eats.",
    "house house house the the apples cat.",
]


def check_same(parts: ModelParts, made: Made, texts: list[str] = SENTENCES) -> None:
    """Logits, self-attention and cross-attention of a batch with padding are those of `transformers`."""
    model = made.model
    model.set_attn_implementation("eager")
    x = pad(parts.source.ids(texts))
    y = pad([(START, *i) for i in parts.target.ids([" ".join(HINDI[: n + 1]) for n in range(len(texts))])])
    source, target = (torch.tensor(ids(parts, made, side)) for side in ("source", "target"))
    with torch.no_grad():
        wanted = model(
            input_ids=source[x],
            attention_mask=(x != PAD).long(),
            decoder_input_ids=target[y],
            output_attentions=True,
        )
        memory = parts.model.encode(x, x != PAD, NeedWeights())
        hidden, _, across = parts.model.step(y, parts.model.start(memory, y.shape[1]), memory, NeedWeights())
        logits = parts.model.logits(hidden)
        *_, inside = parts.model.step(
            y, parts.model.start(memory, y.shape[1]), memory, NeedWeights(self_attention=True)
        )
    words = [i for i in range(len(target)) if i != START]  # which can never be written
    torch.testing.assert_close(logits[..., words], wanted.logits[..., target[words]], atol=1e-4, rtol=1e-4)
    shares = wanted.logits.log_softmax(-1)[..., target[words]]
    torch.testing.assert_close(log_probs(logits)[..., words], shares, atol=1e-4, rtol=1e-4)
    rows = (x != PAD)[:, None, None, :, None]
    encoder = torch.stack(wanted.encoder_attentions, 1)
    assert memory.weights is not None
    torch.testing.assert_close(memory.weights * rows, encoder * rows, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(across, torch.stack(wanted.cross_attentions, 1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(inside, torch.stack(wanted.decoder_attentions, 1), atol=1e-5, rtol=1e-4)


def check_same_writing(parts: ModelParts, made: Made, texts: list[str]) -> bool:
    """Greedy decoding and a beam of 4 write the tokens that `generate` writes; return whether the two differ."""
    x = pad(parts.source.ids(texts))
    memory = parts.model.encode(x, x != PAD)
    source, target = torch.tensor(ids(parts, made, "source")), ids(parts, made, "target")
    given = {"input_ids": source[x], "attention_mask": (x != PAD).long(), "max_new_tokens": LIMIT, "max_length": None}
    limits = [LIMIT] * len(texts)
    plain = greedy(parts.model, memory, limits)
    wide = [found[0] for found in beam(parts.model, memory, limits, Decoding(beam=4))]
    for found, options in ((plain, {"num_beams": 1}), (wide, {"num_beams": 4, "early_stopping": "never"})):
        wanted = made.model.generate(**given, **options, return_dict_in_generate=True, output_scores=True)
        for ours, row in zip(found, wanted.sequences.tolist(), strict=True):
            # Theirs begin with the token that starts a sentence, and those that ended early are padded.
            n = len(ours.ids)
            assert [target[i] for i in ours.ids] == row[1 : n + 1]
            assert set(row[n + 1 :]) <= {target[PAD]}
        if options["num_beams"] > 1:
            scores = torch.tensor([sum(h.log_probs) / len(h.ids) for h in found])
            torch.testing.assert_close(scores, wanted.sequences_scores, atol=1e-4, rtol=1e-4)
    assert len({h.ids for h in plain}) > 1
    return [h.ids for h in plain] != [h.ids for h in wide]
