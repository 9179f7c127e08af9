"""The pages of results: what has no figures is not run, what has is in the tables, formulas are those written down."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run
from benchmarks.cluster_estimate import CORES, CORPUS_BYTES, estimate, unit_costs
from benchmarks.results import SECTIONS, TARGETS, read, target_lines, write
from benchmarks.scaling import missed, summary


def row(megabytes: int, workers: int, seconds: float) -> dict[str, Any]:
    return {
        "case": f"{megabytes} MB",
        "megabytes": megabytes,
        "workers": workers,
        "bytes": megabytes * 1_000_000,
        "seconds": seconds,
        "spread": [seconds, seconds],
        "processor_seconds": seconds,
        "memory_bytes": 500_000_000,
        "largest_process_bytes": 400_000_000,
        "processes": 1,
        "shuffled_bytes": megabytes * 20_000,
        "clustered_records": megabytes * 100,
    }


def scaling_figures() -> dict[str, Any]:
    """Two seconds of start-up and 0.05 s for a megabyte: 7 s for 100 MB, 52 s for 1,000 MB."""
    sizes = [row(100, 1, 7.0), row(100, 2, 5.0), row(1000, 1, 52.0), row(1000, 2, 26.0)]
    return {
        "machine": {"cores": 2, "load": 0.5},
        "sizes": sizes,
        "axes": {name: [row(100, 1, 7.0)] for name in ("sources", "rules", "copies", "characters")},
        "kept_waiting": row(0, 1, 2.0),
        "again_seconds": 1.5,
        "summary": summary(sizes),
    }


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in target_lines(found)[2:]]
    return {what: f"{measured} {verdict}".strip() for what, _, measured, verdict in cells}


def test_what_has_no_file_is_not_run(tmp_path: Path) -> None:
    write(tmp_path, tmp_path)
    page, scaling = ((tmp_path / name).read_text(encoding="utf-8") for name in ("RESULTS.md", "SCALING.md"))
    for section in SECTIONS:
        assert f"## {section.title}\n\nnot run\n" in page
    assert set(verdicts({}).values()) == {"not run"}
    assert len(verdicts({})) == len(TARGETS)
    assert scaling.count("not run") == 2


def test_a_target_is_reached_or_missed_by_its_limit() -> None:
    figures = scaling_figures()
    found = verdicts({"scaling": figures})
    assert found["two workers to one, largest corpus"] == "2.00 times reached"
    # 52 ns a byte to 70.
    assert found["time per byte, largest to smallest corpus"] == "0.74 times reached"
    assert found["a finished run again"] == "1.50 s reached"
    figures["again_seconds"] = 2.5
    assert verdicts({"scaling": figures})["a finished run again"] == "2.50 s missed"
    assert missed(figures) == ["a finished run takes 2.5 s again, wanted are 2"]


def test_pages_and_plots_follow_from_the_files_alone(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "scaling.json").write_text(json.dumps(scaling_figures()), encoding="utf-8")
    pages = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(figures, tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        pages.append({path.relative_to(tmp_path / name).as_posix(): path.read_bytes() for path in files})
    assert pages[0] == pages[1]
    assert set(pages[0]) == {
        *("RESULTS.md", "SCALING.md", "results/scaling-axes.svg", "results/scaling-sizes.svg"),
    }
    assert "| 1000 MB | 1000.0 | 52.0 | 52.0 | 19.2 | 0.50 | 0.40 | 20.0 |" in pages[0]["RESULTS.md"].decode()


@pytest.mark.parametrize(("content", "message"), [("{", "not JSON"), ("[]", "of another version"), ("{}", "KeyError")])
def test_a_file_that_cannot_be_used_is_named(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "copying.json").write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match=rf"copying\.json: .*{message}"):
        write(tmp_path, tmp_path)
    assert not (tmp_path / "RESULTS.md").exists()


def test_costs_per_byte_are_the_slope_and_start_up_the_rest() -> None:
    costs = unit_costs(scaling_figures())
    assert costs.seconds_per_byte == pytest.approx(5e-8)
    assert costs.start_seconds == pytest.approx(2.0)
    assert costs.shuffled_per_byte == pytest.approx(0.02)
    assert costs.share_of_two == pytest.approx(1.0)
    page = "\n".join(estimate(scaling_figures(), None))
    assert pytest.approx(500) == CORPUS_BYTES * 5e-8 / CORES
    assert "| D c / W | 8 min |" in page
    assert "| D s | 0.200 TB |" in page
    assert "more than `max_forest_edges`" in page
    one_size = scaling_figures() | {"sizes": [row(100, 1, 7.0)]}
    with pytest.raises(SystemExit, match="one size only"):
        unit_costs(one_size)


def test_the_largest_key_is_that_of_the_bounds() -> None:
    groups = {"Propose": [7_000_000, 90_000], "WriteTables": [9_000_000, 5]}
    bounds = {"at_scale": [{"bytes": CORPUS_BYTES, "rows": 10**9, "groups": groups, "heap": 90 << 20}]}
    page = "\n".join(estimate(None, bounds))
    assert "that of WriteTables: 9,000,000 bytes in 5 values" in page
    assert "90 MiB" in page


@pytest.mark.parametrize("size", run.SIZES)
def test_every_benchmark_that_is_run_has_a_section(size: str) -> None:
    names = [benchmark.name for benchmark in run.chosen(size, "corpus", "model")]
    assert len(set(names)) == len(names)
    assert set(names) <= {section.file for section in SECTIONS}
    if run.SHARED.is_dir():
        assert set(names) == {section.file for section in SECTIONS}
    for name in names:
        assert (Path(run.__file__).parent / f"{name}.py").is_file()


def test_files_of_another_name_are_no_figures(tmp_path: Path) -> None:
    (tmp_path / "items.json").write_text("[", encoding="utf-8")
    assert read(tmp_path) == {}
