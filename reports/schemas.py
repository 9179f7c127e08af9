"""JSON Schemas of ``report.json`` and ``manifest.json``."""

from __future__ import annotations

from typing import Any

from reports.contamination import BENCHMARK_COUNTS
from reports.drop_report import STAGE_COUNTS
from reports.manifest import MIXTURES
from reports.mixture import SIDES
from reports.text_sizes import STAGE_SIZES, UNITS

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_HEX: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]+$"}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


_BALANCE = _object(dict.fromkeys(("read", "kept", "dropped", "dead"), _COUNT))
_REST = _object({**dict.fromkeys(("read", "kept", "dropped", "dead"), _COUNT), "names": _COUNT})


def report_schema() -> dict[str, Any]:
    """Return the schema of the drop report."""
    stage = _object(
        {
            "name": {"type": "string"},
            **dict.fromkeys((*STAGE_COUNTS, *STAGE_SIZES), _COUNT),
            "rules": _map(_object({"first": _COUNT, "alone": _COUNT})),
            "notices": _map(_COUNT),
        },
        ("notices", *STAGE_SIZES),
    )
    units = dict.fromkeys(("leaders", "copies_kept", "leader_units", "copy_units_kept"), _COUNT)
    units["achieved"] = {"type": ["number", "null"], "minimum": 0}
    duplicates = dict.fromkeys(
        ("clusters", "copies_available", "limit", "leaders_dropped_later", "copies_of_leaders_dropped_later"), _COUNT
    )
    groups = {
        f"{prefix}_{group}": schema
        for group in ("source", "language")
        for prefix, schema in (("by", _map(_BALANCE)), ("no", _BALANCE), ("other", _REST))
    }
    properties = {
        "records": _BALANCE,
        "files_failed": _COUNT,
        "dead_letters": _map(_COUNT),
        "stages": {"type": "array", "items": stage, "minItems": 1},
        **groups,
        "duplicates": _map(
            _object(
                {
                    **duplicates,
                    **units,
                    "in_output": _object(units),
                    "budget_unit": {"enum": ["records", "characters", "tokens"]},
                    "pairs": _object(dict.fromkeys(("proposed", "verified", "at_threshold", "not_compared"), _COUNT)),
                    "bands": _object(dict.fromkeys(("bands", "rows"), _COUNT)),
                    "s_curve": _map({"type": "number", "minimum": 0, "maximum": 1}),
                },
                ("pairs", "bands", "s_curve"),
            )
        ),
        "contamination": _map(
            _map(
                _object(
                    {
                        **dict.fromkeys(BENCHMARK_COUNTS, _COUNT),
                        "share": {"type": "number", "minimum": 0, "maximum": 1},
                        "ids": {"type": "array", "items": {"type": "string"}},
                    }
                )
            )
        ),
        "boilerplate": _map(
            _object(
                {
                    **dict.fromkeys(("ngrams", "by_list", "sources"), _COUNT),
                    "first": {
                        "type": "array",
                        "items": _object({"item": {"type": "string"}, "words": {"type": "array", "items": _COUNT}}),
                    },
                }
            )
        ),
        "quarantine": _map(
            _object(
                {
                    "by": {"enum": ["source", "file"]},
                    **dict.fromkeys(("judged", "set_aside"), _COUNT),
                    "groups": {"type": "array", "items": _quarantined_schema()},
                }
            )
        ),
        "scores": _map(_score_schema()),
        "mixture": _map({"type": "array", "items": _mixture_schema()}),
        "overlap": _map(_map(_COUNT)),
        "repeated_ids": _COUNT,
    }
    optional = (
        "repeated_ids",
        "boilerplate",
        "quarantine",
        "scores",
        *(name for name in groups if not name.startswith("by_")),
    )
    return _document("report", _object(properties, optional))


def _mixture_schema() -> dict[str, Any]:
    share = {"type": "number", "minimum": 0, "maximum": 1}
    properties: dict[str, Any] = {"name": {"type": ["string", "null"]}, "names": _COUNT}
    optional = ["names"]
    for size in ("", "characters_", *(f"{unit}_" for unit in UNITS)):
        own = {f"{size}{side}": _COUNT for side in SIDES} | {f"{size}share_{side}": share for side in SIDES}
        properties |= own
        if size.removesuffix("_") in UNITS:
            optional += own
    return _object(properties, tuple(optional))


def _quarantined_schema() -> dict[str, Any]:
    shares = ("dead_share", "drop_share", "dead_deviation", "drop_deviation")
    return _object(
        {
            "name": {"type": "string"},
            **dict.fromkeys(("read", "dead", "dropped"), _COUNT),
            **{name: {"type": "number"} for name in shares},
            "limits": {"type": "array", "items": {"type": "string"}},
        }
    )


def _score_schema() -> dict[str, Any]:
    number = {"type": ["number", "null"]}
    values = _map({"type": "number"})
    means = ("mean", "mean_of_kept", "mean_of_dropped", "correlation_with_length")
    return _object(
        {
            **dict.fromkeys(("scored", "truncated"), _COUNT),
            "unscorable": _map(_COUNT),
            **dict.fromkeys(means, number),
            "quantiles": values,
            "quantiles_by_language": _map(values),
            "quantiles_by_source": _map(values),
            "curve": {"type": "array", "items": _object({"at_least": {"type": "number"}, "kept": _COUNT})},
        }
    )


def manifest_schema() -> dict[str, Any]:
    """Return the schema of the manifest."""
    input_file = _object(
        {"file": {"type": "string"}, "rows": _COUNT, "digest": _HEX, "failed": {"type": "boolean"}},
    )
    output = _object({"file": {"type": "string"}, "rows": _COUNT, "bytes": _COUNT, "sha256": _HEX})
    return _document(
        "manifest",
        _object(
            {
                "thresher_version": {"type": "string"},
                "format_version": {"const": 1},
                "config_hash": _HEX,
                "config": {"type": "object"},
                "inputs": {"type": "array", "items": input_file},
                "records": _BALANCE,
                **dict.fromkeys(MIXTURES, _map(_map(_COUNT))),
                "content_digest": _HEX,
                "outputs": {"type": "array", "items": output},
                "manifest_hash": _HEX,
            }
        ),
    )


def _document(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Thresher {name}", **schema}
