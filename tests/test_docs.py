"""The documentation is true: its commands run, its configs are valid, its links lead somewhere."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from filters.suites import read_suite
from pipelines.cli import command_parser, main
from pipelines.compare_command import read_limits
from pipelines.reference import reference
from tests.examples import COMMANDS, Block, blocks, run_blocks
from tests.small_sample import build_small_sample

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    REPOSITORY / "notebooks" / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    REPOSITORY / "CHANGELOG.md",
]
LANGUAGES = {*COMMANDS, "sh", "text", "yaml"}
BLOCKS = {path: blocks(path.read_text(encoding="utf-8")) for path in PAGES}
LINK = re.compile(r"\[[^\]\[]+\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|``[^`]+``|`[^`]+`", re.MULTILINE | re.DOTALL)


def title(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def of_language(*languages: str) -> list[tuple[Path, Block]]:
    return [(path, block) for path in PAGES for block in BLOCKS[path] if block.language in languages]


def named(value: object) -> str:
    return title(value) if isinstance(value, Path) else f"line {value.line}" if isinstance(value, Block) else str(value)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "sample"
    build_small_sample(folder)
    return folder


def test_every_block_has_a_language_that_is_checked() -> None:
    assert {block.language for _, block in of_language(*LANGUAGES)} == LANGUAGES
    for path, found in BLOCKS.items():
        assert {block.language for block in found} <= LANGUAGES, title(path)


@pytest.mark.parametrize(
    "path", [path for path in PAGES if any(block.language in COMMANDS for block in BLOCKS[path])], ids=title
)
def test_commands_of_a_page_run_in_their_order(path: Path, sample: Path, tmp_path: Path) -> None:
    shutil.copytree(sample, tmp_path / "sample")
    run_blocks(BLOCKS[path], tmp_path)


@pytest.mark.parametrize(("path", "block"), of_language("yaml"), ids=named)
def test_configs_are_valid(path: Path, block: Block, tmp_path: Path) -> None:
    """A block is a config, the list of stages or another section of one, a suite file, or a file of limits."""
    value = YAML(typ="safe", pure=True).load(block.text)
    file = tmp_path / "file.yaml"
    if "benchmarks" in value:
        file.write_text(block.text, encoding="utf-8")
        assert read_suite(file).benchmarks
        return
    if not {"input", "stages", "checks"} & set(value):
        file.write_text(block.text, encoding="utf-8")
        read_limits(file)
        return
    missing = {"input": "input: {files: [data/*.parquet]}\n", "stages": "stages: [language, near_duplicates]\n"}
    text = block.text + "".join(line for section, line in missing.items() if section not in value)
    file.write_text(text, encoding="utf-8")
    assert main(["validate", str(file)]) == 0


@pytest.mark.parametrize(("path", "block"), of_language("sh"), ids=named)
def test_commands_that_need_more_than_this_machine_are_known(path: Path, block: Block) -> None:
    lines = [line for line in block.text.replace("\\\n", " ").splitlines() if line.startswith("thresher ")]
    for line in lines:
        command_parser().parse_known_args(shlex.split(line, comments=True)[1:])


def commands_of(parser: argparse.ArgumentParser) -> set[str]:
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {name for action in subparsers for name in action.choices}


@pytest.mark.parametrize("path", PAGES, ids=title)
def test_commands_that_are_spoken_of_exist(path: Path) -> None:
    known = commands_of(command_parser())
    spoken_of = re.findall(r"`+thresher ([a-z]+)", path.read_text(encoding="utf-8"))
    assert set(spoken_of) <= known


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=title)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = REPOSITORY / "docs" / "README.md"
    targets = {(contents.parent / target).resolve() for target in LINK.findall(contents.read_text(encoding="utf-8"))}
    assert set(PAGES) - {contents} <= targets


def test_the_reference_is_what_the_models_say() -> None:
    written = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m pipelines.reference docs/reference.md"


def test_every_stage_is_in_the_reference_with_what_it_measures() -> None:
    text = (REPOSITORY / "docs" / "reference.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^#{2,3} |\Z)", text, re.MULTILINE | re.DOTALL))
    assert "| `threshold` | number > 0, ≤ 1 | `0.8` |" in parts["near_duplicates"]
    assert "| `jaccard` | float64 |" in parts["near_duplicates"]
    assert "| `score` | float64 |" in parts["reward_model"]
    assert "| `words` | int64 |" in parts["gopher_quality"]
