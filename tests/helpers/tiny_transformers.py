"""Tiny models of `transformers` with random weights, and their tokenizers, as users' models are: for every test.

`make("bert")` returns a model and a tokenizer; `make("bert", folder)` saves both there too. The same name makes
the same weights. The weights are large, so that attention is far from uniform.
"""

from __future__ import annotations

import functools
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

TEXTS = (
    "The animal did not cross the street because it was too tired.",
    "The trophy doesn't fit into the brown suitcase: it is too large, isn't it?",
    "Attention weights are read from a well-known model; every token attends to tokens before it.",
    "La souris mange du fromage à l'école, où l'été était très long.",
    "वह बूढ़ी बिल्ली एक छोटा कुत्ता देखती है और हरे सेब खाती है।",
    "القطة الكبيرة تنظر إلى الكلب الصغير قرب البيت.",
    "那只动物没有过马路，因为它太累了。我们今天去看电影。",
    "Emoji 😀 🚀 ❤️ 👩‍👩‍👧‍👦 🇫🇷 are characters of several bytes 😀.",
    "0 1 2 3 4 5 6 7 8 9 ( ) [ ] { } < > / + - = * & % $ # @ ! ? ; : , . ' \" _ ~ ^ |",
)
VOCABULARY = 480  # as many rows as the largest vocabulary of these tokenizers needs

ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert")
DECODERS = (
    *("gpt2", "llama", "qwen2", "mistral", "gemma", "gemma2", "gemma3_text", "gpt_neox", "opt", "phi", "smollm3"),
    *("qwen3", "falcon"),
)
ENCODER_DECODERS = ("t5", "bart", "mbart", "m2m_100", "marian", "pegasus")
ARCHITECTURES = (*ENCODERS, *DECODERS, *ENCODER_DECODERS)

PLAIN = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
GROUPED = {**PLAIN, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512}
BART = {
    **{f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))},
    **{"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 256},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {**PLAIN, "max_position_embeddings": 256},
    "roberta": {**PLAIN, "max_position_embeddings": 258},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 256},
    "electra": {**PLAIN, "embedding_size": 16, "max_position_embeddings": 256},
    "albert": {**PLAIN, "embedding_size": 16, "max_position_embeddings": 256},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 8},
    "gemma": GROUPED,
    "gemma2": {**GROUPED, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "gemma3_text": {**GROUPED, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "gpt_neox": {**PLAIN, "max_position_embeddings": 512},
    "opt": {**PLAIN, "ffn_dim": 48, "word_embed_proj_dim": 32, "max_position_embeddings": 256},
    "phi": {**PLAIN, "max_position_embeddings": 512},
    "smollm3": GROUPED,
    "falcon": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_hidden_size": 48},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4},
    "bart": BART,
    "mbart": BART,
    "m2m_100": BART,
    "marian": {**BART, "scale_embedding": True},
    "pegasus": {**BART, "scale_embedding": True},
}
# Which tokenizer each has, and the special tokens before and after a text.
TOKENIZERS = {
    **dict.fromkeys(("bert", "distilbert", "electra"), ("wordpiece", "[CLS]", "[SEP]")),
    **dict.fromkeys(("roberta", "bart"), ("bytes", "<s>", "</s>")),
    **dict.fromkeys(("gpt2", "qwen2", "qwen3", "gpt_neox", "phi", "smollm3", "falcon"), ("bytes", "", "")),
    **dict.fromkeys(("llama", "opt"), ("bytes", "<s>", "")),
    **dict.fromkeys(("mistral", "gemma", "gemma2", "gemma3_text"), ("unigram", "<s>", "")),
    "albert": ("unigram", "[CLS]", "[SEP]"),
    **dict.fromkeys(("t5", "pegasus", "mbart"), ("unigram", "", "</s>")),
    **dict.fromkeys(("m2m_100", "marian"), ("sentencepiece", "", "")),
}


def make(architecture: str, folder: Path | None = None, **settings: Any) -> tuple[Any, Any]:
    """Return a model and its tokenizer, with attention by SDPA where the architecture has it; save both in a folder.

    `settings` replace those of the model: `make("llama", num_hidden_layers=4)`.
    """
    import transformers
    from transformers.utils import logging

    tokenizer = make_tokenizer(*TOKENIZERS[architecture])
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    if architecture in ENCODER_DECODERS:
        ids["decoder_start_token_id"] = ids["pad_token_id"] if architecture in ("t5", "marian") else ids["eos_token_id"]
    config = transformers.AutoConfig.for_model(
        architecture, **{"vocab_size": max(VOCABULARY, len(tokenizer)), **ids, **SETTINGS[architecture], **settings}
    )
    kind = (
        transformers.AutoModel
        if architecture in ENCODERS
        else transformers.AutoModelForSeq2SeqLM
        if architecture in ENCODER_DECODERS
        else transformers.AutoModelForCausalLM
    )
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        model = _build(kind, config)
        model.eval()
        _fill(model)
        if folder is not None:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    finally:
        logging.set_verbosity(level)
    return model, tokenizer


def _build(kind: Any, config: Any) -> Any:
    try:
        return kind.from_config(config, attn_implementation="sdpa")
    except ValueError:  # the architecture has no attention by SDPA
        return kind.from_config(config, attn_implementation="eager")


def _fill(model: torch.nn.Module) -> None:
    """Replace all matrices by normal random numbers, drawn in the order of their names."""
    generator = torch.Generator().manual_seed(18)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() > 1 and weight.requires_grad:
                # T5 does not divide its scores by the root of the channels; its queries are that much smaller.
                scale = 0.3 / 8**0.5 if name.endswith("Attention.q.weight") else 0.3
                weight.normal_(0.0, scale, generator=generator)


def make_tokenizer(kind: str, first: str = "", last: str = "") -> Any:
    """Return a tokenizer trained on TEXTS: wordpiece, bytes (byte-level BPE), unigram or sentencepiece.

    `first` and `last` are the special tokens before and after a text. The one named sentencepiece is M2M100's, which is
    not of the `tokenizers` library and gives no offsets.
    """
    if kind == "sentencepiece":
        return _m2m100()
    from tokenizers import Tokenizer, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer.from_str(_trained(kind))
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    if kind == "wordpiece" or first == "[CLS]":
        names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        names["mask_token"] = "[MASK]"
    if kind == "bytes":
        del names["unk_token"]
    tokenizer.add_special_tokens(sorted(names.values()))
    if first or last:
        template = " ".join(part for part in (first, "$A", last) if part)
        pair = " ".join(part for part in (template, last, "$B", last) if part)
        specials = [(name, tokenizer.token_to_id(name)) for name in sorted({first, last} - {""})]
        template_processor = processors.TemplateProcessing(single=template, pair=pair, special_tokens=specials)
        tokenizer.post_processor = (
            processors.Sequence([tokenizer.post_processor, template_processor])
            if kind == "bytes"
            else template_processor
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)


@functools.cache
def _trained(kind: str) -> str:
    """Return a tokenizer as JSON. The trainers of WordPiece and Unigram depend on the order of hash tables, so that
    these two are put together here.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    if kind == "wordpiece":
        normalizer, cutter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
        words = [w for text in TEXTS for w, _ in cutter.pre_tokenize_str(normalizer.normalize_str(text))]
        letters = sorted({letter for word in words for letter in word})
        pieces = [*letters, *(f"##{letter}" for letter in letters)]
        pieces += sorted({w for w in words if 1 < len(w) < 8} | {f"##{w[-2:]}" for w in words if len(w) > 4})
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*special, *pieces]))}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, cutter
        tokenizer.decoder = decoders.WordPiece()
    elif kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<pad>", "<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(list(TEXTS) * 4, trainer)
    else:
        processor = _processor()
        names = [processor.IdToPiece(i) for i in range(3, len(processor))]
        scores = [processor.GetScore(i) for i in range(3, len(processor))]
        special = [(name, 0.0) for name in ("<pad>", "</s>", "<unk>", "<s>")]
        tokenizer = Tokenizer(models.Unigram([*special, *zip(names, scores, strict=True)], unk_id=2))
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    return str(tokenizer.to_str())


@functools.cache
def _sentencepiece() -> bytes:
    import sentencepiece

    into = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS * 4),
        model_writer=into,
        vocab_size=330,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=3,
    )
    return into.getvalue()


def _processor() -> Any:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(_sentencepiece())
    return processor


def _m2m100() -> Any:
    from transformers import M2M100Tokenizer

    processor = _processor()
    names = ["<s>", "<pad>", "</s>", "<unk>", *(processor.IdToPiece(i) for i in range(3, len(processor)))]
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, model = Path(folder, "vocab.json"), Path(folder, "sentencepiece.bpe.model")
        vocabulary.write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
        model.write_bytes(_sentencepiece())
        return M2M100Tokenizer(str(vocabulary), str(model), src_lang="en", tgt_lang="fr")
