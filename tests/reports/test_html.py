"""report.html of whole runs: what it shows, that texts from strangers stay texts, and what a browser says of it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import pipelines.html_report
from corpus.folder import Folder
from pipelines.cli import main
from pipelines.finished_run import load_run
from pipelines.html_report import write_html
from reports.example_texts import CLEANED, UNSEEN
from tests.pipelines.corpora import ENGLISH, GERMAN, report, run, table, write_config
from tests.reports.chromium import BINARY, browser_page

STAGES: list[Any] = [
    {"language": {"keep": ["en"], "minimum_score": 0.5}},
    {"gopher_quality": {"minimum_words": 20}},
    {"c4_quality": {"minimum_sentences": 1}},
    {"near_duplicates": {"duplication_budget": 0.05}},
    {"length": {"maximum_words": 85}},
]
MARKUP = "</pre></style><script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;{{ 7*7 }}{% raw %}"
OVERRIDE, ESCAPE, TAG = "\u202e", "\x1b[31m", "\U000e0041"


def _write(folder: Path, rows: Sequence[dict[str, Any]]) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n", encoding="utf-8")
    return [str(path)]


def _sentences(choose: random.Random, words: Sequence[str], count: int) -> str:
    text = " ".join(choose.choices(words, k=count))
    return f"{text} and so it was told to all of them."


def _rows() -> list[dict[str, Any]]:
    choose = random.Random(5)
    rows: list[dict[str, Any]] = []
    for number in range(400):
        words = choose.choice([ENGLISH, ENGLISH, ENGLISH, GERMAN])
        text = _sentences(choose, words, choose.choice([4, 40, 60, 90]))
        if number % 3 == 0:
            text = f"{MARKUP} {OVERRIDE}{text}{ESCAPE}{TAG}"
        if number % 5 == 0:
            text += "\nA line without an end"
        if number % 7 == 0 and rows:
            text = f"{rows[-1]['text']} Once more."
        rows.append({"id": f"<b>{number}</b>{OVERRIDE}", "text": text, "source": f"site-{number % 4}<script>"})
    return rows


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("html")
    files = _write(folder / "in", _rows())
    settings = {"id_column": "id", "source_column": "source"}
    assert run(write_config(folder / "c.yaml", files, folder / "run", STAGES, **settings)) == 0
    return folder / "run"


class _Elements(HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def _text(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(_Elements(page).text))


def test_a_run_ends_with_its_page_which_the_manifest_does_not_list(finished: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    assert not any("html" in entry["file"] for entry in manifest["outputs"])
    assert main(["verify", str(finished)]) == 0
    assert 20_000 < (finished / "report.html").stat().st_size < 3_000_000
    assert json.loads((finished / "run.json").read_text())["warnings"] == []


def test_the_page_has_the_counts_of_the_report(finished: Path) -> None:
    counts, text = report(finished), _text(_page(finished))
    assert counts["records"]["dead"] == 1
    for name in ("read", "kept", "dropped", "dead"):
        assert f"{counts['records'][name]:,}" in text
    rows = [
        (stage["name"], rule, entry["first"])
        for stage in counts["stages"]
        for rule, entry in stage["rules"].items()
        if entry["first"]
    ]
    assert {name for name, _, _ in rows} >= {"language", "gopher_quality", "near_duplicates", "length"}
    place = 0
    for _, rule, first in rows:
        found = re.compile(rf"{rule} .{{0,60}}?{first:,}").search(text, place)
        assert found is not None, rule
        place = found.end()
    assert f"{counts['duplicates']['near_duplicates']['copies_available']:,}" in text
    assert "site-0<script>" in text


def test_texts_from_strangers_stay_texts(finished: Path) -> None:
    page = _page(finished)
    elements = _Elements(page)
    assert elements.tags.isdisjoint({"script", "img", "iframe", "object", "link", "base", "form"})
    assert not any(name.startswith("on") or name == "src" for name in elements.attributes)
    assert "alert(1)" in "".join(elements.text)
    assert "{{ 7*7 }}" in "".join(elements.text)
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e01ef]", page
    )
    assert "U+202E" in page
    assert "U+001B" in page
    assert "U+E0041" in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page


def test_examples_are_records_of_their_rule_with_what_it_saw(finished: Path) -> None:
    page = _page(finished)
    ledger = table(finished, "ledger")
    for stage, rule in {(row["stage"], row["rule"]) for row in ledger}:
        start = page.index(f"{stage}</bdi> / <bdi>{rule}</bdi>")
        text = _text(page[start : page.index("</details>", start)])
        ids = {
            row["record_id"].removesuffix(OVERRIDE) for row in ledger if (row["stage"], row["rule"]) == (stage, rule)
        }
        assert any(name in text for name in ids), (stage, rule)
        assert "not in the run folder" not in text
    copies = page[page.index("near_duplicates</bdi> / ") :]
    assert '<mark class="differs">Once more.</mark>' in copies


def test_the_same_run_gives_the_same_page(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _page(finished)
    assert main(["report", str(finished), "--html"]) == 0
    assert capsys.readouterr().out == f"{finished}/report.html\n"
    assert _page(finished) == before
    settings = {"id_column": "id", "source_column": "source"}
    config = write_config(tmp_path / "c.yaml", [f"{finished.parent}/in/*.jsonl"], tmp_path / "run", STAGES, **settings)
    assert run(config, "--direct_num_workers=2") == 0
    other = load_run(str(tmp_path / "run"))
    details = load_run(str(finished)).details
    write_html(type(other)(other.root, other.report, other.manifest, details))
    assert _page(tmp_path / "run") == before


@pytest.mark.skipif(BINARY is None, reason="Chromium is not installed (apt-get install chromium)")
def test_a_browser_has_nothing_to_complain_of_and_asks_for_nothing(finished: Path, tmp_path: Path) -> None:
    with browser_page(tmp_path) as page:
        page.open(finished / "report.html")
        assert page.complaints == []
        assert page.requests == [(finished / "report.html").as_uri()]
        for width in (1280, 390):
            page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        colours = []
        for scheme in ("light", "dark"):
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            style = "getComputedStyle(document.body)"
            plot = "getComputedStyle(document.querySelector('figure svg text')).fill"
            colours.append(page.evaluate(f"[{style}.backgroundColor, {style}.color, {plot}]"))
            assert colours[-1][1] == colours[-1][2]
        assert not set(colours[0]) & set(colours[1])
        assert page.evaluate("document.querySelectorAll('script, img').length") == 0
        page.call("Emulation.setEmulatedMedia", media="print")
        assert page.evaluate("document.querySelector('details:not([open]) pre').checkVisibility()")


def test_without_staging_kept_texts_come_from_curated(finished: Path, tmp_path: Path) -> None:
    rows = [
        {"id": str(number), "text": " ".join(ENGLISH[: 10 + number]) + f" number {number}."} for number in range(30)
    ]
    config = write_config(
        tmp_path / "c.yaml",
        _write(tmp_path / "in", rows),
        tmp_path / "run",
        [{"length": {"minimum_words": 20}}],
        id_column="id",
    )
    assert run(config, "--clean") == 0
    assert CLEANED not in _page(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--html"]) == 0
    page = _page(tmp_path / "run")
    assert page.count(CLEANED) == 4
    kept = page[page.index("Barely kept") :]
    assert re.search(r"<pre[^>]*>the river and its old bridge", kept)


@pytest.mark.parametrize("apart", [False, True])
def test_private_data_is_not_shown(tmp_path: Path, apart: bool) -> None:
    choose = random.Random(2)
    address, card = "jo.smith@gmail.com", "4111 1111 1111 1111"
    rows = []
    for number in range(60):
        text = _sentences(choose, ENGLISH, choose.choice([8, 60]))
        secret = f"Pay with {card} at once." if number % 4 == 0 else f"Write to {address} at once."
        rows.append({"id": str(number), "text": f"{text}\n{secret}\n{secret[:-1]}"})
    length: dict[str, Any] = {"length": {"minimum_words": 30}}
    private: dict[str, Any] = {"pii": {"payment_cards": "drop"}}
    between: list[Any] = ["exact_duplicates"] if apart else [{"c4_quality": {"minimum_sentences": 1}}]
    config = write_config(
        tmp_path / "c.yaml",
        _write(tmp_path / "in", rows),
        tmp_path / "run",
        [length, *between, private],
        id_column="id",
    )
    assert run(config) == 0
    page = _page(tmp_path / "run")
    assert "smith" not in page
    assert "1111" not in page
    assert "████" in page
    assert (UNSEEN in page) == apart
    if not apart:
        assert "&lt;EMAIL&gt;" in page


def test_what_an_edit_cut_is_struck_out(tmp_path: Path) -> None:
    rows = [
        {
            "p": "What of the bridge?",
            "r": "\n".join(["It stands there for all to see.", "A line without an end"] * (1 + number % 2)),
        }
        for number in range(20)
    ]
    stages = [{"c4_quality": {"minimum_sentences": 2}}]
    config = write_config(
        tmp_path / "c.yaml",
        _write(tmp_path / "in", rows),
        tmp_path / "run",
        stages,
        prompt_column="p",
        response_column="r",
    )
    assert run(config) == 0
    page = _page(tmp_path / "run")
    assert '<mark class="cut">A line without an end</mark>' in page
    assert "What of the bridge?" in page


def test_scores_have_a_curve_and_quantiles(tmp_path: Path) -> None:
    rows = [
        {"id": str(number), "text": f"text {number}", "source": f"s{number % 2}", "q": number / 100}
        for number in range(100)
    ]
    stages = [
        {"column": {"column": "q", "keep": {"at_least": 0.2}}},
        {"column": {"name": "best", "column": "q", "keep": {"best_fraction": 0.25}}},
    ]
    settings = {"id_column": "id", "source_column": "source"}
    config = write_config(tmp_path / "c.yaml", _write(tmp_path / "in", rows), tmp_path / "run", stages, **settings)
    assert run(config) == 0
    page = _page(tmp_path / "run")
    scores = page[page.index('id="scores"') : page.index('id="signals"')]
    assert scores.count("<svg role=") == 2
    text = _text(scores)
    assert re.search(r"column keeps ≥ 0.2 .* best keeps ≥ 0.8 ", text)
    assert re.search(r"all 100 0.04 0.24 0.49 0.74 0.94 ", text)
    assert re.search(r"source s0 50 0.04 ", text)
    examples = _text(page[page.index('id="examples"') :])
    assert "best / keep score ≥ 0.8; 60 dropped" in examples
    values = [float(value) for value in re.findall(r"score (0\.\d+)", examples[examples.index("60 dropped") :])]
    assert len(values) == 4
    assert all(0.2 <= value < 0.8 for value in values)


@pytest.mark.parametrize("stages", [[], STAGES])
def test_a_run_over_nothing_has_a_page(tmp_path: Path, stages: list[Any]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.jsonl").write_text("")
    config = write_config(tmp_path / "c.yaml", [f"{tmp_path}/in/*.jsonl"], tmp_path / "run", stages)
    assert run(config) == 0
    assert "the input has no records" in _page(tmp_path / "run")
    assert "No rule dropped a record." in _page(tmp_path / "run")


def test_without_what_draws_the_page_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipelines.html_report, "can_draw", lambda: False)
    config = write_config(tmp_path / "c.yaml", _write(tmp_path / "in", _rows()[:5]), tmp_path / "run", [])
    assert run(config) == 0
    (warning,) = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    assert "thresher[report]" in warning
    assert not (tmp_path / "run" / "report.html").exists()
    assert main(["report", str(tmp_path / "run"), "--html"]) == 2
    assert "thresher[report]" in capsys.readouterr().err


def test_a_page_that_fails_does_not_take_the_run_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("no picture")

    monkeypatch.setattr(pipelines.html_report, "html_report", fail)
    config = write_config(tmp_path / "c.yaml", _write(tmp_path / "in", _rows()[:5]), tmp_path / "run", [])
    assert run(config) == 0
    (warning,) = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    assert "RuntimeError: no picture" in warning
    assert Folder(str(tmp_path / "run")).exists("manifest.json")


def test_a_damaged_run_is_refused(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "--html"]) == 2
    assert "finished run" in capsys.readouterr().err
    for name in ("manifest.json", "report.json", "run.json"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    assert main(["report", str(tmp_path), "--html"]) == 2
    assert "damaged" in capsys.readouterr().err
