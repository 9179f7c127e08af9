"""Suite files, rows, items, and what ``thresher suites`` tells."""

from __future__ import annotations

import builtins
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import configs
from corpus.errors import UsageError
from corpus.sample import SUITE as SAMPLE_SUITE
from filters.contamination_files import index_digest
from filters.contamination_settings import ItemLengths
from filters.suite_check import check_suites, list_suites
from filters.suite_hub import fetch
from filters.suite_items import BenchmarkItem
from filters.suites import (
    Suite,
    all_files,
    content_digest,
    find_suites,
    hub_folder,
    load_items,
    read_suite,
)
from tests.filters.texts import SHARED

BENCHMARKS = SHARED / "data" / "benchmarks"
READY_MADE = sorted((Path(configs.__file__).parent / "suites").glob("*.yaml"))

ROWS: list[dict[str, Any]] = [
    {"key": "a", "question": "Which of the seven hills is the highest of all?", "answer": "the Quirinal"},
    {"key": "b", "question": "Who painted the ceiling of the old chapel?", "answer": None},
]


def suite_of(folder: Path, text: str) -> Suite:
    path = folder / "suite.yaml"
    path.write_text(text, encoding="utf-8")
    return read_suite(path)


def items_of(folder: Path, text: str) -> list[BenchmarkItem]:
    return load_items(all_files([suite_of(folder, text)]))


def jsonl(rows: list[Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.mark.parametrize(
    "name", ["items.jsonl", "items.jsonl.gz", "items.json", "items.csv", "items.tsv", "items.parquet"]
)
def test_all_formats_give_the_same_items(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    rows = [{name: value or "" for name, value in row.items()} for row in ROWS]
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif name.endswith("sv"):
        comma = "," if name.endswith("csv") else "\t"
        lines = [comma.join(f'"{value}"' for value in values) for values in (rows[0], *(row.values() for row in rows))]
        path.write_text("\ufeff" + "\r\n".join(lines) + "\r\n", encoding="utf-8")
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress(jsonl(ROWS).encode()))
    else:
        path.write_text(json.dumps(ROWS) if name.endswith("json") else jsonl(ROWS), encoding="utf-8")
    items = items_of(
        tmp_path, f"benchmarks: [{{name: quiz, files: {name}, id: key, question: question, answer: answer}}]"
    )
    assert items == [
        BenchmarkItem("quiz", "a", (ROWS[0]["question"],), "the Quirinal"),
        BenchmarkItem("quiz", "b", (ROWS[1]["question"],), ""),
    ]


def test_fields_choices_and_generated_ids(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(
        jsonl([{"q": ["first turn", "second turn"], "c": {"text": ["red", "blue"]}, "a": "B", "p": "a passage"}]),
        encoding="utf-8",
    )
    (tmp_path / "two.jsonl").write_text(jsonl([{"q": "x", "c": {"text": []}, "a": "", "p": 7}]), encoding="utf-8")
    text = "benchmarks: [{name: quiz, files: [two.jsonl, '*.jsonl'], question: q, choices: c.text, answer: a, "
    items = items_of(tmp_path, f"{text} answer_is: letter, context: p, expand: append}}]")
    assert items == [
        BenchmarkItem(
            "quiz",
            "one.jsonl#1",
            ("first turn\nsecond turn", "first turn\nsecond turn\nred", "first turn\nsecond turn\nblue"),
            "blue",
            ("red", "blue"),
            "a passage",
        ),
        BenchmarkItem("quiz", "two.jsonl#1", ("x",), "", (), "7"),
    ]


@pytest.mark.parametrize(
    ("answer_is", "value"), [("letter", "b"), ("letter", 2), ("zero_based", 1), ("one_based", "2")]
)
def test_answers_that_name_a_choice(answer_is: str, value: Any, tmp_path: Path) -> None:
    row = {"q": "The _ is blue.", "1": "sea", "2": "sky", "a": value}
    (tmp_path / "items.jsonl").write_text(jsonl([row]), encoding="utf-8")
    text = "benchmarks: [{name: quiz, files: items.jsonl, question: q, choices: ['1', '2'], answer: a, expand: fill, "
    (item,) = items_of(tmp_path, f"{text} answer_is: {answer_is}}}]")
    assert item == BenchmarkItem("quiz", "1", ("The sea is blue.", "The sky is blue."), "sky", ("sea", "sky"))


ENTRY = "name: quiz, files: items.jsonl, question: question"


@pytest.mark.parametrize(
    ("suite", "content", "message"),
    [
        (
            f"benchmarks:\n- {{{ENTRY},\n  answre: a}}",
            "",
            r"suite.yaml:3: benchmarks\[0\].answre: unknown setting here; did you mean answer\?",
        ),
        (
            f"benchmarks:\n- {{{ENTRY}, hub: {{id: o/n, revision: a,\n  colour: red}}}}",
            "",
            r"suite.yaml:3: benchmarks\[0\].hub.colour: unknown setting here; there are id, revision",
        ),
        (
            "benchmarks:\n- {name: quiz, files: items.jsonl}",
            "",
            r"suite.yaml:2: benchmarks\[0\].question: is missing; it has no default",
        ),
        (
            f"benchmarks:\n- {{{ENTRY},\n   expand: [1]}}",
            "",
            r"suite.yaml:3: benchmarks\[0\].expand: found \[1\] \(a list\); wanted none, append or fill",
        ),
        ("benchmarks: []", "", "suite.yaml:1: benchmarks: found .*; wanted entries, at least 1"),
        ("benchmark: []", "", r"suite.yaml:1: benchmark: unknown setting here; did you mean benchmarks\?"),
        ("# nothing", "", "suite.yaml:1: the suite is empty; it needs the key benchmarks"),
        ("\n- quiz", "", "suite.yaml:2: the suite is a list; it needs the key benchmarks"),
        ("a: [", "", "suite.yaml:1: not valid YAML"),
        (f"benchmarks:\n- {{{ENTRY}, id: a, id: b}}", "", "suite.yaml:2: .*the key 'id' stands twice"),
        (
            f"benchmarks:\n- {{{ENTRY}}}\n- {{{ENTRY}}}",
            "",
            r"suite.yaml:3: benchmarks\[1\].name: two benchmarks have the name quiz, the other on line 2",
        ),
        (f"benchmarks: [{{{ENTRY}, answer_is: letter}}]", "", "needs the fields answer and choices"),
        ("benchmarks: [{name: quiz, files: [none*.jsonl], question: q}]", "", r"files: none\*.jsonl matches no file"),
        (
            "benchmarks: [{name: quiz, files: suite.yaml, question: q}]",
            "",
            "suite.yaml: the suffix does not say the format",
        ),
        (
            "benchmarks: [{name: quiz, files: items.jsonl, question: qestion}]",
            '{"question": "x", "answer": "y"}',
            r"quiz: items.jsonl, row 1: question: there is no field qestion; the fields are question, answer; did you "
            r"mean question\?",
        ),
        (
            "benchmarks:\n- name: quiz\n  files: items.jsonl\n  question: a.b\n",
            '{"a": {"c": "x"}}',
            "suite.yaml:4: benchmark quiz: items.jsonl, row 1: question: there is no field a.b; the fields are a",
        ),
        ("benchmarks:\n- name: quiz\n  files: items.jsonl\n  question: q\n", "[", "suite.yaml:3: benchmark quiz: "),
        (f"benchmarks: [{{{ENTRY}}}]", '{"question": "x"}\n\n{"question"', "items.jsonl, row 3: not JSON"),
        (f"benchmarks: [{{{ENTRY}}}]", "[1]", "row 1: wanted an object of fields; found list"),
        (
            f"benchmarks: [{{{ENTRY}}}]",
            '{"question": {"a": 1}}',
            "row 1: question: wanted text; found an object with the fields a",
        ),
        (f"benchmarks: [{{{ENTRY}}}]", '{"question": "\\ud800"}', "row 1: question: half of a surrogate pair"),
        (
            f"benchmarks: [{{{ENTRY}, id: n}}]",
            '{"question": "x", "n": 1}\n{"question": "y", "n": "1"}',
            "row 2: id: the id 1 is that of items.jsonl, row 1 too",
        ),
        (
            f"benchmarks: [{{{ENTRY}, id: n}}]",
            '{"question": "x", "n": null}',
            "row 1: id: the field n of the id is empty",
        ),
        (
            f"benchmarks: [{{{ENTRY}, choices: c, answer: a, answer_is: letter}}]",
            '{"question": "x", "c": ["u", "v"], "a": "C"}',
            "row 1: answer: 'C' names none of 2 choices as letter",
        ),
        (
            f"benchmarks: [{{{ENTRY}, choices: c, expand: fill}}]",
            '{"question": "x", "c": []}',
            "row 1: expand: fill finds no blank",
        ),
        (
            f"benchmarks: [{{{ENTRY}, choices: c}}]",
            '{"question": "x", "c": "u"}',
            "row 1: choices: the field c holds str",
        ),
        (f"benchmarks: [{{{ENTRY}, format: json}}]", '{"a": [], "b": 1}', "found dict has the keys a, b; set records"),
        (f"benchmarks: [{{{ENTRY}, format: json, records: c}}]", '{"a": []}', "no key c; the file has the keys a"),
        (
            f"benchmarks: [{{{ENTRY}, format: csv}}]",
            "question,b\n1,2\n1\n",
            r"row 2: 1 cells where there are 2 columns \(question, b\)",
        ),
        (f"benchmarks: [{{{ENTRY}, format: csv}}]", "question,question\n", "has a column twice"),
        (f"benchmarks: [{{{ENTRY}, format: csv}}]", 'question\n"a" b\n', "row 1: "),
        (f"benchmarks: [{{{ENTRY}, format: parquet}}]", "PAR1", "not Parquet, or damaged"),
    ],
)
def test_bad_suites_are_named(suite: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        items_of(tmp_path, suite)
    assert str(tmp_path / "suite.yaml") in str(caught.value)


def test_bytes_that_are_no_text_and_damaged_files(tmp_path: Path) -> None:
    suite = f"benchmarks: [{{{ENTRY}}}]"
    (tmp_path / "items.jsonl").write_bytes(b'{"question": "x"}\n{"question": "\xff"}\n')
    with pytest.raises(UsageError, match=r"items.jsonl: line 2: not UTF-8"):
        items_of(tmp_path, suite)
    (tmp_path / "items.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(UsageError, match=r"items.jsonl.gz: cannot be read"):
        items_of(tmp_path, suite.replace("items.jsonl", "items.jsonl.gz"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_suite(tmp_path / "none.yaml")


def test_suites_by_path_and_glob(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(f"benchmarks: [{{{ENTRY}}}]", encoding="utf-8")
    second.write_text(f"benchmarks: [{{{ENTRY.replace('quiz', 'other')}, answer: answer}}]", encoding="utf-8")
    suites = find_suites([str(tmp_path / "*.yaml"), str(first)], "contamination.suites")
    assert [suite.path for suite in suites] == [first, second]
    assert [summary.name for summary in list_suites(suites)] == ["other", "quiz"]
    assert [benchmark.config.name for benchmark in all_files(suites)] == ["other", "quiz"]
    with pytest.raises(UsageError, match=r"contamination.suites: .*none.* matches no file"):
        find_suites([str(tmp_path / "none*.yaml")], "contamination.suites")
    second.write_text(first.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"b.yaml:1: benchmark quiz: it is declared in .*a.yaml:1 too"):
        find_suites([str(tmp_path / "*.yaml")], "contamination.suites")


def test_the_digest_is_of_content_not_of_place_or_order(tmp_path: Path) -> None:
    digests = []
    for name, suffix in (("one", ""), ("two", ""), ("three", "\n")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "items.jsonl").write_text(jsonl(ROWS) + suffix, encoding="utf-8")
        entries = [f"{{{ENTRY}}}", f"{{{ENTRY.replace('quiz', 'other')}}}"]
        suite = suite_of(folder, f"benchmarks: [{', '.join(entries[::-1] if name == 'two' else entries)}]")
        digests.append(content_digest(all_files([suite])))
        last = all_files([suite])
    assert digests[0] == digests[1] != digests[2]
    assert index_digest(last, ItemLengths()) != index_digest(last, ItemLengths(question_words=9))


def test_check_counts_every_item_once(tmp_path: Path) -> None:
    rows = [
        {"question": "Which of the seven hills of the old town is the highest and has the finest view?", "answer": "x"},
        {"question": "Name the smallest bone of the body", "answer": "stapes"},
        {"question": "Is it so?", "answer": "yes"},
        {"question": "...", "answer": "!"},
        {"question": " ", "answer": None},
        {"question": "no no no no no no", "answer": "no"},
        *({"question": "What is the mood of this text?", "answer": f"mood number {n}"} for n in range(9)),
    ]
    (tmp_path / "items.jsonl").write_text(jsonl(rows), encoding="utf-8")
    (summary,) = check_suites([suite_of(tmp_path, f"benchmarks: [{{{ENTRY}, answer: answer}}]")])
    assert (summary.items, summary.long, summary.short) == (15, 1, 10)
    assert dict(summary.uncheckable) == {
        "3": "too short without an answer, choices or context that tell something",
        "4": "no words",
        "5": "empty",
        "6": "too few distinct words",
    }
    assert summary.long + summary.short + len(summary.uncheckable) == summary.items
    assert (summary.with_answer, summary.with_choices, summary.with_context) == (14, 0, 0)
    assert summary.duplicates == ()
    assert summary.warnings == []
    (file,) = summary.files
    assert (file.name, file.bytes) == ("items.jsonl", (tmp_path / "items.jsonl").stat().st_size)


def test_all_benchmarks_that_cannot_be_used_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    entries = [ENTRY, ENTRY.replace("question: question", "question: q"), f"{ENTRY}, id: number"]
    lines = [f"- {{{entry.replace('quiz', f'quiz{number}')}}}\n" for number, entry in enumerate(entries)]
    with pytest.raises(UsageError) as caught:
        items_of(tmp_path, f"benchmarks:\n{''.join(lines)}")
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{tmp_path}/suite.yaml:3: benchmark quiz1: items.jsonl, row 1: question: ")
    assert second.startswith(f"{tmp_path}/suite.yaml:4: benchmark quiz2: items.jsonl, row 1: id: ")
    with pytest.raises(UsageError) as caught:
        items_of(tmp_path, f"benchmarks:\n{''.join(lines)}".replace("items.jsonl", "none.jsonl"))
    assert len(str(caught.value).splitlines()) == 3


def test_items_that_read_the_same_and_fields_that_no_item_has_are_told(tmp_path: Path) -> None:
    long = "Which of the seven hills of the old town is the highest and has the finest view?"
    rows = [{"question": long}, {"question": "Who painted it?"}, {"question": long.upper().replace(" ", "\n")}]
    (tmp_path / "items.jsonl").write_text(jsonl(rows), encoding="utf-8")
    suite = suite_of(tmp_path, f"benchmarks: [{{{ENTRY}, choices: options, license: MIT}}]")
    (summary,) = check_suites([suite])
    assert summary.duplicates == (("3", "1"),)
    assert summary.warnings == ["quiz: the suite declares choices, and no item has any; correct the name of the field"]
    assert summary.license == "MIT"
    without = suite_of(tmp_path, f"benchmarks: [{{{ENTRY}, choices: options}}]")
    assert summary.digest == content_digest(all_files([without])), "a licence is no part of what is looked for"
    (listed,) = list_suites([suite])
    assert (listed.items, listed.missing, listed.digest) == (3, None, summary.digest)


def test_hub_data_sets_are_asked_for_and_need_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: str(tmp_path / "cache"))
    suite = suite_of(
        tmp_path,
        "benchmarks: [{name: quiz, hub: {id: owner/quiz, revision: v1}, files: [data/*.jsonl], question: question}]",
    )
    (summary,) = list_suites([suite])
    assert summary.origin == "owner/quiz@v1"
    assert summary.missing is not None
    assert f"thresher suites fetch quiz --suites {suite.path}" in summary.missing
    with pytest.raises(UsageError, match="fetch owner/quiz at v1"):
        all_files([suite])
    hub = suite.config.benchmarks[0].hub
    assert hub is not None
    folder = hub_folder(hub) / "data"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text(jsonl(ROWS), encoding="utf-8")
    assert len(load_items(all_files([suite]))) == 2
    true_import = builtins.__import__

    def without_hub(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "huggingface_hub":
            raise ImportError(name)
        return true_import(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    with pytest.raises(UsageError, match=r"suite.yaml:1: benchmark quiz: .*pip install 'thresher\[cloud\]'"):
        fetch(hub, suite.benchmarks)


@pytest.mark.parametrize("path", READY_MADE, ids=lambda path: path.stem)
def test_ready_made_suites_can_be_read(path: Path) -> None:
    suite = read_suite(path)
    assert all((b.config.hub is None) == (path.stem == "original_files") for b in suite.benchmarks)
    assert all({"name", "files", "question"} <= set(b.places) for b in suite.benchmarks)


def test_the_suite_of_a_sample_can_be_used(tmp_path: Path) -> None:
    item = {"id": "python/bisect.py:insort", "question": "Insert item x in list a, and keep it sorted.", "answer": "b"}
    (tmp_path / "stdlib.jsonl").write_text(jsonl([item]), encoding="utf-8")
    suite = suite_of(tmp_path, SAMPLE_SUITE)
    (summary,) = check_suites([suite])
    assert (summary.name, summary.license, summary.items, summary.with_answer) == ("stdlib", "PSF-2.0", 1, 1)
    (tmp_path / "stdlib.jsonl").write_text("", encoding="utf-8")
    (summary,) = check_suites([suite])
    assert (summary.items, summary.long, summary.uncheckable) == (0, 0, ())


def test_ready_made_suites_have_names_of_their_own() -> None:
    suites = [str(path) for path in READY_MADE if path.stem != "original_files"]
    names = [benchmark.name for suite in find_suites(suites, "suites") for benchmark in suite.config.benchmarks]
    wanted = (
        "gsm8k math_500 humaneval mbpp mmlu mmlu_pro arc_challenge hellaswag winogrande piqa boolq truthfulqa ifeval"
    )
    assert {*wanted.split(), "bbh", "gpqa", "mt_bench", "kobest_boolq", "klue_sts", "kmmlu"} <= set(names)


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the shared data are not beside the repository")
def test_the_fields_of_the_original_files_exist(tmp_path: Path) -> None:
    (ready_made,) = (path for path in READY_MADE if path.stem == "original_files")
    text = ready_made.read_text(encoding="utf-8").replace("files: benchmarks/", f"files: {BENCHMARKS.resolve()}/")
    counts = {summary.name: summary.items for summary in check_suites([suite_of(tmp_path, text)])}
    assert counts == {
        "bbh": 1437,
        "gsm8k": 1319,
        "humaneval": 164,
        "ifeval": 541,
        "klue_sts": 519,
        "kobest_boolq": 1404,
        "kobest_copa": 1000,
        "kobest_hellaswag": 500,
        "kobest_sentineg": 397,
        "mbpp": 974,
        "mmlu": 505,
        "mt_bench": 80,
        "truthfulqa": 817,
    }
