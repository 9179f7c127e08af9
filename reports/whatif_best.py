"""Which records a scorer keeps as the best ones under other limits, from the scores that a run has stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpus.selection import pack_totals
from reports.whatif_duplicates import STAYS, UNKNOWN, Outcome, UndecidedError
from reports.whatif_tables import Mask, StoredSignals
from scorers.best import BestStage
from scorers.scoring import SCORE, SCORED


def best(stage: BestStage, signals: StoredSignals, entering: Mask) -> Outcome:
    """Return which of the records that enter a scorer are among the best.

    Of records with the score at which a group is cut, a hash of their texts decides which ones stay. It is not stored,
    so only their number is known.

    Args:
        entering: bool[n], the records that enter; all were scored in the run, or found to have no score.

    Raises:
        UndecidedError: the groups are a column that was not stored.
    """
    keep = stage.keep
    if "keep.per" in stage.user_columns():
        raise UndecidedError(f"the column {keep.per}, by which it keeps the best, is not among the signals")
    places = np.flatnonzero(entering)
    taken = pa.array(places)
    scores = signals.all(f"{stage.name}.{SCORE}").take(taken)
    scored = scores.is_valid().to_numpy(zero_copy_only=False)
    columns = {name: signals.all(name).take(taken) for name in stage.signal_columns()}
    columns["source"] = signals.all("source").take(taken)
    batch = pa.RecordBatch.from_pydict(columns)
    groups = stage.groups(batch, batch)
    values = scores.fill_null(0).to_numpy()
    numbers = {rule.signal: number for number, rule in reversed(list(enumerate(stage.rules())))}
    here = np.full(len(places), STAYS, np.int8)
    if SCORED in numbers:
        here[~scored] = numbers[SCORED]
    here[scored] = numbers[SCORE]
    ones = np.ones(int(scored.sum()), np.int64)
    staying = 0
    for number, limit in zip(
        *(part.tolist() for part in stage.limits(pack_totals(groups[scored], ones, ones))), strict=True
    ):
        of_group = np.flatnonzero(scored & (groups == number))
        if limit >= len(of_group):
            here[of_group] = STAYS
        elif limit > 0:
            own = values[of_group]
            cutoff = np.partition(own, len(own) - limit)[len(own) - limit]
            above, tied = of_group[own > cutoff], of_group[own == cutoff]
            here[above] = STAYS
            room = limit - len(above)
            here[tied] = STAYS if room == len(tied) else UNKNOWN
            staying += room if room < len(tied) else 0
    codes = np.full(len(entering), STAYS, np.int8)
    codes[places] = here
    return Outcome(codes, (staying, staying), numbers[SCORE])
