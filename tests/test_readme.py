"""The README is true: its examples run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from corpus.sample import build_sample
from pipelines.cli import main
from tests.examples import COMMANDS, blocks, run_blocks

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CONFIGS = sorted((REPOSITORY / "configs").glob("*.yaml"))
OFFLINE = [path for path in CONFIGS if "not offline" not in path.read_text(encoding="utf-8").lower()]
BLOCKS = [block for block in blocks(README) if block.language in COMMANDS]


def test_examples_run_in_their_order(tmp_path: Path) -> None:
    outputs = run_blocks(BLOCKS, tmp_path)
    assert len(outputs) == 5
    assert "pages.yaml: valid" in outputs[0]
    assert "every file, count and hash is as the manifest says" in outputs[0]
    assert "keep" in outputs[1]
    expected = re.search(r"print\(run\.report\[\"records\"\]\)\s+# (.+)", README)
    assert expected is not None
    assert outputs[2].strip().splitlines()[-1] == expected[1]
    assert "dropped by language/keep" in outputs[3]
    assert "minimum_score" in outputs[3]
    assert '"en"' in outputs[4]


def test_every_command_and_option_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    table = README.split("## Commands")[1].split("## Stages")[0]
    for command in set(re.findall(r"thresher (\w+)", table)):
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
    text = capsys.readouterr().out
    for option in re.findall(r"`(--\w+)[ `]", table):
        assert option in text or option in ("--direct_num_workers", "--direct_running_mode", "--runner"), option


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    build_sample(folder / "sample")
    return folder


@pytest.mark.parametrize("path", OFFLINE, ids=lambda path: path.name)
def test_ready_made_configs_run_on_the_sample(
    path: Path, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sample)
    output = tmp_path / "run"
    # A model on a CPU scores some dozens of pairs a second.
    share = 0.005 if path.stem == "pairs" else 0.05
    assert main(["run", str(path), f"--sample={share}", "--output", str(output), "--direct_num_workers=1"]) == 0
    assert main(["verify", str(output)]) == 0
    records = json.loads((output / "report.json").read_text())["records"]
    assert records["kept"] < records["read"]
    # Little of the sample is Korean.
    assert records["kept"] or path.stem == "korean"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_ready_made_configs_are_valid(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(path)]) == 0
