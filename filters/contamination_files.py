"""The index of a run as a file: built once on a machine, then mapped by every process that needs it."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from corpus.errors import UsageError
from corpus.version import VERSION
from filters.contamination_build import build_index
from filters.contamination_index import FORMAT, ContaminationIndex, open_index, write_index
from filters.contamination_settings import NGRAM_TOKENS, ItemLengths
from filters.suites import BenchmarkFiles, content_digest, load_items


def index_digest(benchmarks: Sequence[BenchmarkFiles], lengths: ItemLengths) -> str:
    """Return a digest of all that an index depends on."""
    settings = f"{FORMAT} {VERSION} {NGRAM_TOKENS} {tuple(lengths)} {content_digest(benchmarks)}"
    return hashlib.sha256(settings.encode()).hexdigest()


def prepared_index(benchmarks: Sequence[BenchmarkFiles], lengths: ItemLengths) -> ContaminationIndex:
    """Return the index of benchmarks, mapped into memory from a file in the user's cache folder.

    Processes that build it at the same time write the same bytes, each to a file of its own that then takes its name.
    Raises UsageError where a benchmark cannot be used.
    """
    name = f"{index_digest(benchmarks, lengths)[:32]}.index"
    path = Path(platformdirs.user_cache_dir("thresher")) / "contamination" / name
    if path.is_file():
        try:
            return open_index(path)
        except UsageError:
            pass  # cut short by another program; it is written again
    index = build_index(load_items(benchmarks), lengths)
    try:
        write_index(index, path)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="thresher-contamination-")) / name
        write_index(index, path)
    return open_index(path)
