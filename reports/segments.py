"""Texts cut into pieces, some of them marked: what a stage found, cut or replaced, and where two texts differ."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
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


def split(segments: Sequence[Segment], place: int) -> tuple[list[Segment], list[Segment]]:
    """Return what stands before and behind a code point of the text as stages see it."""
    left: list[Segment] = []
    for number, segment in enumerate(segments):
        if segment.length > place:
            whole = len(segment.text) == segment.length
            if place:
                left.append(Segment(segment.text[:place] if whole else segment.text, segment.mark, place))
                segment = Segment(segment.text[place:] if whole else "", segment.mark, segment.length - place)
            return left, [segment, *segments[number + 1 :]]
        place -= segment.length
        left.append(segment)
    return left, []


def with_span(segments: Sequence[Segment], start: int, end: int, inside: Callable[[Segment], Segment]) -> list[Segment]:
    """Return a text with each piece of a span changed; start and end are code points of the text as stages see it."""
    before, rest = split(segments, start)
    found, after = split(rest, end - start)
    return [*before, *map(inside, found), *after]


def replaced(segments: Sequence[Segment], start: int, end: int, pieces: Sequence[Segment]) -> list[Segment]:
    """Return a text with other pieces in the place of a span."""
    before, rest = split(segments, start)
    return [*before, *pieces, *split(rest, end - start)[1]]


def with_spans(whole: Excerpt, spans: Iterable[tuple[int, int]]) -> Excerpt:
    """Return an excerpt with spans of it marked as found; spans may overlap."""
    segments = [Segment.of(whole.text)]
    for start, end in spans:
        segments = with_span(segments, start, end, lambda segment: replace(segment, mark="found"))
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
