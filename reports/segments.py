"""Texts cut into pieces, some of them marked: what a stage found, cut or replaced, and where two texts differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from markupsafe import Markup

from reports.visible import visible

Mark = Literal["found", "cut", "removed", "replaced", "differs"]

SHOWN_CHARACTERS = 600
BEFORE_MARK = 220
# Words that the end of the shown part cuts are compared as a whole.
LONGEST_WORD = 200
_WORDS = re.compile(r"\s*\S+|\s+$")


@dataclass(frozen=True)
class Segment:
    """A piece of a text.

    Attributes:
        text: what is shown.
        mark: why it is marked; None where it is not.
        length: code points for which it counts in the text as stages see it; 0 for what was cut.
    """

    text: str
    mark: Mark | None
    length: int

    @staticmethod
    def of(text: str, mark: Mark | None = None) -> Segment:
        """Return a piece that counts as what it shows."""
        return Segment(text, mark, len(text))


@dataclass(frozen=True)
class Excerpt:
    """A part of a text, and how many characters stand before and behind it."""

    segments: list[Segment]
    before: int = 0
    after: int = 0

    @property
    def text(self) -> str:
        """The part without its marks."""
        return "".join(segment.text for segment in self.segments)

    @property
    def is_marked(self) -> bool:
        """Whether something in it is marked."""
        return any(segment.mark is not None for segment in self.segments)


def parts_between(segments: Iterable[Segment], places: Sequence[int]) -> list[list[Segment]]:
    """Return a text in parts, cut at places.

    A long text may have thousands of places: all are cut in one go over it. What counts for nothing, a piece that was
    cut, belongs to the part that ends where it stands.

    Args:
        places: n code points of the text as stages see it, ascending.

    Returns:
        n + 1 parts, from the beginning to the first place, between two places, and from the last one to the end.
    """
    parts: list[list[Segment]] = [[]]
    begin = 0
    for segment in segments:
        whole = len(segment.text) == segment.length
        done = 0
        while len(parts) <= len(places) and begin + segment.length > places[len(parts) - 1]:
            upto = max(done, places[len(parts) - 1] - begin)
            if upto > done:
                parts[-1].append(_piece(segment, whole, done, upto))
                done = upto
            parts.append([])
        parts[-1].append(_piece(segment, whole, done, segment.length) if done else segment)
        begin += segment.length
    return parts + [[] for _ in range(len(places) + 1 - len(parts))]


def _piece(segment: Segment, whole: bool, start: int, end: int) -> Segment:
    """Return a piece of a segment; of one that shows something else than it counts for, the first shows all."""
    text = segment.text[start:end] if whole else "" if start else segment.text
    return Segment(text, segment.mark, end - start)


def with_spans(whole: Excerpt, spans: Iterable[tuple[int, int]]) -> Excerpt:
    """Return an excerpt with spans of it marked as found; spans may overlap."""
    segments = [Segment.of(whole.text)]
    for start, end in spans:
        before, inside, after = parts_between(segments, (start, end))
        segments = [*before, *(replace(segment, mark="found") for segment in inside), *after]
    return replace(whole, segments=segments)


def differences(left: Excerpt, right: Excerpt) -> tuple[Excerpt, Excerpt]:
    """Return two texts, each with the words marked that the other does not have there, from where they begin to differ.

    White space makes no difference. What lies beyond the part that is shown anyway is left as it is.
    """
    texts = (left.text, right.text)
    pairs = enumerate(zip(*texts, strict=False))
    common = next((place for place, (one, other) in pairs if one != other), min(map(len, texts)))
    start = max(0, common - BEFORE_MARK)
    end = start + SHOWN_CHARACTERS + LONGEST_WORD
    words = [_WORDS.findall(text[start:end]) for text in texts]
    plain = [[word.strip() for word in side] for side in words]
    matcher = difflib.SequenceMatcher(None, plain[0], plain[1], autojunk=False)
    parts: tuple[list[Segment], list[Segment]] = ([], [])
    for kind, *places in matcher.get_opcodes():
        for side in (0, 1):
            piece = "".join(words[side][places[2 * side] : places[2 * side + 1]])
            if piece:
                parts[side].append(Segment.of(piece, "differs" if kind != "equal" and piece.strip() else None))
    for side, text in enumerate(texts):
        parts[side].insert(0, Segment.of(text[:start]))
        parts[side].append(Segment.of(text[end:]))
    return replace(left, segments=parts[0]), replace(right, segments=parts[1])


def excerpt(segments: Sequence[Segment], characters: int) -> Excerpt:
    """Return the part of a text around its first mark, or its beginning."""
    total = sum(len(segment.text) for segment in segments)
    place, first = 0, 0
    for segment in segments:
        if segment.mark is not None:
            first = place
            break
        place += len(segment.text)
    start = max(0, min(first - BEFORE_MARK, total - characters))
    end = min(total, start + characters)
    pieces = []
    place = 0
    for segment in segments:
        text = segment.text[max(0, start - place) : max(0, end - place)]
        place += len(segment.text)
        if text:
            pieces.append(replace(segment, text=text))
    return Excerpt(pieces, start, total - end)


def shown(whole: Excerpt) -> Markup:
    """Return as HTML what is worth showing of an excerpt."""
    part = excerpt(whole.segments, SHOWN_CHARACTERS)
    html = []
    if before := whole.before + part.before:
        html.append(Markup('<span class="more">… {:,} characters before …</span>\n').format(before))
    html.extend(_html(segment) for segment in part.segments)
    if after := whole.after + part.after:
        html.append(Markup('\n<span class="more">… {:,} characters more</span>').format(after))
    return Markup("").join(html)


def _html(segment: Segment) -> Markup:
    if segment.mark is None:
        return visible(segment.text)
    # White space at the ends stays outside of the mark, where no colour shows it.
    inside = segment.text.strip()
    start = segment.text.find(inside)
    before, after = segment.text[:start], segment.text[start + len(inside) :]
    if not inside:
        return visible(segment.text)
    html = Markup('{}<mark class="{}">{}</mark>{}')
    return html.format(visible(before), segment.mark, visible(inside), visible(after))
