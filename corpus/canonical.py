"""The hash of a semantic config, from its canonical JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def config_hash(semantic: Mapping[str, Any]) -> str:
    """Return the SHA-256 (lower-case hex) of the canonical JSON of a semantic config."""
    text = json.dumps(semantic, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
