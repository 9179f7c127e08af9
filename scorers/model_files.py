"""The files of a Hugging Face model: where they are, whether they can be used, and their digest.

A model is a local folder, the name of one that comes with Thresher, or an id of the hub with the commit that is meant.
Weights are read from safetensors only, and neither code nor pickles of a model are ever loaded, so a folder that offers
nothing else is an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from corpus.digests import sha256_of
from corpus.errors import UsageError
from scorers.delta import changed_model, delta_digest, installed_model, is_delta, materialised

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
INSTALL = "pip install 'thresher[models]'"

COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

SUFFIXES = (".json", ".safetensors", ".txt", ".model", ".jinja", ".tiktoken")
"""Of the files that make up a model: weights, settings, tokenizer. Nothing else is digested or downloaded."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spm.model", "spiece.model", "vocab.txt", "vocab.json")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
CODE_CLASSES = frozenset({"AutoConfig", "AutoModelForSequenceClassification"})


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        name: a local folder, of a model or of a change to one (``scorers.delta``), or an id of the hub.
        revision: of the hub: a commit, a tag or a branch; None for a local folder, or for the newest one.
        is_local: whether ``name`` is a folder of this machine.
    """

    name: str
    revision: str | None
    is_local: bool

    @property
    def is_pinned(self) -> bool:
        """Whether it is the same model tomorrow, as far as its name can tell."""
        return not self.is_local and self.revision is not None and COMMIT.fullmatch(self.revision) is not None


def model_source(setting: str, model: str, revision: str | None, allow_unpinned: bool) -> ModelSource:
    """Return where a model comes from.

    Args:
        setting: how messages call the stage, ``stages.helpfulness``.
        model, revision, allow_unpinned: the stage's settings.

    Raises:
        UsageError: it is neither a folder nor a pinned model of the hub, or a change to a model that is not installed.
    """
    path = Path(model).expanduser()
    local = path if path.is_dir() else installed_model(model)
    if local is not None:
        if revision is not None:
            raise UsageError(
                f"{setting}.revision: {model} is a local folder, and revisions are of the hub; leave it out"
            )
        if is_delta(local):
            changed_model(local)
        return ModelSource(str(local), None, True)
    if path.exists():
        raise UsageError(f"{setting}.model: {model} is a file; give the folder that save_pretrained wrote")
    if not HUB_ID.fullmatch(model):
        raise UsageError(f"{setting}.model: there is no folder {model}; check the path, or give a model of the hub")
    source = ModelSource(model, revision, False)
    if not source.is_pinned and not allow_unpinned:
        found = "no revision is given" if revision is None else f"the revision {revision} may come to mean another one"
        raise UsageError(
            f"{setting}.revision: there is no folder {model}, so this is a model of the hub, and {found}; give its "
            "commit (40 hex digits), or set allow_unpinned: true"
        )
    return source


def check_packages(setting: str) -> None:
    """Raise UsageError where a package that models need is not installed; imports none of them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        needs = f"the package{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise UsageError(f"{setting}: it needs {needs}; install with: {INSTALL}")


@cache
def model_folder(source: ModelSource) -> Path:
    """Return the folder of a model, from the hub where it is not here yet. Raises UsageError if it cannot be had."""
    if source.is_local:
        return materialised(Path(source.name))
    try:
        import huggingface_hub
    except ImportError:
        raise UsageError(f"{source.name}: models of the hub need the package huggingface_hub; {INSTALL}") from None
    patterns = [f"*{suffix}" for suffix in SUFFIXES]
    try:
        return Path(huggingface_hub.snapshot_download(source.name, revision=source.revision, allow_patterns=patterns))
    except Exception as error:  # the client has errors of its own, and those of its transport
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"{source.name}: the model cannot be had from the hub ({reason}); check id, revision and network, or "
            "copy it to a folder and give that as model"
        ) from error


def check_folder(folder: Path) -> Mapping[str, Any]:
    """Return ``config.json`` of a model. Raises UsageError where the folder holds nothing that can be loaded safely."""
    names = {path.name for path in folder.iterdir()}
    if "config.json" not in names:
        raise UsageError(f"{folder}: no model, for config.json is missing; give the folder that save_pretrained wrote")
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (ValueError, OSError) as error:
        raise UsageError(f"{folder / 'config.json'}: cannot be read as JSON ({error}); save the model anew") from error
    if not isinstance(config, dict):
        raise UsageError(f"{folder / 'config.json'}: is no JSON object; save the model anew")
    if CODE_CLASSES.intersection(config.get("auto_map") or {}):
        raise UsageError(
            f"{folder}: the model brings its own Python code (auto_map in config.json), and code of a model is never "
            "run; take a model of an architecture that transformers has, or remove auto_map where this is one"
        )
    if not any(name.endswith(".safetensors") for name in names):
        pickles = sorted(name for name in names if name.endswith(PICKLES))
        found = (
            f"its weights are in {', '.join(pickles[:3])}, which can run code when loaded" if pickles else "no weights"
        )
        raise UsageError(
            f"{folder}: no file *.safetensors ({found}); save the model with save_pretrained(safe_serialization=True)"
        )
    if not names.intersection(TOKENIZER_FILES):
        raise UsageError(f"{folder}: no tokenizer ({TOKENIZER_FILES[0]} or its like); save it to the same folder")
    return config


def output_labels(config: Mapping[str, Any]) -> list[str]:
    """Return the names of a model's outputs, given ``config.json``; two where it says nothing, as in transformers."""
    labels = config.get("id2label")
    if isinstance(labels, dict) and labels:
        return [str(labels[key]) for key in sorted(labels, key=int)]
    return [f"LABEL_{number}" for number in range(int(config.get("num_labels", 2)))]


def output_number(setting: str, model: str, labels: list[str], chosen: int | str | None) -> int:
    """Return which output is the score.

    Args:
        setting: how messages call the setting, ``stages.helpfulness.output``.
        model: how they call the model.
        labels: the names of its outputs.
        chosen: a number from 0, or a name; None where there is one output only.

    Raises:
        UsageError: there is no such output, or it must be said which of several.
    """
    named = ", ".join(f"{number} ({label})" for number, label in enumerate(labels[:10]))
    has = f"the model {model} has {len(labels)} output{'s' * (len(labels) != 1)}: {named}"
    if chosen is None:
        if len(labels) == 1:
            return 0
        raise UsageError(f"{setting}: {has}; say which of them is the score")
    if isinstance(chosen, int):
        if 0 <= chosen < len(labels):
            return chosen
        raise UsageError(f"{setting}: there is no output {chosen}; {has}")
    if labels.count(chosen) != 1:
        raise UsageError(f"{setting}: there is no output {chosen!r}; {has}")
    return labels.index(chosen)


def model_digest(source: ModelSource) -> str:
    """Return the digest of a model: weights, tokenizer and settings.

    That of a pinned model of the hub is its id and commit, for the hub keeps that by content; so nothing needs to be
    downloaded to know it. Raises UsageError as ``model_folder`` and ``check_folder`` do.
    """
    if source.is_pinned:
        return f"{source.name}@{source.revision}"
    if source.is_local and is_delta(Path(source.name)):
        return delta_digest(Path(source.name))
    folder = model_folder(source)
    check_folder(folder)
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.endswith(SUFFIXES):
            status = path.stat()
            digest.update(f"{path.name}\0{_file_digest(path, status.st_size, status.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


@cache
def _file_digest(path: Path, size: int, modified: int) -> str:
    return sha256_of(path)
