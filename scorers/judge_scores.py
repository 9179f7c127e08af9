"""Judgements that arrive one by one, and several judgements of one record, put together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scorers.score_table import Part
from scorers.scoring import DECIMALS, Scores

REPLY, TOKENS, SPREAD = "reply", "tokens", "spread"


def gathered(count: int, parts: Iterator[Part]) -> Scores:
    """Return results that arrived in any order as those of ``count`` records."""
    found = list(parts)
    rows = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in found)])
    order = pa.array(np.argsort(rows))
    assert len(rows) == count
    values = np.concatenate([np.zeros(0), *(scores.values for _, scores in found)])[order]
    reasons = [reason for _, scores in found for reason in scores.reasons]
    more = {
        name: pa.concat_arrays([pa.array([], kind), *(scores.more[name] for _, scores in found)]).take(order)
        for name, kind in ((REPLY, pa.string()), (TOKENS, pa.int64()))
    }
    return Scores(values, [reasons[place] for place in order.to_pylist()], more)


def mean_judgement(judgements: list[Scores]) -> Scores:
    """Return the mean of several judgements of the same records; where one has no score, there is none."""
    values = np.stack([one.values for one in judgements])
    known = np.isfinite(values).all(axis=0)
    mean = np.where(known, values.sum(axis=0) / len(judgements), np.nan)
    apart = pa.array(np.round(values.max(axis=0) - values.min(axis=0), DECIMALS), mask=~known)
    # The number of the first judgement without a score; the first of all where each has one.
    which = np.argmin(np.isfinite(values), axis=0)
    reasons = [judgements[number].reasons[row] for row, number in enumerate(which.tolist())]
    replies = pc.choose(pa.array(which), *(one.more[REPLY] for one in judgements))
    tokens = judgements[0].more[TOKENS]
    for one in judgements[1:]:
        tokens = pc.add(tokens, one.more[TOKENS])
    return Scores(mean, reasons, {REPLY: replies, TOKENS: tokens, SPREAD: apart})
