"""The whole tool through its command line, on real files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines
from pipelines.cli import main
from tests.pipelines.corpora import STAGES, report, run, table, write_config, write_corpus, write_manifest


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def finished(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    config = write_config(
        folder / "c.yaml", corpus, folder / "run", STAGES, id_column="id", source_column="source", batch_rows=130
    )
    assert run(config) == 0
    return folder / "run"


def test_every_record_is_accounted_for(finished: Path) -> None:
    found = report(finished)
    assert found["records"]["read"] == 1203
    assert found["records"]["dead"] == 3
    ids = Counter(row["record_id"] for row in table(finished, "signals"))
    left = Counter(row["record_id"] for row in table(finished, "ledger"))
    kept = Counter(row["record_id"] for row in table(finished, "curated"))
    assert ids == left + kept
    assert sum(kept.values()) == found["records"]["kept"] > 0
    assert [(row["position"] > 0, row["error"]) for row in table(finished, "dead_letters")] == [
        (True, "malformed_json"),
        (True, "null_text"),
        (True, "not_an_object"),
    ]
    by_source = found["by_source"]
    assert set(by_source) == {"web", "books", "news", "wiki", "c.jsonl"}
    assert sum(entry["read"] for entry in [*by_source.values(), found["no_source"]]) == 1203


def test_stages_hand_records_on_in_their_order(finished: Path) -> None:
    stages = report(finished)["stages"]
    assert [stage["name"] for stage in stages] == ["input", "language", "gopher_quality", "exact_duplicates"]
    for stage, following in zip(stages, stages[1:], strict=False):
        assert following["entered"] == stage["entered"] - stage["dropped"]
        assert following["characters_in"] == stage["characters_out"]
    assert all(stage["dropped"] > 0 for stage in stages)
    assert list(stages[1]["rules"]) == ["undetermined", "keep", "minimum_score"]


def test_ledger_rows_follow_from_signals(finished: Path) -> None:
    signals = {(row["file"], row["position"]): row for row in table(finished, "signals")}
    for row in table(finished, "ledger"):
        found = signals[row["file"], row["position"]]
        assert not found["kept"]
        if row["stage"] == "gopher_quality" and row["rule"] == "minimum_words":
            assert row["value"] == found["gopher_quality.words"] < row["threshold"] == 20
        if row["rule"] == "keep":
            assert json.loads(row["detail"]) == {"label": found["language.label"]}
        if row["stage"] == "exact_duplicates":
            assert found["exact_duplicates.cluster_size"] > 1


def test_kept_duplicates_come_first_in_the_total_order(finished: Path) -> None:
    kept = {row["record_id"]: row for row in table(finished, "curated")}
    hashes = [row["content_hash"] for row in table(finished, "curated")]
    assert len(set(hashes)) == len(hashes)
    dropped = [row for row in table(finished, "ledger") if row["stage"] == "exact_duplicates"]
    for row in dropped:
        assert kept[row["related_id"]]["content_hash"] == row["content_hash"]
        assert row["related_id"] <= row["record_id"]
        detail = json.loads(row["detail"])
        assert set(detail) == {"file", "position"}


def test_curated_columns(finished: Path) -> None:
    (path,) = (finished / "curated").iterdir()
    schema = pq.read_schema(path)
    assert schema.names == [
        "text", "id", "source", "quality", "tags", "record_id", "content_hash", "language", "language_score",
        "cluster_id", "cluster_size", "copy_index",
    ]  # fmt: skip
    assert {str(schema.field(name).type) for name in ("text", "id", "record_id", "content_hash")} == {"string"}
    assert str(schema.field("quality").type) == "double"
    found = duckdb.sql(f"select count(*), min(language), max(language_score) from '{finished}/curated/*.parquet'")
    ((count, language, score),) = found.fetchall()
    assert count == report(finished)["records"]["kept"]
    assert language == "en"
    assert score <= 1.0


@pytest.mark.parametrize("options", [["--direct_num_workers=2"], ["--runner=DirectRunner"], ["--direct_num_workers=5"]])
def test_same_bytes_with_other_workers_and_order_of_files(
    corpus: list[str], finished: Path, tmp_path: Path, options: list[str]
) -> None:
    config = write_config(
        tmp_path / "c.yaml", corpus[::-1], tmp_path / "elsewhere", STAGES, id_column="id", source_column="source",
        batch_rows=130,
    )  # fmt: skip
    assert run(config, *options) == 0
    assert (tmp_path / "elsewhere/manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()


def test_batch_sizes_do_not_change_the_records(corpus: list[str], finished: Path, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "c.yaml", corpus, tmp_path / "run", STAGES, id_column="id", source_column="source",
        batch_rows=1000, target_file_bytes=1 << 20,
    )  # fmt: skip
    assert run(config) == 0
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (finished, tmp_path / "run")]
    assert manifests[0]["content_digest"] == manifests[1]["content_digest"]
    assert manifests[0]["inputs"] == manifests[1]["inputs"]
    assert table(finished, "ledger") == table(tmp_path / "run", "ledger")


def test_verify_finds_what_was_changed(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(finished)]) == 0
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (copy / "curated" / "extra.parquet").write_bytes(b"")
    assert main(["verify", str(copy)]) == 3
    assert "curated/extra.parquet is not in the manifest" in capsys.readouterr().err
    (copy / "curated" / "extra.parquet").unlink()
    (path,) = (copy / "ledger").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert main(["verify", str(copy)]) == 3
    assert "SHA-256" in capsys.readouterr().err
    path.write_bytes(whole[:-1])
    assert main(["verify", str(copy)]) == 3
    assert "bytes" in capsys.readouterr().err
    path.unlink()
    assert main(["verify", str(copy)]) == 3
    assert "is missing" in capsys.readouterr().err


def _rewrite(folder: Path, path: Path, changed: pa.Table) -> None:
    """Replace a Parquet file, and make the manifest fit it."""
    pq.write_table(changed, path)
    data = path.read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["outputs"]:
        if entry["file"] == path.relative_to(folder).as_posix():
            entry.update(rows=changed.num_rows, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    write_manifest(folder, manifest)


def test_verify_hashes_the_texts_again(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (path,) = (copy / "curated").iterdir()
    curated = pq.read_table(path)
    texts = curated["text"].to_pylist()
    texts[3] += " And more."
    _rewrite(copy, path, curated.set_column(0, "text", pa.array(texts)))
    assert main(["verify", str(copy)]) == 3
    assert "has a text that is not the one of its content_hash" in capsys.readouterr().err


def test_verify_counts_again(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger that lost a row is found even where the manifest was made to fit it."""
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    (path,) = (copy / "ledger").iterdir()
    _rewrite(copy, path, pq.read_table(path).slice(1))
    assert main(["verify", str(copy)]) == 3
    assert "in the ledger" in capsys.readouterr().err


def test_a_finished_run_is_reported_not_repeated(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", ["exact_duplicates"])
    assert run(config) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert run(config) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(config, "--set", "batch_rows=77") == 2
    assert "batch_rows: 8192 there, 77 now" in capsys.readouterr().err
    assert run(config, "--set", "batch_rows=77", "--overwrite", "--clean") == 0
    assert not (tmp_path / "run/staging").exists()
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0


def test_touched_but_equal_input_is_the_same_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n{"text": "two"}\n')
    config = write_config(tmp_path / "c.yaml", [str(path)], tmp_path / "run", [])
    assert run(config) == 0
    path.write_text('{"text": "one"}\n{"text": "two"}\n')
    assert run(config) == 0
    path.write_text('{"text": "one"}\n{"text": "twx"}\n')
    assert run(config) == 2
    assert "a.jsonl" in capsys.readouterr().err
    assert run(config, "--overwrite") == 0
    assert [row["text"] for row in table(tmp_path / "run", "curated")] == ["one", "twx"]


def test_overwrite_removes_runs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    config = write_config(tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "home", [])
    for options in ([], ["--overwrite"]):
        assert run(config, *options) == 2
        assert "holds no run" in capsys.readouterr().err
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_limit_and_sample(corpus: list[str], tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", [], id_column="id")
    assert run(config, "--limit=7", "--output", str(tmp_path / "limit")) == 0
    assert report(tmp_path / "limit")["records"]["read"] == 7
    assert [row["position"] for row in table(tmp_path / "limit", "signals")] == list(range(7))
    assert run(config, "--sample=0.2", "--output", str(tmp_path / "sample")) == 0
    assert 150 < report(tmp_path / "sample")["records"]["read"] < 330


def test_pairs_and_chats(tmp_path: Path) -> None:
    words = "the answer to that is a long one and you have to read it with care because it goes on"
    pairs = [
        {"prompt": "Why?", "response": words},
        {"prompt": "Why?", "response": words},
        {"prompt": "How?", "response": words},
        {"prompt": "When?", "response": " "},
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    chats = [
        {"messages": [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["response"]}]}
        for row in pairs
    ]
    chats.append({"messages": [{"role": "user", "content": "Hello?"}]})
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats))
    stages = [{"language": {"keep": ["en"]}}, "exact_duplicates"]
    config = write_config(
        tmp_path / "p.yaml", [str(tmp_path / "p.jsonl")], tmp_path / "pairs", stages, prompt_column="prompt",
        response_column="response",
    )  # fmt: skip
    assert run(config) == 0
    assert [row["prompt"] for row in table(tmp_path / "pairs", "curated")] == ["Why?", "How?"]
    config = write_config(
        tmp_path / "m.yaml", [str(tmp_path / "m.jsonl")], tmp_path / "chats", stages, messages_column="messages"
    )
    assert run(config) == 0
    curated = table(tmp_path / "chats", "curated")
    assert [row["messages"][0]["content"] for row in curated] == ["Why?", "How?"]
    assert [row["content_hash"] for row in curated] == [
        row["content_hash"] for row in table(tmp_path / "pairs", "curated")
    ]
    assert [row["error"] for row in table(tmp_path / "chats", "dead_letters")] == ["no_assistant_turn"]


def test_a_leader_that_a_later_stage_dropped_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "too short"}\n{"text": "too short"}\n')
    config = write_config(
        tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", ["exact_duplicates", "gopher_quality"]
    )
    assert run(config) == 0
    first, second = table(tmp_path / "run", "ledger")
    assert first["stage"] == "gopher_quality"
    assert second["related_id"] == first["record_id"]
    assert json.loads(second["detail"])["later_dropped_by"] == "gopher_quality"


def test_repeated_ids_are_counted_and_can_fail_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": name, "text": f"text {number}"} for number, name in enumerate("abbacb")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = write_config(tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", [], id_column="id")
    assert run(config) == 0
    assert report(tmp_path / "run")["repeated_ids"] == 3
    assert report(tmp_path / "run")["records"]["kept"] == 6
    assert run(config, "--set", "input.duplicate_ids=fail", "--output", str(tmp_path / "fail")) == 1
    assert "3 records repeat an id, the first of them b" in capsys.readouterr().err
    assert not (tmp_path / "fail/manifest.json").exists()


def test_too_many_errors_fail_a_run(corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", [], max_errors=2)
    assert run(config) == 1
    assert "3 dead letters and failed files, more than input.max_errors (2)" in capsys.readouterr().err
    assert not (tmp_path / "run/manifest.json").exists()


def test_a_column_of_ours_in_the_input_is_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one", "language": "Klingon", "record_id": 7}\n')
    config = write_config(tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", ["language"])
    assert run(config) == 0
    (row,) = table(tmp_path / "run", "curated")
    assert (row["input_language"], row["input_record_id"], row["record_id"]) == ("Klingon", 7, "a.jsonl#0")
    assert "the column language of the input is called input_language" in " ".join(capsys.readouterr().out.split())


def test_from_python(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "one"}\n')
    config = {
        "input": {"files": [str(tmp_path / "a.jsonl")]},
        "output": str(tmp_path / "run"),
        "stages": ["exact_duplicates"],
    }
    done = pipelines.run(config, ["--direct_num_workers=1"])
    assert done.report["records"] == {"read": 2, "kept": 1, "dropped": 1, "dead": 0}
    assert done.report["duplicates"]["exact_duplicates"]["clusters"] == 1


def test_plan_says_what_a_run_would_do(corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", STAGES)
    assert main(["plan", str(config), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["passes"] == [["language", "gopher_quality"], ["exact_duplicates"]]
    assert plan["files"] == 3
    assert not (tmp_path / "run").exists()
    assert main(["plan", str(config)]) == 0
    assert "pass 1: language, gopher_quality" in capsys.readouterr().out


def test_unknown_options_are_errors(corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", [])
    assert run(config, "--overwrit") == 2
    assert "did you mean --overwrite?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.raises(SystemExit, match="2"):
        main(["verify", "somewhere", "--nothing"])


def test_no_folder_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("report", "verify"):
        assert main([command, str(tmp_path / "nothing")]) == 2
        assert "is it the folder of a finished run?" in capsys.readouterr().err


def test_what_is_staged_is_not_read_again(corpus: list[str], finished: Path, tmp_path: Path) -> None:
    """Every batch, its dead letters included, comes back from staging; the input need not even be readable."""
    copy = tmp_path / "run"
    config = write_config(
        tmp_path / "c.yaml", corpus, copy, STAGES, id_column="id", source_column="source", batch_rows=130
    )
    shutil.copytree(finished, copy)
    for path in [*copy.glob("*.json"), *(copy / "staging/done").iterdir(), *copy.glob("*/part-*")]:
        path.unlink()
    staged = {path: path.stat().st_mtime_ns for path in (copy / "staging/records").iterdir()}
    assert run(config) == 0
    assert staged == {path: path.stat().st_mtime_ns for path in (copy / "staging/records").iterdir()}
    assert (copy / "manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()


def test_part_of_an_item_is_staged_again_with_the_same_bytes(corpus: list[str], finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    config = write_config(
        tmp_path / "c.yaml", corpus, copy, STAGES, id_column="id", source_column="source", batch_rows=130
    )
    shutil.copytree(finished, copy)
    (copy / "manifest.json").unlink()
    before = {path.name: path.read_bytes() for path in (copy / "staging/records").iterdir()}
    for path in [*(copy / "staging/done").iterdir(), *sorted((copy / "staging/records").iterdir())[1::3]]:
        path.unlink()
    assert run(config) == 0
    assert before == {path.name: path.read_bytes() for path in (copy / "staging/records").iterdir()}
    assert (copy / "manifest.json").read_bytes() == (finished / "manifest.json").read_bytes()


def test_a_lost_or_doubled_batch_fails_the_run(
    corpus: list[str],
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from pipelines import steps

    listed = steps.items_by_work
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", STAGES)
    for change in (lambda items: items[1:], lambda items: [*items, items[0]]):
        monkeypatch.setattr(steps, "items_by_work", lambda plan, change=change: change(listed(plan)))
        assert run(config) == 1
        assert "are not all there, once each" in capsys.readouterr().err
        assert not (tmp_path / "run/manifest.json").exists()


def test_records_that_left_earlier_take_no_part_in_a_later_corpus_stage(tmp_path: Path) -> None:
    """The first copy of each text is too short for the rule between the two stages, so the other text leads."""
    texts = [("a", "one two"), ("b", "one two"), ("c", "one two three"), ("d", "one two three")]
    rows = [{"id": name, "prompt": "same", "response": text} for name, text in texts]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rules = dict.fromkeys(
        ("minimum_mean_word_length", "maximum_mean_word_length", "minimum_alphabetic_words", "minimum_stop_words"),
        "off",
    )
    stages = [
        "exact_duplicates",
        {"gopher_quality": {"minimum_words": 3, **rules}},
        {"exact_duplicates": {"name": "prompts", "field": "prompt"}},
    ]
    config = write_config(
        tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", stages, id_column="id",
        prompt_column="prompt", response_column="response",
    )  # fmt: skip
    assert run(config) == 0
    assert [row["record_id"] for row in table(tmp_path / "run", "curated")] == ["c"]
    left = {row["record_id"]: (row["stage"], row["related_id"]) for row in table(tmp_path / "run", "ledger")}
    assert left == {"a": ("gopher_quality", None), "b": ("exact_duplicates", "a"), "d": ("exact_duplicates", "c")}
    signals = {row["record_id"]: row["prompts.cluster_size"] for row in table(tmp_path / "run", "signals")}
    assert signals == {"a": None, "b": None, "c": 1, "d": None}
    assert report(tmp_path / "run")["duplicates"]["exact_duplicates"]["leaders_dropped_later"] == 1


def test_counts_of_rules(tmp_path: Path) -> None:
    """``first`` counts the rule that dropped a record, ``alone`` the records that only it would drop."""
    words = "the and have been there with people along the whole river"
    rows = [words, "x " * 30, "ab cd"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    stages = [{"gopher_quality": {"minimum_words": 5}}]
    config = write_config(tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", stages)
    assert run(config) == 0
    rules = report(tmp_path / "run")["stages"][1]["rules"]
    assert rules["minimum_words"] == {"first": 1, "alone": 0}
    assert rules["minimum_mean_word_length"] == {"first": 1, "alone": 0}
    assert rules["minimum_stop_words"] == {"first": 0, "alone": 0}


def test_the_content_digest_follows_every_column(tmp_path: Path) -> None:
    digests = set()
    for number, row in enumerate(
        [
            {"text": "one", "n": 1, "tags": ["a"]},
            {"text": "one", "n": 2, "tags": ["a"]},
            {"text": "one", "n": 1, "tags": ["b"]},
            {"text": "two", "n": 1, "tags": ["a"]},
            {"text": "one", "m": 1, "tags": ["a"]},
        ]
    ):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps(row) + "\n")
        config = write_config(tmp_path / "c.yaml", [str(path)], tmp_path / f"run-{number}", [])
        assert run(config) == 0
        digests.add(json.loads((tmp_path / f"run-{number}/manifest.json").read_text())["content_digest"])
    assert len(digests) == 5


def test_as_many_errors_as_allowed_are_fine(corpus: list[str], tmp_path: Path) -> None:
    assert run(write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", [], max_errors=3)) == 0


def test_other_files_in_an_output_folder_are_never_touched(
    corpus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "run/staging/thesis.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    config = write_config(tmp_path / "c.yaml", corpus, tmp_path / "run", [])
    for options in ([], ["--overwrite"]):
        assert run(config, *options) == 2
        assert "staging/thesis.txt" in capsys.readouterr().err
    theirs.unlink()
    assert run(config) == 0
    kept = [theirs, tmp_path / "run/notes/.tmp-mine", tmp_path / "run/curated/notes.txt"]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    assert run(config, "--overwrite", "--set", "batch_rows=500") == 0
    assert main(["clean", str(tmp_path / "run")]) == 0
    assert [path.read_text() for path in kept] == ["mine"] * 3
    assert [path.name for path in (tmp_path / "run/staging").iterdir()] == ["thesis.txt"]


def test_an_output_folder_is_not_read_as_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data/run").mkdir(parents=True)
    (tmp_path / "data/run/a.jsonl").write_text('{"text": "one"}\n')
    config = write_config(tmp_path / "c.yaml", [str(tmp_path / "data")], tmp_path / "data/run", [])
    assert run(config) == 2
    assert "lies in it" in capsys.readouterr().err


def test_names_with_brackets_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": "one", "source": "[/INST]"}, {"text": "two", "source": "[bold]web"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = write_config(
        tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", [], source_column="source"
    )
    assert run(config) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "[/INST]" in text
    assert "[bold]web" in text


@pytest.mark.parametrize(
    ("path", "value", "finding"),
    [
        (("config_hash",), "00", "config_hash"),
        (("config", "batch_rows"), 7, "config_hash"),
        (("inputs", 0, "rows"), 1, "the inputs have"),
        (("mixture", "sources", "web"), 1, "the mixture of sources"),
        (("records", "kept"), 1, "kept"),
    ],
)
def test_verify_finds_a_manifest_that_disagrees_with_itself(
    finished: Path,
    tmp_path: Path,
    path: tuple[object, ...],
    value: object,
    finding: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    inner = manifest
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    write_manifest(copy, manifest)
    assert main(["verify", str(copy)]) == 3
    assert finding in capsys.readouterr().err


def test_columns_that_no_record_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    config = write_config(
        tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", [], id_column="key", source_column="site"
    )
    assert run(config) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "no record has a value in key, the column that input.id_column names" in printed
    assert "no record has a value in site, the column that input.source_column names" in printed
    assert run(config, "--set", "input.text_column=body", "--output", str(tmp_path / "none")) == 1
    assert "no record has the column body" in capsys.readouterr().err


def test_most_records_are_dead_letters(tmp_path: Path) -> None:
    lines = [{"text": "one"}, {"text": None}, {"text": None}, {"text": 4}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert run(write_config(tmp_path / "c.yaml", [str(tmp_path / "a.jsonl")], tmp_path / "run", [])) == 0
    assert report(tmp_path / "run")["records"]["dead"] == 3
    warning = json.loads((tmp_path / "run/run.json").read_text())["warnings"][-1]
    assert warning == "most records are dead letters: 2 by null_text; see dead_letters/"


def test_mistakes_end_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for command in ("report", "verify"):
        assert main([command, str(tmp_path / "file")]) == 2
        assert "is it the folder of a finished run?" in capsys.readouterr().err
    (tmp_path / "odd").mkdir()
    write_manifest(tmp_path / "odd", {})
    assert main(["verify", str(tmp_path / "odd")]) == 1
    assert "this should not happen" in capsys.readouterr().err


def test_declared_columns_have_their_types_whatever_the_data_shows(tmp_path: Path) -> None:
    rows = [{"text": "one", "x": 1, "m": {"k": 3}, "n": None}, {"text": "two", "x": 2, "m": [1], "n": None}]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows) + '{"text": "three", "x": "no"}\n'
    )
    columns = {"x": "float64", "m": "json", "n": "int64"}
    files = [str(tmp_path / "a.jsonl")]
    config = write_config(tmp_path / "c.yaml", files, tmp_path / "run", [], columns=columns)
    assert run(config) == 0
    (path,) = (tmp_path / "run/curated").iterdir()
    schema = pq.read_schema(path)
    assert [str(schema.field(name).type) for name in columns] == ["double", "string", "int64"]
    assert [row["m"] for row in table(tmp_path / "run", "curated")] == ['{"k":3}', "[1]"]
    assert [row["error"] for row in table(tmp_path / "run", "dead_letters")] == ["misfit_column"]
