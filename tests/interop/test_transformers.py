"""Models of transformers: 24 architectures as they were saved, the hub's cache, and what is refused."""

from __future__ import annotations

import builtins
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_transformers as tiny
import torch
from conftest import ROOT
from safetensors.torch import load_file, save_file

from heedful.errors import ModelError
from heedful.interop.transformers import is_transformers, open_transformers
from heedful.observe.tokens import tokenize

transformers = pytest.importorskip("transformers")
TEXT = "The animal did not cross the street."


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a folder with a model, made once; to be copied before it is changed."""
    folders: dict[str, Path] = {}

    def folder(architecture: str) -> Path:
        if architecture not in folders:
            folders[architecture] = tmp_path_factory.mktemp(architecture) / f"tiny-{architecture}"
            tiny.make(architecture, folders[architecture])
        return folders[architecture]

    return folder


@pytest.fixture
def bert(saved: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved("bert"), tmp_path / "bert"))


@pytest.fixture
def gpt2(saved: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved("gpt2"), tmp_path / "gpt2"))


def change(file: Path, **values: Any) -> None:
    """Change settings in a JSON file; None removes one."""
    plain = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({key: value for key, value in plain.items() if value is not None}))


def refused(folder: Path | str, *facts: str, **options: Any) -> str:
    with pytest.raises(ModelError) as error:
        open_transformers(folder, **options)
    message = str(error.value)
    assert "\n" not in message
    assert "heedful-model-" not in message
    assert all(fact in message for fact in facts), message
    return message


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_every_architecture_as_it_was_saved(architecture: str, saved: Callable[[str], Path]) -> None:
    folder = saved(architecture)
    model, tokenizer = tiny.make(architecture)
    found = open_transformers(folder)
    assert (found.name, found.architecture) == (f"tiny-{architecture}", type(model).__name__)
    assert not found.model.training
    ours, theirs = found.model.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    # Gemma 2 limits its scores, which SDPA cannot.
    assert found.model.config._attn_implementation == ("eager" if architecture == "gemma2" else "sdpa")
    assert tokenize(found.tokenizer, TEXT) == tokenize(tokenizer, TEXT)
    assert is_transformers(folder) == (architecture != "marian")


def test_what_is_no_model_of_transformers(tmp_path: Path, bert: Path) -> None:
    assert not is_transformers(tmp_path)
    assert not is_transformers(tmp_path / "missing")
    (tmp_path / CONFIG).write_text(json.dumps({"format": 1, "heedful": "0.1.0", "config": {}, "model_type": "x"}))
    assert not is_transformers(tmp_path)
    (bert / CONFIG).write_text("{")
    assert not is_transformers(bert)
    (bert / CONFIG).unlink()
    (bert / "model.gguf").write_bytes(b"GGUF")
    assert is_transformers(bert)
    assert is_transformers(bert / "model.gguf")
    assert not is_transformers(bert / "none.gguf")


CONFIG = "config.json"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_on_the_cpu(
    dtype: torch.dtype, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    model = open_transformers(saved("llama")).model
    model.to(dtype).save_pretrained(tmp_path)
    shutil.copytree(saved("llama"), tmp_path, dirs_exist_ok=True, ignore=lambda *_: ["model.safetensors", CONFIG])
    found = open_transformers(tmp_path).model
    assert {weight.dtype for weight in found.parameters()} == {torch.float32}
    assert torch.equal(found.lm_head.weight, model.lm_head.weight.float())


def test_weights_of_a_checkpoint_with_another_head(saved: Callable[[str], Path], tmp_path: Path) -> None:
    """An encoder is loaded without its head; the pooler, which a masked language model lacks, is not needed."""
    model, tokenizer = tiny.make("bert")
    masked = transformers.BertForMaskedLM(model.config)
    masked.bert.load_state_dict(model.state_dict(), strict=False)
    masked.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = open_transformers(tmp_path)
    assert found.architecture == "BertModel"
    assert torch.equal(found.model.embeddings.word_embeddings.weight, model.embeddings.word_embeddings.weight)


def test_a_decoder_without_a_head(saved: Callable[[str], Path], tmp_path: Path) -> None:
    model, tokenizer = tiny.make("llama", tie_word_embeddings=False)
    model.model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = open_transformers(tmp_path)
    assert found.architecture == "LlamaModel"
    assert torch.equal(found.model.norm.weight, model.model.norm.weight)


def test_the_encoder_of_t5_alone(saved: Callable[[str], Path], tmp_path: Path) -> None:
    model, tokenizer = tiny.make("t5")
    encoder = transformers.T5EncoderModel(model.config)
    encoder.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert open_transformers(tmp_path).architecture == "T5EncoderModel"


def test_several_files_of_weights(saved: Callable[[str], Path], tmp_path: Path) -> None:
    model, tokenizer = tiny.make("bert")
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    tokenizer.save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    found = open_transformers(tmp_path).model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in model.state_dict().items())
    shards[1].unlink()
    refused(tmp_path, shards[1].name, f"1 of {len(shards)}")


def bin_of(folder: Path) -> Path:
    """Replace the safetensors of a folder by a pytorch_model.bin."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def test_a_plain_pytorch_model_bin(bert: Path) -> None:
    wanted = load_file(bert / "model.safetensors")
    bin_of(bert)
    found = open_transformers(bert).model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in wanted.items())


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def hostile(tmp_path: Path) -> Hostile:
    return Hostile(f"touch {tmp_path}/RUN")


def test_a_hostile_pickle_is_not_run(bert: Path, tmp_path: Path) -> None:
    file = bin_of(bert)
    torch.save({"x": hostile(tmp_path)}, file)
    refused(bert, "not plain weights", "posix.system")
    file.write_bytes(pickle.dumps({"x": hostile(tmp_path)}))
    refused(bert, "pytorch_model.bin", "not plain weights")
    assert not (tmp_path / "RUN").exists()


def test_a_compressed_pickle_is_refused(bert: Path) -> None:
    import zipfile

    file = bin_of(bert)
    with zipfile.ZipFile(file) as plain, zipfile.ZipFile(bert / "x", "w", zipfile.ZIP_DEFLATED) as packed:
        for member in plain.infolist():
            packed.writestr(member.filename, plain.read(member))
    (bert / "x").rename(file)
    refused(bert, "pytorch_model.bin", "compressed")


def test_files_that_are_pickles_are_never_opened(bert: Path, tmp_path: Path) -> None:
    """Not even seen: also those that only some versions of transformers, or other packages, would read."""
    content = pickle.dumps(hostile(tmp_path))
    for name in (
        ".metadata",
        "__0_0.distcp",
        "tokenizer.pkl",
        "vocab.pkl",
        "vocab.bin",
        "training_args.bin",
        "model.pt",
    ):
        (bert / name).write_bytes(content)
    assert open_transformers(bert).architecture == "BertModel"
    (bert / "model.safetensors").unlink()
    refused(bert, "model.safetensors", "pytorch_model.bin", "training_args.bin")
    assert not (tmp_path / "RUN").exists()


def code(folder: Path) -> None:
    (folder / "own.py").write_text(f"open({str(folder / 'RUN')!r}, 'w').close()\nclass Own: ...\n")


def test_a_generate_function_in_the_folder_is_not_run(gpt2: Path) -> None:
    (gpt2 / "custom_generate").mkdir()
    (gpt2 / "custom_generate" / "generate.py").write_text(f"open({str(gpt2 / 'RUN')!r}, 'w').close()\n")
    model = open_transformers(gpt2).model
    model.generate(torch.tensor([[5]]), max_new_tokens=1, do_sample=False, pad_token_id=0)
    assert not (gpt2 / "RUN").exists()


@pytest.mark.parametrize("part", ["config", "model", "tokenizer"])
def test_code_in_the_folder_is_not_run(part: str, bert: Path) -> None:
    code(bert)
    if part == "tokenizer":
        change(bert / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "own.Own"]}, tokenizer_class="Own")
    else:
        known = {"config": "own-architecture", "model": "bert"}[part]
        change(bert / CONFIG, model_type=known, auto_map={"AutoConfig": "own.Own", "AutoModel": "own.Own"})
    if part != "config":  # transformers has its own code for this architecture, which is used
        found = open_transformers(bert)
        assert found.architecture == "BertModel"
        assert tokenize(found.tokenizer, TEXT) == tokenize(tiny.make("bert")[1], TEXT)
    else:
        refused(bert, "trust_remote_code=True", str(bert))
    assert not (bert / "RUN").exists()


def test_code_in_the_folder_is_run_if_it_is_trusted(
    bert: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    (bert / "own.py").write_text(
        "from transformers import BertConfig, BertModel\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n"
        "class OwnModel(BertModel):\n    config_class = OwnConfig\n"
    )
    change(bert / CONFIG, model_type="own", auto_map={"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"})
    refused(bert, "trust_remote_code=True")
    wanted = load_file(bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    try:
        found = open_transformers(bert, trust_remote_code=True)
    finally:
        for path in [p for p in sys.path if str(tmp_path) in p]:
            sys.path.remove(path)
    assert found.architecture == "OwnModel"
    assert torch.equal(found.model.embeddings.word_embeddings.weight, wanted)


def test_kernels_named_in_the_settings_are_not_fetched(bert: Path) -> None:
    change(bert / CONFIG, _attn_implementation="kernels-community/evil", attn_implementation="kernels-community/evil")
    assert open_transformers(bert).model.config._attn_implementation == "sdpa"


def test_files_that_are_not_plain(bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    os.mkfifo(bert / "pytorch_model.bin")
    refused(bert, "pytorch_model.bin", "pipe")


def test_quantized_weights_name_the_package_that_they_need(bert: Path) -> None:
    change(bert / CONFIG, quantization_config={"quant_method": "aqlm"})
    refused(bert, "not installed", "aqlm")


def test_an_adapter(bert: Path) -> None:
    (bert / "adapter_config.json").write_text('{"base_model_name_or_path": "../other"}')
    refused(bert, "adapter_config.json", "merge_and_unload")


def test_damaged_safetensors(bert: Path) -> None:
    file = bert / "model.safetensors"
    content = file.read_bytes()
    for part in (content[: len(content) // 2], content[:5], b"", b"x" * 100):
        file.write_bytes(part)
        refused(bert, "model.safetensors")


def test_an_index_that_leaves_the_folder(bert: Path) -> None:
    (bert / "model.safetensors").rename(bert.parent / "outside.safetensors")
    for name in ("../outside.safetensors", "model.bin", str(bert.parent / "outside.safetensors")):
        (bert / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        refused(bert, "model.safetensors.index.json", name)
    for plain in ({}, {"weight_map": {}}, {"weight_map": []}):
        (bert / "model.safetensors.index.json").write_text(json.dumps(plain))
        refused(bert, "weight_map")


@pytest.mark.parametrize("name", ["encoder.layer.1.attention.self.query.weight", "embeddings.word_embeddings.weight"])
def test_missing_weights_are_named(name: str, bert: Path) -> None:
    weights = load_file(bert / "model.safetensors")
    del weights[name]
    save_file(weights, bert / "model.safetensors", {"format": "pt"})
    refused(bert, "weights of BertModel are missing", name)


def test_weights_of_another_size(bert: Path) -> None:
    change(bert / CONFIG, intermediate_size=40)
    refused(bert, "encoder.layer.0.intermediate.dense", "(48", "(40")


def test_weights_of_another_architecture(bert: Path, gpt2: Path) -> None:
    shutil.copy(gpt2 / "model.safetensors", bert / "model.safetensors")
    refused(bert, "weights of BertModel are missing", "embeddings")


def test_settings_that_cannot_be_read(bert: Path, gpt2: Path) -> None:
    for plain in ("{", "[]", '"x"', ""):
        (bert / CONFIG).write_text(plain)
        refused(bert, CONFIG)
    change(gpt2 / CONFIG, model_type="gpt2x")
    refused(gpt2, "'gpt2x'", "model_type", "Did you mean 'gpt2'?")
    change(gpt2 / CONFIG, model_type=None)
    refused(gpt2, "no model_type")
    (gpt2 / CONFIG).unlink()
    refused(gpt2, "no config.json")


@pytest.mark.parametrize("values", [{"num_attention_heads": 5}, {"hidden_size": "many"}, {"hidden_act": "none such"}])
def test_absurd_settings(values: dict[str, Any], bert: Path) -> None:
    change(bert / CONFIG, **values)
    refused(bert, str(bert))


def test_tokenizers_that_cannot_be_read(bert: Path) -> None:
    content = (bert / "tokenizer.json").read_text()
    for plain in (content[:200], "{}", "[]", ""):
        (bert / "tokenizer.json").write_text(plain)
        refused(bert, "tokenizer")
    (bert / "tokenizer.json").unlink()
    refused(bert, "no tokenizer", "tokenizer.json")


def test_a_path_that_is_none(tmp_path: Path, bert: Path) -> None:
    refused(tmp_path / "nothing", "no such model folder", "hf:")
    refused(tmp_path / "bart", "Did you mean 'bert'?")
    refused(bert / CONFIG, "a folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no config.json")


def test_models_that_read_no_text(bert: Path) -> None:
    for name, small in (
        ("vit", {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8}),
        ("clip", {}),
        ("whisper", {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8}),
        ("wav2vec2", {"num_hidden_layers": 1}),
    ):
        (bert / CONFIG).write_text(json.dumps({"model_type": name, **small}))
        refused(bert, "reads", "text")


def test_a_missing_package(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without(missing: str) -> Callable[..., Any]:
        def load(name: str, *rest: Any) -> Any:
            if name.partition(".")[0] == missing:
                raise ImportError(name)
            return plain(name, *rest)

        return load

    monkeypatch.setattr(builtins, "__import__", without("transformers"))
    refused(bert, "transformers", "pip install", "[hf]")
    monkeypatch.setattr(builtins, "__import__", without("huggingface_hub"))
    refused("hf:gpt2", "huggingface_hub", "pip install", "[hf]")
    (bert / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(builtins, "__import__", without("gguf"))
    refused(bert / "model.gguf", "gguf", "pip install", "[hf]")


def cached(folder: Path, cache: Path, repository: str, commit: str = "0123456789" * 4, branch: str = "main") -> None:
    """Lay a folder out as the hub's package does: blobs, links to them in a snapshot, and the commit of a branch."""
    place = cache / f"models--{repository.replace('/', '--')}"
    (place / "blobs").mkdir(parents=True, exist_ok=True)
    (place / "snapshots" / commit).mkdir(parents=True)
    (place / "refs" / branch).parent.mkdir(parents=True, exist_ok=True)
    (place / "refs" / branch).write_text(commit)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, place / "blobs" / f"{commit[:8]}{number:032}")
        os.symlink(f"../../blobs/{commit[:8]}{number:032}", place / "snapshots" / commit / file.name)


PROGRAM = """
import sys, socket
def refuse(*_, **__): raise OSError("no network here")
socket.socket.connect = socket.getaddrinfo = refuse
from heedful.errors import ModelError
from heedful.interop import is_transformers, open_transformers
for name in sys.argv[1:]:
    try:
        if is_transformers(name):
            found = open_transformers(name)
            print(found.name, found.architecture, len(found.tokenizer))
        else:
            print(name, "is not of transformers")
    except ModelError as error:
        print("ERROR", error)
"""


@pytest.mark.parametrize("offline", ["1", ""])
def test_the_cache_of_the_hub(offline: str, bert: Path, gpt2: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    cached(gpt2, cache, "gpt2")
    cached(bert, cache, "tiny-org/bert-tiny")
    (bert / "model.safetensors").unlink()
    cached(bert, cache, "tiny-org/bert-tiny", "ab" * 20, "refs/pr/1")
    change(bert / CONFIG, model_type="marian")
    cached(bert, cache, "tiny-org/marian")
    names = ["hf:gpt2", "hf:tiny-org/bert-tiny", "hf:tiny-org/bert-tiny@" + "0123456789" * 4]
    names += ["hf:tiny-org/marian"]
    wrong = ["hf:tiny-org/bert-tiny@refs/pr/1", "hf:tiny-org/unknown", "hf:gpt2@v2"]
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": offline, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names, *wrong], env=environment, capture_output=True, text=True, timeout=240
    )
    lines = done.stdout.splitlines()
    size = len(tiny.make("bert")[1])
    assert lines[:3] == ["gpt2 GPT2LMHeadModel 400", *[f"tiny-org/bert-tiny BertModel {size}"] * 2], done
    assert lines.pop(3) == "hf:tiny-org/marian is not of transformers"
    assert lines[3].startswith("ERROR hf:tiny-org/bert-tiny@refs/pr/1: there are no weights")
    for line, name in zip(lines[4:], wrong[1:], strict=True):
        assert line.startswith(f"ERROR {name}: ")
        assert "not in the cache" in line
        assert ("HF_HUB_OFFLINE" in line) == bool(offline)
    assert done.stderr == ""


def test_bad_names_on_the_hub() -> None:
    for name in ("hf:", "hf:../x", "hf:a/b/c", "hf:a/b@..", "hf:-x"):
        refused(name, "hf:ORG/NAME")


def test_nothing_is_printed_and_settings_stay(saved: Callable[[str], Path], capfd: pytest.CaptureFixture[str]) -> None:
    log = transformers.utils.logging
    hub = logging.getLogger("huggingface_hub")
    log.set_verbosity_info()
    log.enable_progress_bar()
    before = (log.get_verbosity(), hub.level, list(warnings.filters), log.is_progress_bar_enabled())
    capfd.readouterr()
    try:
        folders = [saved(architecture) for architecture in ("bert", "t5", "m2m_100")]
        capfd.readouterr()  # transformers shows its progress in saving
        for folder in folders:
            open_transformers(folder)
        with pytest.raises(ModelError):
            open_transformers(saved("bert") / CONFIG)
        assert (log.get_verbosity(), hub.level, list(warnings.filters), log.is_progress_bar_enabled()) == before
    finally:
        log.set_verbosity_warning()
    assert capfd.readouterr() == ("", "")


def write_gguf(path: Path) -> tuple[Any, Any]:
    """Write the tiny llama as GGUF, with queries and keys in the order in which llama.cpp has them."""
    import gguf

    model, tokenizer = tiny.make("llama", tie_word_embeddings=False)
    config, weights = model.config, model.state_dict()
    H, K = config.num_attention_heads, config.num_key_value_heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(H)
    writer.add_head_count_kv(K)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    model_json = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    tokens += [f"<unused{i}>" for i in range(config.vocab_size - len(tokens))]
    special = {tokenizer.pad_token, tokenizer.bos_token, tokenizer.eos_token}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model_json["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    names = {"embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm"}
    names |= {"post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v"}
    names |= {"o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
    names |= {"lm_head": "output"}
    for name, weight in weights.items():
        parts = name.split(".")
        for heads, kind in ((H, "q_proj"), (K, "k_proj")):
            if kind in parts:
                D = weight.shape[0]
                weight = weight.view(heads, 2, D // heads // 2, -1).transpose(1, 2).reshape(D, -1)
        layer = f"blk.{parts[2]}." if "layers" in parts else ""
        writer.add_tensor(f"{layer}{names[parts[-2]]}.weight", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, tokenizer


def test_gguf(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "tiny.gguf"
    model, tokenizer = write_gguf(file)
    capfd.readouterr()
    for place in (file, tmp_path):
        found = open_transformers(place)
        assert (found.name, found.architecture) == ("tiny", "LlamaForCausalLM")
        weights = found.model.state_dict()
        assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
        # The special token that begins a text is not in the file.
        ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
        assert tokenize(found.tokenizer, TEXT)[0][-len(ids) :] == ids
    assert capfd.readouterr() == ("", "")
    content = file.read_bytes()
    shutil.copy(file, tmp_path / "other.gguf")
    refused(tmp_path, "2 GGUF files", "other.gguf")
    for part in (content[: len(content) // 2], content[:100], b"GGUF", b"", b"x" * 1000):
        file.write_bytes(part)
        refused(file, "tiny.gguf")
