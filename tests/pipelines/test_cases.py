"""Hostile inputs through the command line: faults that people who do this job have reported in public."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from tests.pipelines.corpora import report, run, table, write_config

Case = Callable[..., tuple[int, Path]]


@pytest.fixture
def case(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """Run a case's files in a copy of its folder; returns the exit code and the run folder."""

    def run_case(name: str, files: list[str], stages: list[Any] | None = None, **settings: Any) -> tuple[int, Path]:
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(shared / "cases" / name, folder, copy_function=shutil.copyfile)
            if (folder / "make_input.py").exists():
                subprocess.run([sys.executable, "make_input.py"], cwd=folder, check=True, capture_output=True)
        monkeypatch.chdir(folder)
        output = folder / f"out-{len(list(folder.glob('out-*')))}"
        settings = {"id_column": "id", **settings}
        code = run(write_config(folder / "config.yaml", files, output, stages or [], **settings))
        if code == 0:
            assert main(["verify", str(output)]) == 0
        return code, output

    return run_case


def _ids(folder: Path) -> list[str]:
    return [row["record_id"] for row in table(folder, "curated")]


def _dead(folder: Path) -> list[tuple[int | None, str]]:
    return [(row["position"], row["error"]) for row in table(folder, "dead_letters")]


def test_r01_byte_order_mark(case: Case) -> None:
    _, marked = case("r01-bom-first-line", ["input.jsonl"])
    _, plain = case("r01-bom-first-line", ["plain.jsonl"])
    assert table(marked, "curated") == table(plain, "curated")
    assert _ids(marked) == ["a1", "a2", "a3"]
    _, text = case("r01-bom-first-line", ["input.txt"])
    assert table(text, "curated")[0]["text"].rstrip("\n") == "Only line of a text file."


def test_r03_huge_line(case: Case, shared: Path) -> None:
    for file in ("input.jsonl", "input.jsonl.gz"):
        code, out = case("r03-huge-line", [file], batch_bytes=1 << 16, batch_rows=1)
        assert code == 0
        assert _ids(out) == ["h1", "h3", "h4", "h5"]
        texts = {row["id"]: row["text"] for row in table(out, "curated")}
        assert len(texts["h4"]) == 4_000_000
        digest = hashlib.sha256(texts["h4"].encode()).hexdigest()
        assert digest == "25db2960566b0f78162a9e71a95e92ed835b18555c1ebd266b0bbd320f3efe9a"
        (row,) = table(out, "ledger")
        assert (row["record_id"], row["rule"], row["value"], row["threshold"]) == (
            "h2", "max_record_bytes", 24_000_000, 12 << 20,
        )  # fmt: skip


def test_r05_not_an_object(case: Case) -> None:
    code, out = case("r05-not-an-object", ["input.jsonl"])
    assert code == 0
    assert report(out)["records"] == {"read": 18, "kept": 4, "dropped": 1, "dead": 13}
    assert _ids(out) == ["k01", "k11", "12", "k13"]
    assert _dead(out) == [
        (31, "not_an_object"), (41, "not_an_object"), (56, "not_an_object"), (59, "not_an_object"), (64, "null_text"),
        (89, "missing_text"), (102, "wrong_type"), (125, "wrong_type"), (161, "wrong_type"), (198, "wrong_type"),
        (246, "malformed_json"), (276, "malformed_json"), (420, "malformed_json"),
    ]  # fmt: skip
    assert [(row["position"], row["rule"]) for row in table(out, "ledger")] == [(223, "empty_text")]


def test_r07_big_integers(case: Case) -> None:
    for file in ("input.jsonl", "input.parquet"):
        _, out = case("r07-big-int-ids", [file])
        ids = [row["id"] for row in table(out, "curated")]
        assert ids == [9007199254740993, None, 9007199254740992, 9223372036854775807, 1, 4611686018427387905]
    _, out = case("r07-big-int-ids", ["beyond.jsonl"])
    assert _ids(out) == ["18446744073709551615", "1180591620717411303424", "00042"]


def test_r09_gz_members(case: Case) -> None:
    code, out = case("r09-gz-members", ["*.gz"])
    assert code == 0
    assert sorted(_ids(out)) == sorted(
        ["g11", "g12", *[f"g{n}" for n in range(5)] * 2, *[f"g{n}" for n in (9, 10, 5, 6, 7)]]
    )
    assert report(out)["files_failed"] == 4
    assert report(out)["records"]["dead"] == 0
    faults = {row["file"]: (row["error"], row["detail"]) for row in table(out, "dead_letters")}
    assert faults["truncated.jsonl.gz"][0] == "file_truncated"
    assert "CRC" in faults["badcrc.jsonl.gz"][1]
    assert "not a gzip file" in faults["plain.jsonl.gz"][1]


def test_r11_parquet_without_rows(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    name = "r11-parquet-zero-groups"
    _, out = case(name, ["a_no_groups.parquet", "b_empty_first_group.parquet", "c_many_groups.parquet"])
    assert _ids(out) == ["p1", *(f"q{number}" for number in range(500))]
    manifest = json.loads((out / "manifest.json").read_text())
    assert [(entry["rows"], entry["failed"]) for entry in manifest["inputs"]] == [(0, False), (1, False), (500, False)]
    assert len(list((out / "curated").iterdir())) == 1
    code, out = case(name, ["a_no_groups.parquet"])
    assert (code, report(out)["records"]["read"], _ids(out)) == (0, 0, [])
    assert "the input has no records" in " ".join(capsys.readouterr().out.split())
    code, _ = case(name, ["d_no_columns.parquet"])
    assert code == 2
    assert "d_no_columns.parquet: there is no column text" in capsys.readouterr().err


def test_r12_broken_parquet(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = case("r12-broken-parquet", ["*.parquet"])
    assert code == 0
    assert sorted(_ids(out)) == sorted([f"ok{n}" for n in range(3)] + [f"y{n}" for n in (*range(10), *range(20, 40))])
    assert report(out)["files_failed"] == 4
    faults = {row["file"]: row["detail"] for row in table(out, "dead_letters")}
    assert set(faults) == {"damaged_group.parquet", "html.parquet", "truncated.parquet", "zero.parquet"}
    assert "rows 10 to 19" in faults["damaged_group.parquet"]
    code, out = case("r12-broken-parquet", ["*.parquet"], max_errors=3)
    assert code == 1
    assert not (out / "manifest.json").exists()
    assert "4 dead letters and failed files" in capsys.readouterr().err
    code, _ = case("r12-broken-parquet", ["truncated.parquet", "zero.parquet"])
    assert code == 1
    assert "every input file failed" in capsys.readouterr().err


def test_r13_lone_surrogates(case: Case) -> None:
    _, neutral = case("r13-lone-surrogate", ["input.jsonl"])
    assert _ids(neutral) == ["u3", "u5", "u6", "u8", "u9"]
    assert [error for _, error in _dead(neutral)] == ["invalid_unicode"] * 4
    assert len(table(neutral, "curated")[1]["text"]) == 15
    _, staged = case("r13-lone-surrogate", ["input.jsonl"], ["language", "gopher_quality", "exact_duplicates"])
    assert [row["record_id"] for row in table(staged, "ledger")] == _ids(neutral)


def test_r16_path_names(case: Case) -> None:
    for pattern, ids in (
        ("data", ["f0", "f1", "f2", "f3", "f4", "f5", "f6"]),
        ("data/*/*.jsonl", ["f0", "f1", "f2", "f4", "f5", "f6"]),
        ("data/[[]v1] raw data/*.jsonl", ["f0", "f1", "f2"]),
        ("data/100%/a*b.jsonl", ["f5"]),
        ("data/[v1] raw data/part#1?x=1.jsonl", ["f1"]),
    ):
        code, out = case("r16-path-names", [pattern])
        assert (code, sorted(_ids(out))) == (0, ids)
        files = [entry["file"] for entry in json.loads((out / "manifest.json").read_text())["inputs"]]
        assert not any("%20" in file or "%25" in file for file in files)
        assert {row["file"] for row in table(out, "signals")} == set(files)
        assert "f1" not in ids or any(file.endswith("part#1?x=1.jsonl") for file in files)


@pytest.mark.parametrize(
    "files", [["no_such_*.jsonl"], ["input.jsonl", "no_such_*.jsonl"], ["folder_without_data/"], ["missing.jsonl"]]
)
def test_r17_nothing_matches(case: Case, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out = case("r17-glob-nothing", files)
    assert code == 2
    assert files[-1] in capsys.readouterr().err
    assert not out.exists()


def test_r17_an_empty_file_is_no_error(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = case("r17-glob-nothing", ["empty.jsonl"])
    assert (code, report(out)["records"]["read"]) == (0, 0)
    (entry,) = json.loads((out / "manifest.json").read_text())["inputs"]
    assert (entry["file"], entry["rows"], entry["failed"]) == ("empty.jsonl", 0, False)
    assert "the input has no records" in " ".join(capsys.readouterr().out.split())


def test_r18_key_value_paths(case: Case, tmp_path: Path) -> None:
    for files in (["data/"], ["data/**/*.parquet"]):
        _, out = case("r18-key-value-path", files)
        assert sorted(row["source"] for row in table(out, "curated")) == ["src-a", "src-b", "src-c"]
    found = []
    for path in (tmp_path / "r18-key-value-path/data").rglob("*.parquet"):
        _, out = case("r18-key-value-path", [str(path)])
        found += [row["source"] for row in table(out, "curated")]
    assert sorted(found) == ["src-a", "src-b", "src-c"]


def test_r20_text_column_types(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    good = [f"{kind}.parquet" for kind in ("string", "large_string", "dictionary", "string_view", "binary")]
    _, out = case("r20-text-column-types", good, ["exact_duplicates"])
    assert [row["text"] for row in table(out, "curated")] == ["alpha text", "über 水"]
    assert [error for _, error in _dead(out)] == ["null_text"] * 5
    for kind, found in (("int", "int64"), ("list", "list<"), ("capital", "Text"), ("twice", "2 columns called text")):
        code, _ = case("r20-text-column-types", [f"{kind}.parquet"])
        message = capsys.readouterr().err
        assert code == 2
        assert f"{kind}.parquet" in message
        assert found in message
    _, out = case("r20-text-column-types", ["binary_bad.parquet"])
    assert (_ids(out), _dead(out)) == (["bad-0"], [(1, "invalid_utf8")])


def test_r21_uris(case: Case, tmp_path: Path) -> None:
    code, _ = case("r21-uris", ["data"])
    assert code == 0
    for number, path in enumerate(sorted((tmp_path / "r21-uris/data").rglob("*.jsonl"))):
        for entry in (str(path.relative_to(tmp_path / "r21-uris")), path.as_uri()):
            code, out = case("r21-uris", [entry])
            assert code == 0, entry
            assert len(_ids(out)) == 1, number


@pytest.mark.parametrize("setting", ["files", "output"])
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("s4://x/y", "known are local paths, file://, s3://, gs://, hf://"),
        ("s3://KEY:SECRET@bucket/x", "credentials in a URI"),
        ("S3://SECRET@bucket/x", "credentials in a URI"),
    ],
)
def test_r21_no_folder_is_named_like_a_scheme_and_no_secret_is_shown(
    case: Case, tmp_path: Path, setting: str, entry: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    case("r21-uris", ["data"])
    folder = tmp_path / "r21-uris"
    before = sorted(folder.rglob("*"))
    capsys.readouterr()
    files = [entry] if setting == "files" else ["data"]
    config = write_config(folder / "config.yaml", files, folder / "new", [], id_column="id")
    assert run(config, *(["--output", entry] if setting == "output" else [])) == 2
    said = "".join(capsys.readouterr())
    assert message in said
    assert "SECRET" not in said
    assert sorted(folder.rglob("*")) == before


def test_w01_empty_objects(case: Case) -> None:
    _, out = case("w01-empty-struct", ["input.jsonl"])
    assert [(row["meta"], row["tags"], row["deep"]) for row in table(out, "curated")] == [("{}", [], {"a": "{}"})] * 2
    _, out = case("w01-empty-struct", ["mixed.jsonl"])
    meta = table(out, "curated")[2]["meta"]
    assert (meta["A"], meta["a"], meta[""], meta["a.b"], meta["id"]) == (1, 2, "empty key", 1, 5)
    assert _ids(out)[2] == "x3"


def test_w02_a_folder_belongs_to_one_run(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case("w02-second-run-other-config", ["input.jsonl"])
    folder = tmp_path / "w02-second-run-other-config"

    def words(count: int, files: list[str], *options: str) -> int:
        rules = dict.fromkeys(
            ("minimum_mean_word_length", "maximum_mean_word_length", "minimum_alphabetic_words", "minimum_stop_words"),
            "off",
        )
        stages = [{"gopher_quality": {"minimum_words": count, **rules}}]
        return run(write_config(folder / "w.yaml", files, folder / "same", stages, id_column="id"), *options)

    assert words(3, ["input.jsonl"]) == 0
    assert _ids(folder / "same") == ["r1", "r2", "r3", "r4", "r5"]
    before = (folder / "same/manifest.json").read_bytes()
    assert words(3, ["input.jsonl"]) == 0
    for count, files, kept in (
        (5, ["input.jsonl"], ["r3", "r4", "r5"]),
        (5, ["input.jsonl", "more.jsonl"], ["r3", "r4", "r5", "r9"]),
    ):
        assert words(count, files) == 2
        assert (folder / "same/manifest.json").read_bytes() == before
        assert words(count, files, "--overwrite") == 0
        assert _ids(folder / "same") == kept
        assert main(["verify", str(folder / "same")]) == 0
        before = (folder / "same/manifest.json").read_bytes()
    path = folder / "input.jsonl"
    path.write_bytes(path.read_bytes().replace(b"seven", b"sevem", 1).replace(b"one", b"ome", 1))
    assert words(5, ["input.jsonl", "more.jsonl"]) == 2
    assert "input.jsonl" in capsys.readouterr().err
    assert words(5, ["input.jsonl", "more.jsonl"], "--overwrite") == 0


def test_w03_same_names_links_and_repeats(case: Case, tmp_path: Path) -> None:
    _, out = case("w03-same-file-names", ["data/*/part.jsonl", "data/2021/part.jsonl"])
    ids = _ids(out)
    assert len(ids) == len(set(ids)) == 9
    data = tmp_path / "w03-same-file-names/data"
    (data / "link.jsonl").symlink_to("2021/part.jsonl")
    (data / "broken.jsonl").symlink_to("nowhere.jsonl")
    (data / "loop").symlink_to(".", target_is_directory=True)
    code, out = case("w03-same-file-names", ["data/"])
    assert code == 0
    assert _ids(out) == ids
    files = [entry["file"] for entry in json.loads((out / "manifest.json").read_text())["inputs"]]
    assert files == ["2021/part.jsonl", "2022/part.jsonl", "2023/part.jsonl"]
    assert any("broken.jsonl" in name for name in json.loads((out / "run.json").read_text())["left_out"])


def test_w03_folders_of_other_names_change_no_id_and_no_text(case: Case, tmp_path: Path) -> None:
    paths = [f"data/{year}/part.jsonl" for year in (2023, 2021, 2022)]
    _, before = case("w03-same-file-names", paths)
    data = tmp_path / "w03-same-file-names/data"
    for folder in sorted(data.iterdir()):
        folder.rename(data / f"new-{folder.name}")
    _, after = case("w03-same-file-names", ["data/*/part.jsonl"])
    rows, renamed = table(before, "curated"), table(after, "curated")
    assert len(rows) == 9
    assert rows == renamed
    digests = [json.loads((out / "manifest.json").read_text())["content_digest"] for out in (before, after)]
    assert digests[0] == digests[1]


def test_w06_output_that_cannot_be_written(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case("w06-output-cannot-be-written", ["small.jsonl"])
    folder = tmp_path / "w06-output-cannot-be-written"
    (folder / "file").write_text("")
    for output in ("file", "file/below"):
        config = write_config(folder / "w.yaml", ["input.jsonl"], folder / output, [])
        assert run(config) == 2
        assert "is a file" in capsys.readouterr().err
    config = write_config(folder / "w.yaml", ["input.jsonl"], folder / "limited", [])
    command = f"ulimit -f 1024; exec {sys.executable} -m pipelines.cli run {config}"
    limited = subprocess.run(["bash", "-c", command], capture_output=True, check=False, text=True, timeout=60)
    assert limited.returncode == 1
    assert "cannot be written (File too large)" in limited.stderr
    assert "Traceback" not in limited.stderr
    assert not (folder / "limited/manifest.json").exists()
    assert run(config) == 0
    whole = write_config(folder / "v.yaml", ["input.jsonl"], folder / "whole", [])
    assert run(whole) == 0
    assert (folder / "limited/manifest.json").read_bytes() == (folder / "whole/manifest.json").read_bytes()


def test_l01_newlines(case: Case, shared: Path) -> None:
    _, out = case("l01-newlines", ["input.jsonl"], ["language"])
    expected = {"n5": ("de", 0.985233), "n6": ("en", 0.959747), "n7": ("fr", 0.965011)}
    for row in table(out, "curated"):
        label, score = expected.get(row["id"], ("fr", 0.968419))
        assert row["language"] == label
        assert row["language_score"] == pytest.approx(score, abs=1e-4)
        assert row["text"].count("\n") or row["id"] in ("n3", "n6", "n7", "n8")


def test_l02_nothing_to_judge(case: Case) -> None:
    _, out = case("l02-nothing-to-judge", ["input.jsonl"], ["language"])
    labels = {row["id"]: row["language"] for row in table(out, "curated") if row["language"]}
    assert labels == {"e2": "de", "e5": "fr", "e10": "en", "e13": "it"}
    _, out = case(
        "l02-nothing-to-judge", ["input.jsonl"], [{"language": {"keep": ["en", "ja", "km"], "minimum_score": 0.1}}]
    )
    assert _ids(out) == ["e10"]
    reasons = {row["record_id"]: (row["stage"], row["rule"]) for row in table(out, "ledger")}
    assert {reasons[f"e{n}"] for n in (1, 3, 4)} == {("input", "empty_text")}
    assert {reasons[f"e{n}"] for n in (6, 7, 8, 9, 11, 12)} == {("language", "undetermined")}


def test_q02_exact_boundaries(case: Case) -> None:
    _, out = case("q02-exact-boundaries", ["input.jsonl"], [{"gopher_quality": {"preset": "datatrove-0.10"}}])
    rules = {row["record_id"]: (row["rule"], row["value"], row["threshold"]) for row in table(out, "ledger")}
    assert rules["w49"] == ("minimum_words", 49, 50)
    assert rules["e0.40"] == ("maximum_ellipsis_lines", 0.4, 0.3)
    assert rules["sUP"] == ("minimum_stop_words", 0, 2)
    assert sorted(rules) == ["a0.79", "b0.95", "e0.40", "h0.11", "m10.02", "m2.98", "s1", "sUP", "w49"]


def test_d01_exact_copies_of_short_texts(case: Case) -> None:
    _, out = case("d01-shorter-than-a-shingle", ["input.jsonl"], ["exact_duplicates"])
    reasons = {row["record_id"]: (row["stage"], row["rule"]) for row in table(out, "ledger")}
    assert {record for record, reason in reasons.items() if reason == ("input", "empty_text")} == {"c1", "c2", "c3"}


@pytest.mark.parametrize("name", ["g01-unknown-keys", "g02-duplicate-keys"])
def test_g_config_faults_exit_2_before_any_work(
    shared: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    shutil.copytree(shared / "cases" / name, folder, copy_function=shutil.copyfile)
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    for path in sorted(folder.glob("*.yaml")):
        if path.name == "base.yaml":
            continue
        for command in ("run", "validate"):
            assert main([command, path.name]) == 2, path.name
            assert path.name in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_every_case_has_a_test(shared: Path) -> None:
    """A case is named by its number, such as r05, in the test of the stage or the reader that it is about."""
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.parent.rglob("*.py")]
    numbers = [path.name.partition("-")[0] for path in (shared / "cases").iterdir() if path.is_dir()]
    assert numbers
    assert [
        number for number in numbers if not any(re.search(rf"(?<![a-z0-9]){number}(?![0-9])", t) for t in texts)
    ] == []
