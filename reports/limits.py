"""How far two runs may differ, and what a run has to be like to be published. Config models; nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corpus.stages import Off

Share = Annotated[float, Field(ge=0, le=1)]


class Limits(BaseModel):
    """Differences of two runs that are still fine; ``off`` asks for nothing."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    stability_index: Annotated[float, Field(ge=0)] | Off = Field(
        default=0.25, description="Largest population stability index of a signal."
    )
    kolmogorov_smirnov: Share | Off = Field(
        default="off", description="Largest Kolmogorov-Smirnov distance of a signal."
    )
    missing_share: Share | Off = Field(
        default=0.05, description="Largest change of the share of records without a signal."
    )
    kept_share: Share | Off = Field(default=0.05, description="Largest change of the share of records kept.")
    drop_share: Share | Off = Field(
        default=0.05,
        description="Largest change of the share of records that a rule drops of those that enter its stage.",
    )
    mixture: Share | Off = Field(
        default=0.1,
        description="Largest total variation of the languages, sources or licences of the records kept, or of a signal "
        "with at most 1,000 names.",
    )
    columns: bool = Field(default=True, description="Whether both outputs must have the same columns and types.")


class Checks(BaseModel):
    """What must hold before a run is published: section ``checks`` of a config."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    against: str | None = Field(default=None, min_length=1, description="Folder of an earlier run to compare with.")
    limits: Limits = Field(default=Limits(), description="How far the run may differ from that one.")
    maximum_drop_share: Mapping[str, Share] = Field(
        default_factory=dict, description="Largest share of the records entering a stage that it may drop, by stage."
    )
    maximum_dead_share: Share | Off = Field(
        default="off", description="Largest share of dead letters among the records read."
    )
    minimum_kept: Annotated[int, Field(ge=0)] = Field(default=0, description="Fewest records that must be kept.")
    minimum_language_share: Mapping[str, Share] = Field(
        default_factory=dict, description="Least share of languages among the records kept, such as {ko: 0.1}."
    )
    minimum_source_share: Mapping[str, Share] = Field(
        default_factory=dict, description="Least share of sources among the records kept."
    )
