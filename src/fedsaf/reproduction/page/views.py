"""What the page shows, as plain values for its template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsaf.reproduction.claims.judging import Judged
from fedsaf.reproduction.claims.text import decided_by, effect_text, runs_of
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.measures import MIB
from fedsaf.reproduction.render import caption, cell_parts, headings, label_of, remarks
from fedsaf.reproduction.tables import Cell, FilledTable

View = dict[str, Any]
RUN_HEADINGS = (
    ("Scale", True),
    ("Data", True),
    ("Partition", True),
    ("Models", True),
    ("Method", True),
    ("Alignment", True),
    ("Constructor", True),
    ("Seed", True),
    ("Rounds", False),
    ("Best", False),
    ("Last", False),
    ("Rule", True),
    ("Upload MiB", False),
    ("Download MiB", False),
    ("Minutes", False),
    ("Commit", False),
)
"""Columns of the table of runs after the name, and whether one filters by their values."""


@dataclass(frozen=True)
class _Entry:
    """One entry of a row: what is read, and the exact value that is sorted by."""

    text: str
    value: Any
    is_number: bool = False


def run_view(run: RecordedRun) -> View:
    """Return the row of a run, its numbers as recorded in its summary."""
    summary, choices = run.summary, run.choices
    rule = summary["predictor"]
    accuracies = summary.get(rule) or {}
    cells = [
        _word(run.config.get("scale")),
        _word(choices.get("dataset"), run.config.get("stand_in_for") and f"for {run.config['stand_in_for']}"),
        _word(choices.get("partition"), _alpha(run)),
        _word(choices.get("model_group")),
        *(_word(choices.get(group)) for group in ("method", "alignment", "prototype")),
        _number(run.seed, "d"),
        _number(summary["rounds"], "d"),
        _percent(accuracies.get("best")),
        _percent(accuracies.get("last")),
        _word(rule.replace("_", " ")),
        _number(summary["upload_bytes"] / MIB, ".2f"),
        _number(summary["download_bytes"] / MIB, ".2f"),
        _minutes(summary),
        _word((run.commit or "")[:10]),
    ]
    settings = {"seed": run.seed, **run.values}
    lines = [f"{group}={choice}" for group, choice in sorted(choices.items())]
    lines += [f"{key}: {value}" for key, value in sorted(settings.items(), key=lambda item: item[0])]
    return {
        "name": run.folder.name,
        "scale": run.config.get("scale") or "",
        "cells": cells,
        "settings": "\n".join(lines),
    }


def aside_view(folder: SetAside) -> View:
    """Return the row of a folder that does not count."""
    kind = "fault" if folder.is_fault else "unfinished"
    return {"name": str(folder.folder), "kind": kind, "reason": folder.reason}


def claim_view(judged: Judged) -> View:
    """Return the row of a claim."""
    return {
        "name": judged.claim.name,
        "source": judged.claim.paper.partition(",")[0],
        "paper": judged.claim.paper,
        "text": judged.claim.text,
        "decided_by": decided_by(judged),
        "scale": judged.scale if judged.has_runs else "",
        "num_runs": len(judged.runs),
        "runs": runs_of(judged),
        "effects": [effect_text(judged, effect) for effect in judged.effects],
        "verdict": judged.verdict,
        "reason": judged.reason,
    }


def table_view(table: FilledTable) -> View:
    """Return a table with its cells; one without any number of ours belongs to no scale and shows what is printed."""
    rows = [
        {"label": label_of(labels), "cells": [_cell_view(table, cell) for cell in row]}
        for labels, row in zip(table.definition.rows, table.cells, strict=True)
    ]
    axes = [axis for axis in table.definition.rows[0] if axis in ("method", "setting")]
    return {
        "id": f"{table.definition.name}-{table.scale}",
        "title": table.definition.title + ("" if table.num_filled else " (not run)"),
        "scale": table.scale if table.num_filled else "",
        "caption": caption(table) if table.num_filled else f"As printed; runs of ours: {table.definition.target}.",
        "axis": (axes or ["row"])[0].capitalize(),
        "headings": headings(table),
        "rows": rows,
        "remarks": [{"text": f"{where}: {text}", "is_problem": problem} for where, text, problem in remarks(table)],
    }


def _cell_view(table: FilledTable, cell: Cell) -> View:
    printed = cell.paper.mean if cell.paper and not table.num_filled else ""
    parts = [
        {"text": text, "own": cell.ours is not None and number == 0} for number, text in enumerate(cell_parts(cell))
    ]
    return {
        "value": printed if cell.ours is None else repr(cell.ours.mean),
        "runs": " ".join(cell.runs),
        "parts": parts,
    }


def _word(value: Any, more: str | None = None) -> _Entry:
    text = " ".join(str(part) for part in (value, more) if part)
    return _Entry(text, text)


def _number(value: float, form: str) -> _Entry:
    return _Entry(format(value, form), value, True)


def _percent(accuracy: Mapping[str, Any] | None) -> _Entry:
    return _number(100 * accuracy["pooled"], ".2f") if accuracy else _Entry("", "", True)


def _minutes(summary: Mapping[str, Any]) -> _Entry:
    seconds = (summary.get("seconds") or {}).get("total")
    return _Entry("", "", True) if seconds is None else _number(seconds / 60, ".1f")


def _alpha(run: RecordedRun) -> str:
    alpha = run.values.get("partition.alpha")
    return "" if alpha is None or str(alpha) in run.choices.get("partition", "") else f"alpha {alpha}"
