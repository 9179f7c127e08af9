"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at times; no test is about how long one example takes.
settings.register_profile("thresher", deadline=None)
settings.load_profile("thresher")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the repository."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no reference data: {folder} does not exist")
    return folder
