"""SHA-256 of files: what a stage's fingerprint says of a file that its settings name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from corpus.errors import UsageError

BLOCK = 1 << 20


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, which may be large. Raises OSError."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def file_digest(path: str, name: str) -> str:
    """Return the SHA-256 of a file in hexadecimal; UsageError, which calls it by a name, if it cannot be read."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot read {name}: {error.strerror}. Check the path.") from error
