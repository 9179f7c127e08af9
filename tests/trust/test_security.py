"""What SECURITY.md promises, where no test of a stage or a reader shows it already."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from reports.visible import is_hidden
from tests.pipelines.corpora import run, write_config, write_manifest

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGES = ("corpus", "filters", "dedup", "scorers", "reports", "pipelines")
HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07",
    "[bold red]markup[/] [/nothing] [link=https://evil.example]x[/link]",
    "\u202etxt.exe\u202c",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    '=HYPERLINK("https://evil.example","x")',
    "../../../etc/passwd",
    "\x00\x08\x7f\x9b31m\r\nsecond line",
    "{{ config }} {% raw %} ${HOME} %s {0}",
    "\u200b\u2066\U000e0041",
]


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over records whose texts, ids, sources and column names are made to do harm."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = [
        {
            "id": f"{piece}{number}",
            "source": piece,
            "text": f"{piece} the water of the river {number % 7} {piece}",
            piece: number,
        }
        for number in range(10)
        for piece in HOSTILE
    ]
    name = "in \x1b[31mput\u202e [red].jsonl"
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\x1b[2J\n", encoding="utf-8")
    stages: list[Any] = ["language", {"length": {"minimum_characters": 60}}, "exact_duplicates"]
    config = write_config(
        folder / "c.yaml", [f"{folder}/in*.jsonl"], folder / "run", stages, id_column="id", source_column="source"
    )
    assert run(config) == 0
    return folder


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """What the last command printed, without the line feeds that it made itself."""
    captured = capsys.readouterr()
    return (captured.out + captured.err).replace("\n", "")


@pytest.mark.parametrize("command", ["report", "explain", "whatif", "compare", "verify", "run again"])
def test_no_command_prints_what_a_terminal_acts_on(
    hostile_run: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(hostile_run / "run")
    arguments = {
        "report": ["report", folder],
        "explain": ["explain", folder, f"{HOSTILE[0]}3"],
        "whatif": ["whatif", folder, "--set", "length.minimum_characters=80"],
        "compare": ["compare", folder, folder],
        "verify": ["verify", folder],
        "run again": ["run", str(hostile_run / "c.yaml")],
    }[command]
    assert main(arguments) == 0
    text = shown(capsys)
    assert len(text) > 20
    assert [character for character in text if is_hidden(character)] == []
    if command in ("report", "run again"):
        # A mark in place of it, and markup of the terminal library as the text that it is.
        assert "\ufffd[2J\ufffd]0;owned\ufffd" in text
        assert "[bold red]" in text


def test_errors_about_hostile_names_are_safe_to_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for piece in HOSTILE:
        config = write_config(tmp_path / "c.yaml", [f"no {piece}".replace("\x00", "")], tmp_path / "run", [])
        assert main(["run", str(config)]) == 2
        assert [character for character in shown(capsys) if is_hidden(character)] == [], piece
        assert main(["explain", str(tmp_path), piece.replace("\x00", "")]) == 2
        assert [character for character in shown(capsys) if is_hidden(character)] == [], piece


def test_the_html_report_holds_no_element_and_no_hidden_character_of_the_data(hostile_run: Path) -> None:
    text = (hostile_run / "run/report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "onerror=alert(1)>" not in text
    assert "&lt;script&gt;alert" in text
    assert [character for character in text if is_hidden(character)] == []


def test_nothing_is_written_outside_the_run_folder(hostile_run: Path) -> None:
    assert sorted(path.name for path in hostile_run.iterdir() if path.suffix != ".jsonl") == ["c.yaml", "run"]
    names = {path.relative_to(hostile_run / "run").parts[0] for path in (hostile_run / "run").iterdir()}
    tables = {"curated", "ledger", "signals", "evidence", "clusters", "dead_letters", "staging"}
    assert names <= tables | {"report.json", "report.html", "manifest.json", "config.yaml", "README.md", "run.json"}
    assert not [path for path in (hostile_run / "run").rglob("*") if "etc" in path.name or "script" in path.name]


@pytest.mark.parametrize("name", ["../x", "a/b", "/abs", ".", "A", "a\x00b", "staging\n"])
def test_a_stage_name_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/a.jsonl"], tmp_path / "run", [{"length": {"name": name}}])
    assert main(["run", str(config)]) == 2
    assert not (tmp_path / "run").exists()


def test_a_manifest_that_names_other_files_reads_and_removes_nothing_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "victim").write_text("precious")
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/a.jsonl"], tmp_path / "run", [])
    assert run(config) == 0
    manifest = json.loads((tmp_path / "run/manifest.json").read_bytes())
    entry = {"file": "../victim", "rows": 0, "bytes": 8, "sha256": "0" * 64}
    manifest["outputs"].append(entry)
    write_manifest(tmp_path / "run", manifest)
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "run")]) == 3
    assert "../victim is missing" in capsys.readouterr().err
    (tmp_path / "run/ledger/link").symlink_to(tmp_path)
    assert run(config, "--overwrite") in (0, 2)
    assert (tmp_path / "victim").read_text() == "precious"


FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen", "torch.load", "numpy.load", "np.load", "yaml.load"}
# The stage ``python`` runs a function that the config names: that is what it is for.
OF_THE_USER = {("filters/user_function.py", "exec")}


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_no_pickle_no_eval_no_shell_no_code_of_models() -> None:
    found = set()
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            name = path.relative_to(REPOSITORY).as_posix()
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found |= {(name, module) for module in modules if module.partition(".")[0] in FORBIDDEN_IMPORTS}
            for function, call in calls(tree):
                if function in FORBIDDEN_CALLS:
                    found.add((name, function))
                for keyword in call.keywords:
                    value = ast.unparse(keyword.value)
                    if (keyword.arg, value) in (("trust_remote_code", "True"), ("shell", "True")):
                        found.add((name, f"{keyword.arg}={value}"))
    assert found == OF_THE_USER


def test_secrets_of_the_environment_are_in_no_file_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "s3cr3t-0123456789abcdef"
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OPENAI_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, secret)
    (tmp_path / "a.jsonl").write_text('{"text": "the water of the river"}\n')
    config = write_config(
        tmp_path / "c.yaml", [f"{tmp_path}/a.jsonl"], tmp_path / "run", ["language", "exact_duplicates"]
    )
    assert run(config) == 0
    captured = capsys.readouterr()
    assert secret not in captured.out + captured.err
    holding = [
        path for path in (tmp_path / "run").rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert holding == []


def test_every_test_that_the_page_names_exists() -> None:
    page = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 30
    for file, function in named:
        text = (REPOSITORY / file).read_text(encoding="utf-8")
        assert not function or f"\ndef {function}(" in text, (file, function)
    promised = [line for line in page.splitlines() if line.startswith("| ") and "shown by" not in line]
    assert all("`tests/" in line for line in promised)
