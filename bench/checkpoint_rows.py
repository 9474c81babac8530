"""The rows of the group "checkpoint": saving and loading a model and its optimizer."""

from __future__ import annotations

import tempfile

from rows import Row, in_turn, missing

SIDES = ("torch", "dcp", "accelerate", "lightning")
NAMES = {"torch": "torch.save + fsync", "dcp": "DCP", "accelerate": "Accelerate", "lightning": "Lightning"}
BEHIND = {"torch": "torch.save, not synced", "copy": "one copy in memory", "dcp": "DCP async_save"}
NOT_SYNCED = {"accelerate", "lightning"}


def checkpoints(run, setting):
    width, layers = setting.checkpoint
    with tempfile.TemporaryDirectory(prefix="detdata-bench-checkpoint-") as folder:
        found = {}
        for case, sides in (
            ("checkpoint_save", SIDES),
            ("checkpoint_load", SIDES),
            ("checkpoint_background", BEHIND),
        ):
            arguments = {"folder": folder, "width": width, "layers": layers}
            cases = [(side, case, {"side": side, **arguments}) for side in ("ours", *sides)]
            found[case] = in_turn(run, setting.repeat, cases)
    saves, loads = found["checkpoint_save"], found["checkpoint_load"]
    held = saves["ours"].answers[0]["tensors"] / 1e6
    size = f"{held:,.0f} MB of model and AdamW state"
    for side in SIDES:
        what = f"save {size}, hashed and on disk"
        yield compared(f"checkpoint/save/{side}", what, saves, side, "not synced" if side in NOT_SYNCED else "")
    for side in SIDES:
        what, name = f"load {size}, every byte verified", {"torch": "torch.load"}.get(side)
        yield compared(f"checkpoint/load/{side}", what, loads, side, "nothing verified", name)
    for verb, answers in (("save", saves), ("load", loads)):
        for side in SIDES:
            what = f"{verb} {size}: peak memory"
            ours, theirs = answers["ours"].median("memory_mib"), answers[side]
            if not theirs.missing:
                row_id = f"checkpoint/{verb}/memory/{side}"
                yield Row(
                    row_id, what, "MiB", ours, theirs.median("memory_mib"), NAMES[side].removesuffix(".save + fsync")
                )
    behind = found["checkpoint_background"]
    for side, name in BEHIND.items():
        ours, theirs = behind["ours"], behind[side]
        wall, first = ours.median("wall_s"), ours.median("first_s")
        note = f"the first one {first:.2f} and {theirs.median('first_s'):.2f} s"
        what = f"save {size} behind the training: blocked"
        paired = ours.against(theirs, "wall_s")
        yield Row(f"checkpoint/background/{side}", what, "s", wall, theirs.median("wall_s"), name, note, paired=paired)
    on_disk = saves["ours"].median("bytes") / 1e6
    yield Row("checkpoint/bytes", f"{size}: bytes on disk", "MB", on_disk, held, "the tensors")


def compared(row_id, what, answers, side, note, name=None):
    ours, theirs = answers["ours"], answers[side]
    if theirs.missing:
        return missing(row_id, what, "s", ours.median("wall_s"), theirs)
    cpu = f"CPU {ours.median('cpu_s'):.2f} and {theirs.median('cpu_s'):.2f} s"
    note = f"{cpu}; {note}" if note else cpu
    paired = ours.against(theirs, "wall_s")
    wall = theirs.median("wall_s")
    return Row(row_id, what, "s", ours.median("wall_s"), wall, name or NAMES[side], note, paired=paired)


GROUPS = {"checkpoint": checkpoints}
