"""The stage ``near_duplicates``: one record stays of all that are similar to it, each removal proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from corpus.stages import StageConfig, TextField, stage
from dedup.bands import Bands, choose_bands, explicit_bands
from dedup.duplicates import DuplicateConfig, DuplicateStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

CURVE = tuple(round(0.05 * step, 2) for step in range(21))
# A batch has at most 16 MiB of text and 65,536 rows; the kernels want all rows looked at.
Count = Annotated[int, Field(ge=1)]


class NearDuplicatesConfig(DuplicateConfig):
    """Settings of ``near_duplicates``."""

    threshold: float = Field(
        default=0.8, gt=0, le=1, description="Least Jaccard similarity of the shingle sets of two duplicates."
    )
    shingle_tokens: Count = Field(default=5, description="Tokens in a shingle.")
    permutations: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=112, description="Values of a MinHash signature."
    )
    catch_probability: float = Field(
        default=0.99,
        gt=0,
        le=1,
        description="Probability that a pair exactly at the threshold is compared; the bands are chosen by it.",
    )
    bands: Count | None = Field(default=None, description="Number of bands, together with rows; default chosen.")
    rows: Count | None = Field(default=None, description="Values in a band, together with bands; default chosen.")
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = Field(default=1, description="Seed of the permutations.")
    max_bucket: Annotated[int, Field(ge=2)] = Field(
        default=1000, description="Records with one band key up to which all pairs are compared."
    )
    max_forest_edges: Annotated[int, Field(ge=1, le=4 << 20)] = Field(
        default=4 << 20,
        description="Records with near-duplicates whose clusters are found in one process (16 bytes each in every "
        "worker); beyond it by rounds, a job each, with the same result.",
    )

    @model_validator(mode="after")
    def _bands_fit(self) -> NearDuplicatesConfig:
        if (self.bands is None) != (self.rows is None):
            raise ValueError("bands and rows go together: give both or neither")
        self.chosen_bands()
        return self

    def chosen_bands(self) -> Bands:
        """Return the bands that are given, or those that threshold and catch_probability lead to."""
        if self.bands is not None and self.rows is not None:
            return explicit_bands(self.bands, self.rows, self.permutations)
        return choose_bands(self.threshold, self.permutations, self.catch_probability)


@stage("near_duplicates")
class NearDuplicates(DuplicateStage):
    """Keeps one record of each cluster of near-duplicates.

    Tokens, shingles and similarity are those of ``dedup.tokens`` and ``dedup.shingles``; MinHash signatures (Broder,
    "On the resemblance and containment of documents", 1997) propose pairs, and the exact Jaccard similarity decides. In
    one total order (priority, longer first, content hash, record_id, file, position) a record leaves if it is similar
    to an earlier record that stays; the earliest of these is its leader. So no record leaves for being similar to one
    that left itself. A text without tokens is only a duplicate of equal texts.
    """

    Config = NearDuplicatesConfig
    summary = "Keeps one record of each cluster of near-duplicates, by proven Jaccard similarity of word 5-grams."
    config: NearDuplicatesConfig

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        super().__init__(config, name, text_field)
        self._chosen = self.config.chosen_bands()
        self.permutations = self.config.permutations
        self.bands = self._chosen.bands
        self.rows = self._chosen.rows
        self.max_bucket = self.config.max_bucket
        self.max_forest_edges = self.config.max_forest_edges
        self._constants: Any = None

    def similarity_threshold(self) -> float:
        """Return the threshold."""
        return self.config.threshold

    def prepare(self) -> None:
        """Load the kernels and draw the permutations. Raises UsageError as the base class does."""
        super().prepare()
        import dedup.bands_kernel
        import dedup.shingles_kernel
        import dedup.signatures_kernel  # noqa: F401
        from dedup.signatures import permutation_constants
        from dedup.tokens import token_table

        token_table()
        self._constants = permutation_constants(self.permutations, self.config.seed)

    def sketch(self, texts: pa.StringArray) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """Return MinHash signatures, and which texts have tokens."""
        import numpy as np

        from dedup.signatures import signatures

        if self._constants is None:
            self.prepare()
        values, counts = signatures(texts, np.ones(len(texts), np.bool_), self.config.shingle_tokens, self._constants)
        return values, counts > 0

    def band_keys(self, signatures: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
        """Return the keys of the bands."""
        import numpy as np

        from dedup.bands_kernel import band_keys

        return band_keys(signatures, np.ones(len(signatures), np.bool_), self.bands, self._chosen.rows)

    def shingle_sets(
        self, texts: pa.StringArray, rows: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Return the sorted shingle hashes."""
        from dedup.shingles import shingle_sets

        return shingle_sets(texts, rows, self.config.shingle_tokens)

    def summary_details(self) -> Mapping[str, Any]:
        """Return the bands and the S-curve: the probability that a pair is compared, by its similarity."""
        chosen = self._chosen
        curve = dict(zip(map(str, CURVE), chosen.curve(CURVE), strict=True))
        return {"bands": {"bands": chosen.bands, "rows": chosen.rows}, "s_curve": curve}
