"""What a model reads of a record, and what is cut: as transformers does it, or less of the text around the fields."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scorers.token_batches import TokenSequence, cut_batches, pad

if importlib.util.find_spec("transformers") is None:
    pytest.skip("the extra models is not installed", allow_module_level=True)

from scorers.model_inputs import InputBuilder, Truncation, lengths_left
from tests.scorers import small_models

WORDS = st.lists(st.sampled_from(small_models.WORDS), max_size=30).map(" ".join)
TOKENIZER = small_models.word_tokenizer()
STRATEGIES: dict[Truncation, str] = {
    "longest_first": "longest_first",
    "prompt": "only_first",
    "response": "only_second",
}


def builder(form: str, limit: int, truncation: Truncation, side: Any = None) -> InputBuilder:
    return InputBuilder("stages.x", small_models.word_tokenizer(), form, limit, truncation, side)


@example("why", " ".join(["why"] * 13), 16, "prompt", "left")  # nothing but the whole prompt has to go
@given(
    WORDS, WORDS.filter(bool), st.integers(8, 60), st.sampled_from([*STRATEGIES]), st.sampled_from(["left", "right"])
)
def test_pairs_are_cut_as_transformers_cuts_them(
    prompt: str, response: str, limit: int, truncation: Truncation, side: str
) -> None:
    found = builder("pair", limit, truncation, side).build([prompt], [response])[0]
    TOKENIZER.truncation_side = side
    whole = TOKENIZER(prompt, response)
    assert found.tokens == len(whole["input_ids"])
    first, second = len(prompt.split()), len(response.split())
    possible = {"longest_first": True, "prompt": second < limit - 3, "response": first < limit - 3}[truncation]
    if not possible and found.tokens > limit:
        if truncation == "response":
            assert found.reason == "too_long"
        else:
            # transformers refuses to cut the whole prompt; here that is done, and then the response is cut.
            assert found.sequence is not None
            assert (len(found.sequence), found.sequence.types.tolist().count(0)) == (limit, 2)
        return
    strategy = STRATEGIES[truncation] if found.tokens > limit else "longest_first"
    wanted = TOKENIZER(prompt, response, truncation=strategy, max_length=limit)
    assert found.sequence is not None
    assert found.sequence.ids.tolist() == wanted["input_ids"]
    assert found.sequence.types.tolist() == wanted["token_type_ids"]
    assert found.cut == found.tokens - len(found.sequence)


@given(WORDS.filter(bool), st.integers(8, 60), st.sampled_from(["left", "right"]))
def test_texts_are_cut_as_transformers_cuts_them(text: str, limit: int, side: str) -> None:
    found = builder("text", limit, "longest_first", side).build([None], [text])[0]
    TOKENIZER.truncation_side = side
    assert found.sequence is not None
    assert found.sequence.ids.tolist() == TOKENIZER(text, truncation=True, max_length=limit)["input_ids"]


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 60), st.sampled_from([*STRATEGIES]))
def test_what_is_left_fills_the_room(first: int, second: int, room: int, truncation: Truncation) -> None:
    if first + second > room:
        prompt, response = lengths_left(first, second, room, truncation)
        assert prompt + response == room
        assert 0 <= prompt <= first
        assert 0 <= response <= second


@given(
    WORDS,
    WORDS.filter(bool),
    st.integers(12, 60),
    st.sampled_from([*STRATEGIES]),
    st.sampled_from(["left", "right"]),
    st.sampled_from(["user: {prompt} ! assistant: {response} .", "answer{response}question", "chat"]),
)
def test_templates_keep_what_stands_around_the_fields(
    prompt: str, response: str, limit: int, truncation: Truncation, side: str, form: str
) -> None:
    tokenizer = small_models.word_tokenizer()
    tokenizer.chat_template = "{% for turn in messages %}{{ turn['role'] }} : {{ turn['content'] }} !{% endfor %}"
    found = InputBuilder("stages.x", tokenizer, form, limit, truncation, side).build([prompt], [response])[0]
    if found.sequence is None:
        assert found.reason == "too_long"
        # A response that is one word with what stands around it has more tokens there than by itself.
        assert truncation == "response" or form == "answer{response}question"
        assert found.tokens > limit
        return
    assert len(found.sequence) <= limit
    assert (found.cut > 0) == (found.tokens > limit)
    ids = tokenizer.backend_tokenizer
    names = [ids.id_to_token(number) for number in found.sequence.ids.tolist()]
    text = " ".join(names).replace(" ##", "")
    around = {"chat": ["user :", "assistant :", "!"], "answer{response}question": ["[CLS] answer", "question [SEP]"]}
    for piece in around.get(form, ["user :", "! assistant :", ". [SEP]"]):
        assert piece in text
    if found.tokens > limit and form != "answer{response}question":
        # As much as fits, but for a token that joins another where a text was cut.
        assert len(found.sequence) >= limit - 2


CHAT = "{% for turn in messages %}{{ turn['role'] }} : {{ turn['content'] }} !{% endfor %}"
STRICT = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}yes"
SAID = st.lists(st.sampled_from(small_models.WORDS).filter(str.isalpha), max_size=30).map(" ".join)
TURNS = st.lists(st.tuples(st.sampled_from(["tell", "user", "assistant"]), SAID), max_size=4)


def turns_builder(
    template: str, limit: int, truncation: Truncation = "longest_first", side: Any = None
) -> InputBuilder:
    tokenizer = small_models.word_tokenizer()
    tokenizer.chat_template = template
    return InputBuilder("stages.x", tokenizer, "turns", limit, truncation, side)


def as_json(turns: list[tuple[str, str]]) -> str:
    return json.dumps([{"role": role, "content": content} for role, content in turns])


@given(
    TURNS, SAID.filter(bool), st.integers(40, 80), st.sampled_from([*STRATEGIES]), st.sampled_from(["left", "right"])
)
def test_turns_of_a_chat(
    turns: list[tuple[str, str]], response: str, limit: int, truncation: Truncation, side: str
) -> None:
    made = turns_builder(CHAT, limit, truncation, side)
    found = made.build([as_json(turns)], [response])[0]
    if found.sequence is None:
        assert (found.reason, truncation) == ("too_long", "response")
        return
    pieces = [TOKENIZER.backend_tokenizer.id_to_token(number) for number in found.sequence.ids.tolist()]
    said = [(role, content.split()) for role, content in (*turns, ("assistant", response))]
    whole = [word for role, words in said for word in (role, ":", *words, "!")]
    assert found.tokens == len(whole)
    if found.tokens <= limit:
        assert pieces == whole
        return
    assert limit == len(pieces)
    # Each turn is there with its role; of the prompt, only its one end is cut.
    parts = " ".join(pieces).removesuffix(" !").split(" !")
    kept = [part.split()[2:] for part in parts]
    assert [part.split()[0] for part in parts] == [role for role, _ in said]
    before = [word for words in kept[:-1] for word in words]
    original = [word for _, words in said[:-1] for word in words]
    assert before == (original[: len(before)] if side == "right" else original[len(original) - len(before) :])


def test_a_template_that_does_not_take_these_turns() -> None:
    chats = [[("user", "why")], [("system", "tell me"), ("user", "why")], []]
    found = turns_builder(STRICT, 20).build([as_json(turns) for turns in chats], ["yes", "yes", "yes"])
    assert [item.reason for item in found] == [None, "refused_by_template", None]
    assert [item.tokens for item in found] == [1, 0, 1]


def test_a_text_of_special_tokens_only_has_no_room() -> None:
    found = builder("why is it that this is a question {response}", 8, "longest_first").build([None], ["no"])[0]
    assert (found.sequence, found.reason, found.tokens) == (None, "too_long", 11)


# Batches


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200), st.sampled_from([None, 1, 3]))
def test_batches_hold_each_sequence_once_and_keep_the_budget(lengths: list[int], budget: int, most: int | None) -> None:
    batches = list(cut_batches(lengths, budget, most))
    rows = [row for batch in batches for row in batch.tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget
        assert most is None or len(batch) <= most


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=9), st.booleans())
def test_padding_and_halves(lists: list[list[int]], left: bool) -> None:
    sequences = [TokenSequence(np.array(ids), np.array(ids) % 2) for ids in lists]
    batch = pad(sequences, np.arange(len(lists)), 0, left)
    parts = [batch] if len(lists) == 1 else [batch, *batch.halves()]
    assert sum(len(part.rows) for part in parts[1:]) == (len(lists) if len(lists) > 1 else 0)
    for part in parts:
        longest = max(len(lists[row]) for row in part.rows)
        assert part.ids.shape == part.mask.shape == part.types.shape == (len(part.rows), longest)
        for row, ids, mask, types in zip(part.rows, part.ids, part.mask, part.types, strict=True):
            assert ids[mask == 1].tolist() == lists[row]
            assert types[mask == 1].tolist() == [number % 2 for number in lists[row]]
            assert not ids[mask == 0].any()
            begin = longest - len(lists[row]) if left else 0
            assert mask.tolist() == [int(begin <= place < begin + len(lists[row])) for place in range(longest)]
