"""The notebooks run as they stand, on a small sample, and are committed without outputs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.small_sample import build_small_sample

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
PICTURE = "image/png"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the notebooks run in, one after the other."""
    folder = tmp_path_factory.mktemp("notebooks")
    build_small_sample(folder / "sample")
    return folder


def executed(path: Path, folder: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    client.execute(
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    )
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith(f"# {int(path.name[:2])}. ")
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)#\s]+)\)", text)
    assert targets
    assert all((path.parent / target).exists() for target in targets)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_plots(path: Path, folder: Path) -> None:
    cells = code_cells(executed(path, folder))
    outputs = [output for cell in cells for output in cell.outputs]
    assert any(PICTURE in output.get("data", {}) for output in outputs)
    # What is written to stderr, such as a warning, is nothing a reader should meet.
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
