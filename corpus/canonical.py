"""The hash of a semantic config or a manifest, from its canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical_hash(value: Mapping[str, Any]) -> str:
    """Return the SHA-256 (lower-case hex) of the canonical JSON of a mapping."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def config_hash(semantic: Mapping[str, Any]) -> str:
    """Return the hash of a semantic config."""
    return canonical_hash(semantic)
