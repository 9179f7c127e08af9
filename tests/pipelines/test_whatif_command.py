"""What-if against runs with the other settings: exact numbers are those of the run, and bounds contain them."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from pipelines.cli import main
from pipelines.whatif_command import sweep, whatif
from tests.pipelines.corpora import documents, report, run, write_config
from tests.pipelines.duplicate_runs import write_rows

COLUMNS = {"id_column": "id", "source_column": "source", "batch_rows": 90}
# Every pair that is similar enough is found, in any corpus.
NEAR = {"threshold": 0.6, "shingle_tokens": 3, "duplication_budget": 0.1, "protect": ["wiki"]}
STAGES: list[Any] = [
    {"language": {"minimum_score": 0.5}},
    {"gopher_quality": {"minimum_words": 20, "by_language": {"de": {"minimum_stop_words": "off"}}}},
    {"c4_quality": {"minimum_sentences": "off"}},
    {"length": {"name": "size", "minimum_characters": 60}},
    {"near_duplicates": NEAR},
    {"length": {"minimum_words": 40}},
    {"column": {"column": "quality", "keep": {"best_fraction": 0.9, "per": "source"}}},
]


def corpus(count: int = 500) -> list[dict[str, Any]]:
    """Return documents with lines that c4_quality cuts, and with near-duplicates."""
    choose = random.Random(5)
    rows = documents(count, seed=3)
    for row in rows:
        words = row["text"].split()
        if words and choose.random() < 0.3:
            other = choose.choice(rows)["text"].split() or words
            words = [*other[: len(other) - 3], *choose.choices(words, k=3)]
        row["text"] = " ".join(words) + ("." if words else "")
        if words and choose.random() < 0.4:
            row["text"] += f"\nclick here {choose.randrange(1000)}\n" + " ".join(words[: choose.randrange(5, 30)]) + "."
        row["quality"] = round(row["quality"], 2) if choose.random() < 0.95 else None
    return rows


Fresh = Callable[[Sequence[str]], Path]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """Run the config with other settings; each combination once."""
    folder = tmp_path_factory.mktemp("whatif")
    files = write_rows(folder / "corpus", corpus())
    done: dict[tuple[str, ...], Path] = {}

    def run_with(sets: Sequence[str]) -> Path:
        key = tuple(sets)
        if key not in done:
            output = folder / f"run-{len(done)}"
            config = write_config(folder / "config.yaml", files, output, STAGES, **COLUMNS)
            options = [text for one in sets for text in ("--set", one)]
            assert run(config, *options) == 0
            done[key] = output
        return done[key]

    return run_with


def agrees(told: Any, found: int) -> bool:
    """Say whether a number is the one of a run, or bounds that contain it."""
    if told is None:
        return True
    return bool(told["at_least"] <= found <= told["at_most"]) if isinstance(told, Mapping) else bool(told == found)


def check(then: Mapping[str, Any], folder: Path) -> int:
    """Compare with a run; returns how many of the numbers are exact."""
    found = report(folder)
    exact = 0
    pairs: list[tuple[str, Any, int]] = [
        (name, then["records"][name], found["records"][name]) for name in ("read", "kept", "dropped", "dead")
    ]
    pairs.append(("characters", then["characters"], found["stages"][-1]["characters_out"]))
    for told, stage in zip(then["stages"], found["stages"], strict=True):
        pairs += [
            (f"{stage['name']} {name}", told[name], stage[name])
            for name in ("entered", "dropped", "dead", "characters_out")
        ]
        rules: Counter[str] = Counter()
        for rule, entry in stage["rules"].items():
            # A report names what cannot be scored by the reason.
            rules["unscorable" if rule == "null" else rule] += entry["first"]
        pairs += [(f"{stage['name']}/{rule}", told["rules"].get(rule, 0), first) for rule, first in rules.items()]
        for name, value in told.get("duplicates", {}).items():
            assert value == found["duplicates"][stage["name"]][name], (stage["name"], name)
    for name, told, value in pairs:
        assert agrees(told, value), (name, told, value)
        exact += isinstance(told, int)
    return exact * 100 // len(pairs)


BEHIND = {"near_duplicates", "length", "column"}
QUESTIONS: list[tuple[list[str], set[str]]] = [
    # Limits and keep rules of the last pass, looser and tighter, and a budget that keeps fewer copies.
    (["length.minimum_words=55", "column.keep.best_fraction=0.5"], set()),
    (["column.keep={at_least: 0.4}", "column.unscorable=keep", "near_duplicates.duplication_budget=0.02"], set()),
    # Copies that stay under a larger budget were not measured by the stages behind.
    (["near_duplicates.duplication_budget=0.3"], {"length", "column"}),
    (["near_duplicates.max_copies=1", "near_duplicates.priority=[gopher_quality.words, length]"], {"length", "column"}),
    # Tighter ones before a stage that needs all records: its edges hold for fewer records, too.
    (["gopher_quality.minimum_words=61", "size.minimum_characters=200"], {"length", "column"}),
    # Looser ones let records on that no stage behind has seen.
    (
        ["gopher_quality.minimum_words=5", "gopher_quality.minimum_stop_words=off"],
        {"near_duplicates", "length", "column"},
    ),
    # A stage that edits in another way.
    (["c4_quality.minimum_line_words=12"], {"c4_quality", "size", *BEHIND}),
]


@pytest.mark.parametrize(("sets", "unknown"), QUESTIONS, ids=lambda value: " ".join(value))
def test_numbers_are_those_of_a_run_or_contain_them(fresh: Fresh, sets: list[str], unknown: set[str]) -> None:
    result = whatif(str(fresh([])), sets)
    exact = check(result["then"], fresh(sets))
    stages = result["then"]["stages"]
    assert {stage["name"] for stage in stages if "needs_select" in stage} == unknown
    # Which of equal scores stays is not stored, so that of some sums of characters only bounds are known.
    assert unknown or exact > 90
    for stage in stages:
        if stage["name"] not in unknown:
            assert isinstance(stage["dropped"], int)


def test_budgets_from_signals_alone(fresh: Fresh, tmp_path: Path) -> None:
    cleaned = shutil.copytree(fresh([]), tmp_path / "run")
    assert main(["clean", str(cleaned)]) == 0
    for sets in (["near_duplicates.duplication_budget=0.3"], ["near_duplicates.max_copies=0"]):
        then = whatif(str(cleaned), sets)["then"]
        check(then, fresh(sets))
        duplicates = next(stage for stage in then["stages"] if stage["name"] == "near_duplicates")
        assert isinstance(duplicates["dropped"], int)
    told = whatif(str(cleaned), ["near_duplicates.priority=gopher_quality.words"])
    assert not told["staged"]
    assert told["then"]["stages"][5]["needs_select"] == ["its verified edges are not in the run folder any more"]


def test_the_run_itself_is_told_as_its_report_does(fresh: Fresh, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["length.minimum_words=10", "gopher_quality.maximum_words=90"]
    assert main(["whatif", str(fresh([])), "--json", *(part for one in sets for part in ("--set", one))]) == 0
    result = json.loads(capsys.readouterr().out)
    assert check(result["now"], fresh([])) == 100
    assert [alone["set"] for alone in result["alone"]] == sets
    assert result["alone"] == [{"set": one, **whatif(str(fresh([])), [one])["then"]} for one in sets]
    assert main(["whatif", str(fresh([])), "--set", sets[0]]) == 0
    printed = capsys.readouterr().out
    assert "kept" in printed
    assert f"{result['now']['records']['kept']:,}" in printed


def test_a_sweep_is_many_questions_at_once(fresh: Fresh, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(fresh([]))
    result = sweep(folder, "length.minimum_words=30:60:3", objective="gopher_quality.words")
    assert [point["value"] for point in result["points"]] == list(range(30, 61, 3))
    for point in result["points"]:
        then = whatif(folder, [f"length.minimum_words={point['value']}"], "gopher_quality.words")["then"]
        assert {name: then[name] for name in ("records", "characters", "mean")}.items() <= point.items()
    assert any(point["pareto"] for point in result["points"])
    loosened = sweep(folder, "column.keep.best_fraction=0.1:0.3:0.1")
    assert [point["value"] for point in loosened["points"]] == [0.1, 0.2, 0.3]
    kept = [point["records"]["kept"] for point in loosened["points"]]
    assert kept == sorted(kept)
    assert len(set(kept)) == 3
    # Neither the clusters nor the records that enter are found anew, but where they are others.
    for sets in ([], ["size.minimum_characters=200"], ["near_duplicates.priority=gopher_quality.words"]):
        budgets = sweep(folder, "near_duplicates.duplication_budget=0.05:0.35:0.1", sets)["points"]
        for point in budgets:
            then = whatif(folder, [*sets, f"near_duplicates.duplication_budget={point['value']}"])["then"]
            assert then["records"] == point["records"]
        assert len({str(point["records"]) for point in budgets}) > 2
    assert main(["whatif", folder, "--sweep", "length.minimum_words=30:60:10"]) == 0
    assert "█" in capsys.readouterr().out


def test_a_stage_that_found_no_duplicates_answers(tmp_path: Path) -> None:
    texts = ["one two three four five six", "other words stand here in this line"]
    pq.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    stages = [{"length": {"minimum_words": 1}}, "near_duplicates"]
    config = write_config(tmp_path / "c.yaml", [str(tmp_path / "a.parquet")], tmp_path / "run", stages)
    assert run(config) == 0
    for one, kept in (
        ("near_duplicates.duplication_budget=0.5", 2),
        ("near_duplicates.max_copies=1", 2),
        ("length.minimum_words=7", 1),
        ("length.minimum_words=9", 0),
    ):
        then = whatif(str(tmp_path / "run"), [one])["then"]
        assert then["records"]["kept"] == kept
        assert then["stages"][2]["duplicates"]["leaders"] == kept


def test_means_are_those_of_the_kept_records(fresh: Fresh) -> None:
    sets = ["length.minimum_words=55", "column.keep=off"]
    then = whatif(str(fresh([])), sets, "gopher_quality.words")["then"]
    rows = pyarrow.dataset.dataset(fresh(sets) / "signals", format="parquet").to_table().to_pylist()
    values = [row["gopher_quality.words"] for row in rows if row["kept"]]
    assert then["mean"] == pytest.approx(sum(values) / len(values))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to ask"),
        (["--set", "nosuch.key=1"], "neither a stage of this config nor a setting"),
        (["--set", "gopher_qualty.minimum_words=1"], "did you mean gopher_quality?"),
        (["--set", "fineweb_quality.short_lines=1"], "the config does not list this stage"),
        (["--set", "gopher_quality.minimum_wrds=1"], "did you mean minimum_words?"),
        (["--set", "gopher_quality.minimum_words=many"], "wanted a whole number"),
        (["--set", "gopher_quality.minimum_words=200000"], "no text can pass"),
        (["--set", "input.limit=5"], "settled when a run begins"),
        (["--set", "batch_rows=10"], "settled when a run begins"),
        (["--set", "output=elsewhere"], "only settings of stages"),
        (["--set", "length.name=other"], "cannot change in a finished run"),
        (["--sweep", "length.minimum_words=1:2"], "write --sweep STAGE.KEY=FROM:TO:STEP"),
        (["--sweep", "length.minimum_words=5:1:1"], "of 1 to 1000 values"),
        (["--sweep", "length.minimum_words=1:100000:1"], "of 1 to 1000 values"),
        (["--sweep", "length.minimum_words=1:9:0"], "write --sweep"),
        (["--sweep", "length.minimum_words=1:9:1", "--objective", "length.wrds"], "has no signal length.wrds"),
    ],
)
def test_questions_that_cannot_be_asked(
    fresh: Fresh, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(fresh([])), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_folders_that_cannot_answer(fresh: Fresh, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def message(folder: Path) -> str:
        assert main(["whatif", str(folder), "--set", "length.minimum_words=3"]) == 2
        return capsys.readouterr().err

    assert "is it the folder of a finished run?" in message(tmp_path / "nothing")
    folder = shutil.copytree(fresh([]), tmp_path / "run")
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").unlink()
    assert "the run is not finished" in message(folder)
    (folder / "manifest.json").write_text("{")
    assert "damaged" in message(folder)
    (folder / "manifest.json").write_text(manifest.replace('"format_version": 1', '"format_version": 99'))
    assert "format 99" in message(folder)
    (folder / "manifest.json").write_text(manifest)
    signals = next((folder / "signals").iterdir())
    data = signals.read_bytes()
    signals.write_bytes(data[: len(data) // 2])
    assert "missing or damaged" in message(folder)
    signals.unlink()
    assert "missing or damaged" in message(folder)
    signals.write_bytes(data)
    ledger = next((folder / "ledger").iterdir())
    table = pq.read_table(ledger)
    pq.write_table(table.slice(1), ledger)
    assert "does not fit the signals" in message(folder)
    pq.write_table(table, ledger)
    assert main(["whatif", str(folder), "--set", "length.minimum_words=3"]) == 0
    budget = ["whatif", str(folder), "--set", "near_duplicates.duplication_budget=0.2"]
    assert main(budget) == 0
    edges = max((folder / "staging/near-near_duplicates/edges").iterdir(), key=lambda path: path.stat().st_size)
    edges.unlink()
    assert main(budget) == 2
    assert "do not give the duplicates of the run" in capsys.readouterr().err
