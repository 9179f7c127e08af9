"""Texts on a terminal, differences of texts, and finding rows of large tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpus.errors import UsageError
from corpus.folder import Folder
from reports.explain_diff import MOST_CHARACTERS, side_by_side
from reports.explain_lookup import find_rows, nearest_ids
from reports.explain_terminal import terminal_text
from reports.visible import is_hidden

HOSTILE = "\x1b]0;title\x07\x1b[31mred\x1b[0m \u202eevil\u2066 \x9b2J \r\b\x00 \u200b\U000e0041 \u2028end"


def test_nothing_that_a_terminal_acts_on_is_left() -> None:
    shown = terminal_text(HOSTILE)
    assert shown.startswith(r"\x1b]0;title\x07\x1b[31mred\x1b[0m \u202eevil\u2066 \x9b2J \x0d\x08\x00 \u200b\U000e0041")
    assert terminal_text("a\nb\tc") == r"a\x0ab\x09c"
    assert terminal_text("a\nb\tc\x1b", keep="\n\t") == "a\nb\tc\\x1b"
    assert terminal_text("Grüße, 漢字 und 👩‍🔬, [bold]x[/bold]") == "Grüße, 漢字 und 👩‍🔬, [bold]x[/bold]"


@given(st.text())
def test_escaped_text_has_only_what_shows(text: str) -> None:
    shown = terminal_text(text)
    assert not any(is_hidden(character) or character in "\t\n" for character in shown)


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
@example("a\nb\nc\nd\ne\nf\ng\nh\nx", "a\nb\nc\nd\ne\nf\ng\nh\ny")
def test_the_sides_of_a_comparison_are_the_texts(left: str, right: str) -> None:
    rows = side_by_side(left, right)
    for text, side in ((left, "left"), (right, "right")):
        lines: list[str] = []
        own = text.split("\n")
        for row in rows:
            if row.kind == "skipped":
                lines += own[len(lines) : len(lines) + row.count]
            else:
                segments = getattr(row, side)
                lines += [] if segments is None else ["".join(piece for piece, _ in segments)]
        assert "\n".join(lines) == text
    unmarked = [
        [piece for row in rows for piece, differs in getattr(row, side) or () if not differs]
        for side in ("left", "right")
    ]
    assert "".join(unmarked[0]) == "".join(unmarked[1])
    assert (left == right) == all(row.kind != "changed" for row in rows)


def test_words_that_differ_are_marked() -> None:
    (row,) = side_by_side("the old stone bridge", "the new stone bridge of")
    assert row.left == (("the ", False), ("old", True), (" stone bridge", False))
    assert row.right == (("the ", False), ("new", True), (" stone bridge", False), (" of", True))


def test_long_and_repetitive_texts_are_compared_in_bounded_time() -> None:
    for piece in ("a ", "a\n", "ab\n\n"):
        left = piece * MOST_CHARACTERS
        rows = side_by_side(left, "x" + left[::-1])
        assert sum(row.count or 1 for row in rows) <= 2 * MOST_CHARACTERS


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Two files of ids, whose row groups hold a range each."""
    for number in range(2):
        ids = [f"doc-{number}{place:04d}" for place in range(500)] + ["doc-00007"] * number + ["Übung-1"]
        places = list(range(len(ids)))
        table = pa.table({"record_id": ids, "row": places, "position": places})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=100)
    return Folder(str(tmp_path))


def test_all_rows_of_an_id_are_found(folder: Folder) -> None:
    names = ["0.parquet", "1.parquet"]
    assert [row["row"] for row in find_rows(folder, names, "record_id", "doc-00007")] == [7, 500]
    assert [row["row"] for row in find_rows(folder, names, "record_id", "Übung-1")] == [500, 501]
    assert list(find_rows(folder, names, "record_id", "doc-99999")) == []


def test_only_row_groups_that_may_have_an_id_are_read(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = pq.ParquetFile.read_row_group

    def counting(self: pq.ParquetFile, group: int, *arguments: object, **named: object) -> pa.Table:
        read.append(group)
        return plain(self, group, *arguments, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    assert [row["row"] for row in find_rows(folder, ["0.parquet"], "record_id", "doc-00250")] == [250]
    assert set(read) == {2}
    read.clear()
    assert [row["row"] for row in find_rows(folder, ["0.parquet"], "record_id", "doc-00250", {250, 499})] == [250]
    assert set(read) == {2}
    read.clear()
    assert list(find_rows(folder, ["0.parquet"], "record_id", "doc-00250", {499})) == []
    assert read == []


def test_ids_that_differ_in_one_place_are_nearest(folder: Folder) -> None:
    names = ["0.parquet", "1.parquet"]
    assert nearest_ids(folder, names, "doc-00O07")[0] == "doc-00007"
    assert nearest_ids(folder, names, "doc-10499x")[0] == "doc-10499"
    assert nearest_ids(folder, names, "DOC-0123")[:1] == ["doc-00123"]
    assert nearest_ids(folder, names, "Ubung-1")[0] == "Übung-1"
    assert len(nearest_ids(folder, names, "")) == 5
    assert nearest_ids(folder, [], "doc") == []


def test_damaged_tables_are_told(folder: Folder) -> None:
    Path(folder.path("0.parquet")).write_bytes(b"PAR1 and no more")
    with pytest.raises(UsageError, match="missing or damaged"):
        list(find_rows(folder, ["0.parquet"], "record_id", "doc"))
