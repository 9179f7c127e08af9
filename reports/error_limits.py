"""Whether a run has too many errors: dead letters and failed files against ``input.max_errors``.

Counts are whole numbers and shares exact decimals, so that neither the order of the batches nor rounding decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from corpus.inputs import ErrorLimits, InputConfig
from corpus.selection_limits import exact_decimal
from reports.counts import balance

LISTED = 10
"""Sources or files that the message names."""


@dataclass(frozen=True)
class ErrorGroup:
    """What a limit is compared with: the run, a source or a file.

    Attributes:
        name: of the source or file; None for the run, and for records whose source is null.
        errors: dead letters and failed files.
        read: records read; a failed file is none of them.
    """

    name: str | None
    errors: int
    read: int

    @property
    def share(self) -> Fraction:
        """Errors as a share of the records read, at most 1; a file of which nothing was read is all error."""
        return Fraction(min(self.errors, self.read), self.read) if self.read else Fraction(min(self.errors, 1))

    def exceeds(self, limits: ErrorLimits) -> bool:
        """Say whether the group is beyond one of the limits."""
        if limits.count is not None and self.errors > limits.count:
            return True
        return limits.share is not None and self.share > Fraction(exact_decimal(limits.share))

    def __str__(self) -> str:
        name = "(no source)" if self.name is None else self.name.replace("\n", "\\n")
        return f"{name} ({self.errors:,} of {self.read:,})"


def error_groups(counts: Mapping[str, Any], per: str) -> list[ErrorGroup]:
    """Return the errors of the run, of each source or of each file.

    A line that cannot be decoded, whose source nobody knows, and a file that cannot be read count for the file, which
    is measured against the records read from it. Records with a null source are a group without a name.

    Args:
        counts: what the table shards counted (``reports.batch_counts``); reports list the largest sources only.
        per: ``all``, ``source`` or ``file``.
    """
    failed: Mapping[str, int] = counts.get("file_faults", {})
    if per == "all":
        records = {**balance(), **counts.get("records", {})}
        return [ErrorGroup(None, records["dead"] + len(failed), records["read"])]
    files: Mapping[str, Any] = counts.get("files", {})
    sources: Mapping[str, Any] = counts.get("by_source", {})
    groups = []
    for name in sorted({*(files if per == "file" else sources), *failed}):
        of_file, of_source = files.get(name, {}), sources.get(name, {})
        if per == "file":
            dead, read = of_file.get("dead", 0), of_file.get("rows", 0)
        else:
            dead, read = of_source.get("dead", 0), max(of_source.get("read", 0), of_file.get("rows", 0))
        groups.append(ErrorGroup(name, dead + (name in failed), read))
    if per == "source" and "no_source" in counts:
        groups.append(ErrorGroup(None, counts["no_source"]["dead"], counts["no_source"]["read"]))
    return groups


def too_many_errors(config: InputConfig, counts: Mapping[str, Any]) -> str | None:
    """Return how ``input.max_errors`` is exceeded, None where it is not; at most ten groups are named, worst first.

    Args:
        config: the input section.
        counts: what the table shards counted.
    """
    limits = config.error_limits
    if limits is None:
        return None
    beyond = [group for group in error_groups(counts, limits.per) if group.exceeds(limits)]
    if not beyond:
        return None
    limit = _described(config, limits)
    if limits.per == "all":
        (group,) = beyond
        read = "" if limits.share is None else f" of {group.read:,} records ({100 * float(group.share):.3g} %)"
        return f"{group.errors} dead letters and failed files{read}, more than {limit}"
    if limits.share is None:
        beyond.sort(key=lambda group: (-group.errors, group.name or ""))
    else:
        beyond.sort(key=lambda group: (-group.share, -group.errors, group.name or ""))
    named = ", ".join(map(str, beyond[:LISTED]))
    more = f" and {len(beyond) - LISTED:,} more" if len(beyond) > LISTED else ""
    kind = f"{limits.per} has" if len(beyond) == 1 else f"{limits.per}s have"
    return f"{len(beyond):,} {kind} more dead letters and failed files than {limit}, the worst: {named}{more}"


def _described(config: InputConfig, limits: ErrorLimits) -> str:
    if not isinstance(config.max_errors, ErrorLimits):
        return f"input.max_errors ({config.max_errors})"
    given = {"count": limits.count, "share": limits.share}
    return " or ".join(f"input.max_errors.{name} ({value})" for name, value in given.items() if value is not None)
