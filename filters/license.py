"""Allow and deny lists of licences: the stage ``license``.

Names and expressions are those of SPDX (https://spdx.github.io/spdx-spec/v2.3/SPDX-license-expressions/).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from corpus.stages import Off, RecordStage, Rule, Signal, StageConfig, TextBatch, stage

if TYPE_CHECKING:
    import pyarrow as pa

Name = Annotated[str, Field(pattern=r"\S")]
Names = Annotated[list[Name], Field(min_length=1)]

BLANKS = " \t\r\n"
UNKNOWN = ("", "noassertion", "none")


class LicenseConfig(StageConfig):
    """Settings of ``license``."""

    column: str = Field(
        default="license",
        min_length=1,
        description="Column of the records with the licence: an SPDX name or expression, or a list of them.",
    )
    allow: Names | Off = Field(
        default="off", description="SPDX names (MIT, Apache-2.0) of which a record needs one; off allows all."
    )
    deny: Names | Off = Field(default="off", description="SPDX names that drop a record.")
    missing: Literal["drop", "keep"] = Field(
        default="drop", description="What becomes of records without a licence, or with NOASSERTION or NONE."
    )

    @model_validator(mode="after")
    def _lists_differ(self) -> LicenseConfig:
        if self.allow != "off" and self.deny != "off":
            from filters.license_expression import lower

            both = {lower(name) for name in self.allow} & {lower(name) for name in self.deny}
            if both:
                raise ValueError(f"allow and deny both name {', '.join(sorted(both))}; leave it in one of them")
        return self


@stage("license")
class License(RecordStage):
    """Keeps records by the licence in a column of the user's.

    Names are compared without regard to capitals. A text that is no SPDX expression counts as one name as a whole
    (``BSD License``). In an expression, ``A OR B`` is allowed if one of them is, and denied if both are; ``A AND B`` is
    allowed if both are, and denied if one of them is. ``A WITH X`` is listed where it or ``A`` is. A list in the column
    counts as all of its entries, joined with AND. A value of another type counts as missing.

    The rules are asked in the order ``missing``, ``deny``, ``allow``.
    """

    Config = LicenseConfig
    summary = "Allow and deny lists of SPDX licences, over a column of the user's."
    config: LicenseConfig

    def user_columns(self) -> Mapping[str, str]:
        """Return the column of licences."""
        return {"column": self.config.column}

    def signals(self) -> tuple[Signal, ...]:
        """Return the licence and how the lists see it."""
        return (
            Signal("license", "string", "The licence as in the column, a list joined with AND; null if missing."),
            Signal("denied", "int64", "1 if the licence is denied, else 0; null if missing or deny is off."),
            Signal("allowed", "int64", "1 if the licence is allowed, else 0; null if missing or allow is off."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are on."""
        rules: list[Rule] = []
        if self.config.missing == "drop":
            rules.append(Rule("missing", "license", "is_set"))
        if self.config.deny != "off":
            rules.append(Rule("deny", "denied", "at_most", 0.0))
        if self.config.allow != "off":
            rules.append(Rule("allow", "allowed", "at_least", 1.0))
        return tuple(rules)

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the three signals of each record."""
        import pyarrow as pa

        from corpus.user_columns import user_values
        from filters.license_expression import judge, lower

        allow = None if self.config.allow == "off" else frozenset(map(lower, self.config.allow))
        deny = None if self.config.deny == "off" else frozenset(map(lower, self.config.deny))
        known: dict[str | None, tuple[int | None, int | None]] = {None: (None, None)}
        licenses = [_license(value) for value in user_values(batch.records, self.config.column)]
        for text in licenses:
            if text is not None and text not in known:
                known[text] = (
                    None if deny is None else int(judge(text, deny, every_choice=True)),
                    None if allow is None else int(judge(text, allow, every_choice=False)),
                )
        return {
            "license": pa.array(licenses, pa.string()),
            "denied": pa.array([known[text][0] for text in licenses], pa.int64()),
            "allowed": pa.array([known[text][1] for text in licenses], pa.int64()),
        }


def _license(value: Any) -> str | None:
    """Return the licence in a column's value as one text; None if there is none."""
    from filters.license_expression import lower

    entries = value if isinstance(value, list) else [value]
    texts = [entry.strip(BLANKS) for entry in entries if isinstance(entry, str)]
    named = [text for text in texts if lower(text) not in UNKNOWN]
    if len(named) < 2:
        return named[0] if named else None
    return " AND ".join(f"({text})" if " " in text else text for text in named)
