"""The rows as text: a line each on the terminal, tables for docs/benchmarks.md."""

from __future__ import annotations

from rows import Row

HEADINGS = {
    "start": "Start: CPU time to a rank's first batch",
    "resume": "Resume",
    "epoch": "A whole epoch of ids",
    "loader": "The loader, end to end",
    "hash": "Versions of files: wall time, page cache warm",
    "rows": "Versions of tables: CPU time of one core",
    "checkpoint": "Checkpoints: wall time, page cache warm",
    "corpus": "Corpora: rows from any offset, and whole passes by two workers",
    "plans": "Plans: padding, CPU time of a step, building, resume",
}


def number(value):
    """Three significant digits, without an exponent."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(row):
    if row.ratio is None:
        return ""
    return f"{row.ratio:.2g}" if row.ratio < 0.1 else f"{row.ratio:.2f}"


def console(row):
    text = f"{row.id:36} {number(row.ours):>9} {row.unit:12}"
    if row.base is not None:
        text += f" {row.base_name} {number(row.base)}, ratio {ratio(row)}"
    return f"{text}  {row.note}".rstrip()


def markdown(result):
    rows, facts = [Row(**row) for row in result["rows"]], result["machine"]
    packages = ", ".join(f"{name} {release}" for name, release in facts["packages"].items())
    measured = (
        f"Measured {facts['date']} on {facts['cores']} cores of {facts['cpu']} ({facts['system']}, "
        f"Python {facts['python']}; {packages}). Load of the machine when the run began: {facts['load']}. "
        f"Rounds of each comparison: {facts['rounds']}, of an epoch's {facts['rounds'] + 4}, of the loader's "
        f"{facts['rounds'] + 8}."
    )
    lines = [measured, ""]
    for group, heading in HEADINGS.items():
        mine = [row for row in rows if row.id.split("/")[0] == group]
        if not mine:
            continue
        lines += [f"### {heading}", "", "| | detdata | otherwise | ratio | target | |", "|---|---|---|---|---|---|"]
        for row in mine:
            other = f"{number(row.base)} ({row.base_name})" if row.base is not None else ""
            cells = (row.what, f"{number(row.ours)} {row.unit}", other, ratio(row), row.verdict(), row.note)
            lines.append("| " + " | ".join("" if cell == "none" else cell for cell in cells) + " |")
        lines.append("")
    slower = sorted((row for row in rows if row.ratio is not None and row.ratio > 1), key=lambda row: -row.ratio)
    lines += ["### Where we are slower", ""]
    for row in slower:
        costs = f"{number(row.ours)} against {number(row.base)} {row.unit}"
        lines.append(f"- {row.what}: {ratio(row)} times what {row.base_name} takes ({costs}).")
    if not slower:
        lines.append("Nowhere in this run.")
    failed = [row for row in rows if row.met is False]
    lines += ["", "### Targets not met", ""]
    lines += [f"- {row.what}: {number(row.ours)} {row.unit}, {row.verdict()}." for row in failed] or ["None."]
    return "\n".join(lines) + "\n"
