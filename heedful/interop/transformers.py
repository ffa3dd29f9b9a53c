"""Loading a model of `transformers`, with its tokenizer: from a folder, a GGUF file, or the hub's cache.

Nothing in a folder is run. `transformers` picks files by their names, and which kinds it reads changes from version to
version. So it sees only the files that are known to be safe, as links in a temporary folder: JSON, vocabularies,
safetensors, and a `pytorch_model.bin` that is unpickled with `weights_only`.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partialmethod
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import safetensors
import torch

from heedful.errors import HeedfulError, ModelError, closest, foreign, install_command
from heedful.files import NotPlainError, open_plain
from heedful.interop.hub import HUB, parse_name, snapshot
from heedful.interop.marian import BIN, CONFIG, GENERATION, SAFE, TOKENIZER, json_object
from heedful.interop.pickles import check_pickle
from heedful.models.device import memory_guard, pick

INDEX, BIN_INDEX = f"{SAFE}.index.json", f"{BIN}.index.json"
SHARDS = {INDEX: "model-*-of-*.safetensors", BIN_INDEX: "pytorch_model-*-of-*.bin"}
ADAPTER = "adapter_config.json"
GGUF = ".gguf"
TEMPORARY = "heedful-model-"
PACKAGES = re.compile("sentencepiece|gguf|huggingface_hub", re.IGNORECASE)  # of the extra hf
# A tokenizer has one of these.
VOCABULARIES = (
    *("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model"),
    *("sentencepiece.model", "spm.model", "spm_char.model", "source.spm", "vocab-src.json", "prophetnet.tokenizer"),
    *("tekken.json", "byte_maps.json"),
)
SETTINGS = (
    *(CONFIG, GENERATION, TOKENIZER, "special_tokens_map.json", "added_tokens.json", "merges.txt", "target.spm"),
    *("target_vocab.json", "vocab-tgt.json", "bpe.codes", "dict.txt", "emoji.json", "normalizer.json"),
    *("entity_vocab.json", "word_pronunciation.json", "word_shape.json"),
)
# Weights that no attention depends on; those of heads are found by their names.
UNUSED = re.compile(r"(^|\.)(pooler\.|final_logits_bias$|position_ids$|inv_freq$|masked_bias$)")


class TransformersModel(NamedTuple):
    """A model of `transformers` in evaluation mode, its tokenizer, its name, and the name of its class."""

    model: Any
    tokenizer: Any
    name: str
    architecture: str


def is_transformers(path: str | Path) -> bool:
    """Whether a path is a model of `transformers`, by its `config.json`, or a GGUF file, or a folder with one.

    Models of heedful are none, nor are Marian models, which heedful reads itself. Of a name on the hub, as in
    `hf:gpt2`, only `config.json` is downloaded; raises ModelError if that fails.
    """
    path = Path(path)
    if str(path).startswith(HUB):
        with _silent("huggingface_hub"):
            path = snapshot(str(path), [CONFIG], "hf", **_late_bar())
        return not (path / CONFIG).exists() or is_transformers(path)
    if path.suffix == GGUF:
        return path.is_file()
    if not (path / CONFIG).is_file():
        return path.is_dir() and any(path.glob(f"*{GGUF}"))
    try:
        config = json_object(path / CONFIG)
    except ModelError:
        return False
    known = isinstance(config.get("model_type"), str) or "architectures" in config or "auto_map" in config
    return known and "heedful" not in config and config.get("model_type") != "marian"


def open_transformers(
    name: str | Path,
    device: str | torch.device = "cpu",
    trust_remote_code: bool = False,
) -> TransformersModel:
    """Return the model and the tokenizer in a folder, in a GGUF file, or with a name on the hub, as in `hf:gpt2`.

    Attention is computed by `scaled_dot_product_attention` where the architecture has it. On a GPU the weights stay as
    they are saved; on the CPU they become float32. Code in the folder is run only with `trust_remote_code`. Raises
    ModelError for files that are missing, damaged or unsafe, and for a model that does not read text.
    """
    device = pick(device) if isinstance(device, str) else device
    package = _package(str(name))
    with _silent("huggingface_hub"):
        path, shown = _find(str(name), trust_remote_code)
    with _quiet(package):
        if path.suffix == GGUF:
            loaded = _open_gguf(package, path, str(name), device)
        else:
            loaded = _open_folder(package, path, str(name), device, trust_remote_code)
    model, tokenizer = loaded
    model.config._name_or_path = tokenizer.name_or_path = shown
    with memory_guard(f"opening {name}", "choose the device cpu"):
        model = model.to(device).eval()
    return TransformersModel(model, tokenizer, shown, type(model).__name__)


def _package(name: str) -> ModuleType:
    try:
        import transformers
    except ImportError:
        raise ModelError(
            f"{name}: the package transformers is needed to load this model and is not installed; "
            f"install it with: {install_command('hf')}"
        ) from None
    return transformers


def _find(name: str, code: bool) -> tuple[Path, str]:
    """Return the folder or the GGUF file of a model, and the name to show."""
    if name.startswith(HUB):
        return _one_gguf(_fetch(name, code), name), parse_name(name)[0]
    path = Path(name)
    if path.is_file():
        if path.suffix != GGUF:
            raise ModelError(f"{path}: expected a folder with {CONFIG}, or a {GGUF} file")
        return path, path.stem
    if not path.is_dir():
        guess = closest(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        hint = f". Did you mean '{guess}'?" if guess else f"; a model on the hub is written {HUB}ORG/NAME"
        raise ModelError(f"{path}: there is no such model folder{hint}")
    found = _one_gguf(path, name)
    return found, found.stem if found.suffix == GGUF else path.resolve().name


def _one_gguf(folder: Path, name: str) -> Path:
    """Return a folder, or the GGUF file in it if there is no `config.json`."""
    if (folder / CONFIG).exists():
        return folder
    files = sorted(folder.glob(f"*{GGUF}"))
    if len(files) > 1:
        raise ModelError(f"{name}: has {len(files)} GGUF files; give the path of one, such as {files[0]}")
    if not files:
        raise ModelError(f"{name}: there is no {CONFIG}, so this is not a model of transformers")
    return files[0]


def _late_bar() -> dict[str, Any]:
    """Return the option of the hub's package for a progress bar that is shown only if it takes more than a second."""
    try:
        from huggingface_hub.utils.tqdm import tqdm
    except ImportError:
        return {}
    bar: Any = tqdm
    return {"tqdm_class": type("LateBar", (bar,), {"__init__": partialmethod(bar.__init__, delay=1.0)})}


def _fetch(name: str, code: bool) -> Path:
    """Return the folder of a model on the hub; weights are downloaded in one format, safetensors if there are any."""
    options = _late_bar()
    small = [*VOCABULARIES, *SETTINGS, ADAPTER, *(["*.py"] if code else [])]
    try:
        folder = snapshot(name, [*small, SAFE, INDEX, SHARDS[INDEX]], "hf", **options)
        if not (folder / SAFE).exists() and not (folder / INDEX).exists() and (folder / CONFIG).exists():
            folder = snapshot(name, [*small, BIN, BIN_INDEX, SHARDS[BIN_INDEX]], "hf", **options)
    except ModelError:
        # Other programs may have left all that is needed in the cache, but not every file that is asked for here.
        try:
            return snapshot(name, [CONFIG], "hf", local_files_only=True)
        except ModelError:
            pass
        raise
    return folder


def _open_folder(package: Any, path: Path, name: str, device: torch.device, code: bool) -> tuple[Any, Any]:  # noqa: ANN401
    if (path / ADAPTER).exists():
        raise ModelError(
            f"{name}: this is an adapter of another model ({ADAPTER}); merge it into its model with PEFT's "
            "merge_and_unload, and save that"
        )
    _check_config(package, json_object(path / CONFIG), name, code)
    files = [*_weights(path, name), *(path / n for n in (*VOCABULARIES, *SETTINGS) if (path / n).is_file())]
    if code:
        files += path.glob("*.py")
    if not any((path / n).is_file() for n in VOCABULARIES):
        raise ModelError(f"{name}: there is no tokenizer ({', '.join(VOCABULARIES[:5])} or the like)")
    with _linked(files, path.resolve().name) as folder, _explained(name):
        common = {"trust_remote_code": code, "local_files_only": True}
        config = package.AutoConfig.from_pretrained(folder, **common)
        tokenizer = _tokenizer(name, lambda: package.AutoTokenizer.from_pretrained(folder, config=config, **common))
        dtype = torch.float32 if device.type == "cpu" else "auto"

        def load(kind: Any) -> Any:  # noqa: ANN401
            return _with_sdpa(
                lambda attention: kind.from_pretrained(
                    folder,
                    config=config,
                    attn_implementation=attention,
                    dtype=dtype,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,
                    weights_only=True,
                    **common,
                )
            )

        return _complete(package, config, name, load), tokenizer


def _open_gguf(package: Any, path: Path, name: str, device: torch.device) -> tuple[Any, Any]:  # noqa: ANN401
    with _explained(name), _linked([path], path.parent.name or "model") as folder, _reading_gguf(name) as reading:
        common = {"gguf_file": path.name, "local_files_only": True}
        config = package.AutoConfig.from_pretrained(folder, **common)
        tokenizer = _tokenizer(name, lambda: package.AutoTokenizer.from_pretrained(folder, **common))
        with torch.device("meta"):
            empty = _auto_class(package, config, name).from_config(config)
        # `from_pretrained` of a GGUF file needs the package accelerate; reading its tensors does not.
        file = str(folder / path.name)
        weights = reading.load_gguf_checkpoint(file, return_tensors=True, model_to_load=empty)["tensors"]

        def load(kind: Any) -> Any:  # noqa: ANN401
            return _with_sdpa(
                lambda attention: kind._model_mapping[type(config)].from_pretrained(
                    None,
                    config=config,
                    state_dict=weights,
                    attn_implementation=attention,
                    dtype=torch.float32 if device.type == "cpu" else torch.bfloat16,
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,
                )
            )

        return _complete(package, config, name, load), tokenizer


@contextmanager
def _reading_gguf(name: str) -> Iterator[Any]:
    """Yield the module of `transformers` that reads GGUF files, without its progress bar.

    It reads the same file several times, and makes the same table of names for every module of a model. Here each is
    done once: SmolLM2 of 135 million weights takes half the time.
    """
    try:
        import gguf
    except ImportError:
        raise ModelError(
            f"{name}: the package gguf is needed to load this model and is not installed; "
            f"install it with: {install_command('hf')}"
        ) from None
    from transformers import modeling_gguf_pytorch_utils

    names, reading, reader = vars(gguf), vars(modeling_gguf_pytorch_utils), gguf.GGUFReader
    table, bar = gguf.get_tensor_name_map, reading["tqdm"]
    names.update(GGUFReader=cache(reader), get_tensor_name_map=cache(table))
    reading["tqdm"] = lambda tensors, **_: tensors
    try:
        yield modeling_gguf_pytorch_utils
    finally:
        names.update(GGUFReader=reader, get_tensor_name_map=table)
        reading["tqdm"] = bar


def _check_config(package: Any, config: dict[str, Any], name: str, code: bool) -> None:  # noqa: ANN401
    """Raise ModelError for an architecture that `transformers` does not have, or that needs code in the folder."""
    kind = config.get("model_type")
    known = package.CONFIG_MAPPING
    if isinstance(kind, str) and kind in known:
        return
    if config.get("auto_map"):
        if not code:
            raise ModelError(_needs_code(name))
        return
    if not isinstance(kind, str):
        raise ModelError(f"{name}: {CONFIG} has no model_type, so the architecture is unknown")
    guess = closest(kind, list(known))
    hint = f" Did you mean '{guess}'?" if guess else ""
    raise ModelError(
        f"{name}: transformers {package.__version__} does not know the architecture '{kind:.100}' (model_type in "
        f"{CONFIG}); a newer version may.{hint}"
    )


def _needs_code(name: str) -> str:
    return (
        f"{name}: this model needs Python code from its own folder, which is not run; "
        "if you trust its authors, pass trust_remote_code=True"
    )


def _weights(path: Path, name: str) -> list[Path]:
    """Return the files of weights in a folder, safetensors if there are any; raise ModelError if some are missing."""
    for single, index in ((SAFE, INDEX), (BIN, BIN_INDEX)):
        if (path / single).exists():
            files = [path / single]
        elif (path / index).exists():
            files = [path / index, *_shards(path, index)]
        else:
            continue
        for file in files:
            if file.suffix == ".bin":
                _check_bin(file)
            elif file.suffix == ".safetensors":
                with foreign(f"{file}: the weights are damaged"), safetensors.safe_open(file, framework="pt"):
                    pass
        return files
    others = sorted(
        p.name for p in path.iterdir() if p.suffix in (".bin", ".h5", ".pt", ".pth", ".ckpt", ".msgpack", ".onnx")
    )
    found = f"; other formats are not loaded: {', '.join(others[:3])}" if others else ""
    raise ModelError(f"{name}: there are no weights, neither {SAFE} nor {BIN}{found}")


def _shards(path: Path, index: str) -> list[Path]:
    """Return the files that an index names."""
    table = json_object(path / index, vocabulary=True).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise ModelError(f"{path / index}: expected a weight_map with the file of each weight")
    suffix = ".safetensors" if index == INDEX else ".bin"
    names = sorted({str(file) for file in table.values()})
    for file in names:
        if Path(file).name != file or not file.endswith(suffix):
            raise ModelError(f"{path / index}: '{file:.100}' is not the name of a {suffix} file in the same folder")
    missing = [file for file in names if not (path / file).is_file()]
    if missing:
        raise ModelError(
            f"{path}: {len(missing)} of {len(names)} files of weights are missing: {', '.join(missing[:3])}; "
            "the model is incomplete"
        )
    return [path / file for file in names]


def _check_bin(path: Path) -> None:
    """Raise ModelError for a `pytorch_model.bin` that is not plain weights."""
    try:
        with open_plain(path) as file:
            check_pickle(file)
    except ModelError as error:
        raise ModelError(f"{path}: these are not plain weights, and nothing else is loaded ({error})") from None
    except NotPlainError as error:
        raise ModelError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); the model is incomplete") from None


@contextmanager
def _linked(files: Iterable[Path], name: str) -> Iterator[Path]:
    """Yield a temporary folder with links to files and nothing else."""
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary, name)
        folder.mkdir()
        for file in files:
            try:
                os.symlink(file.resolve(), folder / file.name)
            except OSError:  # Windows allows links only in developer mode
                shutil.copyfile(file, folder / file.name)
        yield folder


def _tokenizer(name: str, load: Callable[[], Any]) -> Any:  # noqa: ANN401
    with foreign(f"{name}: the tokenizer cannot be read"):  # also a panic of Rust code
        try:
            tokenizer = load()
        except ImportError as error:
            raise ModelError(_missing_package(name, error)) from None
        except Exception as error:
            if "trust_remote_code" in str(error):
                raise ModelError(_needs_code(name)) from None
            raise ModelError(
                f"{name}: the tokenizer cannot be read ({_reason(error)}); are all its files there?"
            ) from None
        if len(tokenizer) == 0:
            raise ModelError(f"{name}: the tokenizer has no tokens")
        return tokenizer


def _auto_class(package: Any, config: Any, name: str) -> Any:  # noqa: ANN401
    """Return the auto class of an encoder, a decoder or an encoder-decoder; raise ModelError for other models."""
    kind = type(config)
    saved = [str(n) for n in getattr(config, "architectures", None) or ()]
    if any(n.endswith("EncoderModel") for n in saved) and kind in package.AutoModelForTextEncoding._model_mapping:
        choice = package.AutoModelForTextEncoding
    elif getattr(config, "is_encoder_decoder", False):
        choice = _first(config, package.AutoModelForSeq2SeqLM, package.AutoModel)
    elif kind in package.AutoModelForMaskedLM._model_mapping and not (
        getattr(config, "is_decoder", False) or any(n.endswith(("ForCausalLM", "LMHeadModel")) for n in saved)
    ):
        choice = package.AutoModel
    else:
        choice = _first(config, package.AutoModelForCausalLM, package.AutoModel)
    if choice is None:
        raise ModelError(
            f"{name}: transformers cannot load the architecture {kind.__name__.removesuffix('Config')} alone"
        )
    _check_text(choice, config, name)
    return choice


def _first(config: Any, *kinds: Any) -> Any:  # noqa: ANN401
    """Return the first auto class that has a model for settings, or that finds one in the folder's own code."""
    remote = getattr(config, "auto_map", None) or {}
    return next((kind for kind in kinds if type(config) in kind._model_mapping or kind.__name__ in remote), None)


def _check_text(kind: Any, config: Any, name: str) -> None:  # noqa: ANN401
    """Raise ModelError for a model that does not read text."""
    if type(config) not in kind._model_mapping:
        return
    model = kind._model_mapping[type(config)]
    model = model[0] if isinstance(model, tuple) else model  # Funnel has two
    reads = str(getattr(model, "main_input_name", "input_ids"))
    if reads == "input_ids" and kind.__name__ == "AutoModel" and hasattr(config, "vision_config"):
        reads = "pixel_values"
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if reads != "input_ids" or not getattr(text, "vocab_size", None):
        wanted = "images" if reads == "pixel_values" else reads if reads != "input_ids" else "something else"
        raise ModelError(f"{name}: {model.__name__} reads {wanted}; only models that read text alone are supported")


def _with_sdpa(load: Callable[[str], Any]) -> Any:  # noqa: ANN401
    """Return what `load` does with SDPA, or with eager attention if the architecture has no SDPA."""
    try:
        return load("sdpa")
    except ValueError as error:
        if "scaled_dot_product_attention" not in str(error) and "sdpa" not in str(error):
            raise
        return load("eager")


def _complete(package: Any, config: Any, name: str, load: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Return the model that `load` loads for an auto class; without a head if only the head has no weights.

    `transformers` fills missing weights with random numbers; here they raise ModelError.
    """
    kind = _auto_class(package, config, name)
    model, info = load(kind)
    missing = _missing(info)
    body = f"{getattr(model, 'base_model_prefix', '')}."
    if missing and kind is not package.AutoModel and not any(key.startswith(body) for key in missing):
        model, info = load(package.AutoModel)
        missing = _missing(info)
    if different := sorted(info.get("mismatched_keys", ())):
        key, saved, expected = different[0]
        raise ModelError(
            f"{name}: the weights do not match the settings of {type(model).__name__} in {CONFIG}: "
            f"{key} has shape {tuple(saved)}, expected {tuple(expected)}"
        )
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelError(
            f"{name}: weights of {type(model).__name__} are missing: {', '.join(missing[:3])}{more}; "
            "the files are incomplete or of another architecture"
        )
    return model


def _missing(info: dict[str, Any]) -> list[str]:
    return sorted(key for key in info.get("missing_keys", ()) if not UNUSED.search(key))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn the errors of `transformers` into ModelError with one line."""
    try:
        yield
    except (HeedfulError, MemoryError):
        raise
    except ImportError as error:
        raise ModelError(_missing_package(name, error)) from None
    except pickle.UnpicklingError as error:
        found = re.search(
            r"GLOBAL [\w.]{1,80}|WeightsUnpickler error: [^\n]{0,100}|Unsupported [^\n]{0,100}", str(error)
        )
        reason = f" ({found[0].replace('GLOBAL', 'it would call')})" if found else ""
        raise ModelError(f"{name}: {BIN}: these are not plain weights, and nothing else is loaded{reason}") from None
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise ModelError(_needs_code(name)) from None
        raise ModelError(f"{name}: cannot be loaded ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Return the kind and the text of an error in one line, without the path of the temporary folder."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {re.sub(rf'[^ ]*{TEMPORARY}[^ /]*/', '', text):.300}"


def _missing_package(name: str, error: ImportError) -> str:
    hint = f"; install it with: {install_command('hf')}" if PACKAGES.search(str(error)) else ""
    return f"{name}: a package that this model needs is not installed ({_reason(error)}){hint}"


@contextmanager
def _quiet(package: Any) -> Iterator[None]:  # noqa: ANN401
    """Turn off the log, the warnings and the progress bars of `transformers` for a while."""
    log = package.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    with warnings.catch_warnings(), _silent("huggingface_hub"):
        warnings.simplefilter("ignore")
        log.set_verbosity(logging.CRITICAL)
        log.disable_progress_bar()
        try:
            yield
        finally:
            log.set_verbosity(level)
            if bars:
                log.enable_progress_bar()


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Turn off a logger for a while."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
