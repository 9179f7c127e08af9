"""A small sample corpus: that of ``thresher sample``, from a few sources that every environment of the tests has."""

from __future__ import annotations

import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

from corpus.sample import collect, prepare_folder, write_sample
from corpus.sample_sources import Source, declared_name, distribution_source, standard_library_source

PACKAGES = frozenset({"fsspec", "numpy", "pip", "pydantic", "setuptools", "typing-extensions"})
# Modules that packages carry copies of: what is held out of them contaminates the sample.
MODULES = frozenset({"argparse.py", "contextlib.py", "distutils", "email", "importlib", "shutil.py", "tarfile.py"})
MODULES |= {"typing.py", "zipfile", "zipfile.py"}


def build_small_sample(folder: Path) -> None:
    """Write about 5 MB of documents, their pairs and a suite to ``folder``."""
    taken: set[Path] = set()
    found = {
        declared_name(distribution): distribution_source(distribution, taken)
        for distribution in distributions(path=sys.path)
        if declared_name(distribution) in PACKAGES
    }
    sources = [source for _, source in sorted(found.items()) if source is not None]
    library = standard_library_source(Path(sysconfig.get_path("stdlib")))
    files = tuple(file for file in library.files if file.path.split("/")[0] in MODULES)
    sources.append(Source(library.name, library.license, library.readme, files))
    prepare_folder(folder)
    write_sample(folder, collect(sources))
