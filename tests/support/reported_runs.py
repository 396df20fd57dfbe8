"""Run folders for reports: trained ones, and one whose texts are all markup."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytorchrl as prl
from tests.support.compositions import dqn_scheme

MARKUP = "</script><script>window.ran = true</script><img src=x onerror='window.ran = true'><b>bold"
"""A text that runs code if a page contains it without escaping."""
GIF = base64.b64decode("R0lGODlhAQABAIAAAP8AAP8AACwAAAAAAQABAAACAkQBADs=")
"""A picture of one red pixel."""


def trained(folder: Path, seed: int = 0, *, prioritised: bool = False) -> Path:
    """Train for a second, with evaluations."""
    storage = prl.PERBuffer.create_factory(size=150, alpha=0.6, epsilon=0.01) if prioritised else None
    learner = prl.Learner(dqn_scheme(seed, storage=storage), 400, folder, log_every=50)
    learner.run()
    learner.close()
    return folder


def runs_of_all_kinds(folder: Path) -> Path:
    """Two seeds of each of two compositions, a failed run, a hostile run, and a damaged one."""
    for name in ("uniform", "prioritised"):
        run = trained(folder / name / "seed-1", seed=1, prioritised=name == "prioritised")
        of_another_seed(run, folder / name / "seed-2", seed=2)
    videos = folder / "uniform" / "seed-1" / "videos"
    videos.mkdir()
    (videos / "steps-000000200.gif").write_bytes(GIF)
    failed = shutil.copytree(folder / "uniform" / "seed-2", folder / "failed")
    (failed / "error.txt").write_text("Traceback (most recent call last):\nValueError: the simulator is gone\n")
    (failed / "git_diff.patch").write_text("-gamma = 0.9\n+gamma = 0.99\n")
    hostile(folder / "uniform" / "seed-1", folder / "<b>hostile" / MARKUP.replace("/", "\N{DIVISION SLASH}"))
    damaged = shutil.copytree(folder / "uniform" / "seed-2", folder / "damaged")
    (damaged / "config.json").write_text("{}")
    return folder


def of_another_seed(run: Path, folder: Path, seed: int) -> Path:
    """Copy a run, with another seed and larger returns."""
    shutil.copytree(run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"seed": seed}))
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        record |= {name: value + seed for name, value in record.items() if name.endswith("/return")}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def hostile(run: Path, folder: Path) -> Path:
    """Copy a run, with markup in every text."""
    shutil.copytree(run, folder)
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config["algorithm"]["name"] = MARKUP
    config["algorithm"]["hyper_parameters"][MARKUP] = MARKUP
    config["train_envs"]["hyper_parameters"]["env"] = MARKUP
    config[MARKUP] = MARKUP
    (folder / "config.json").write_text(json.dumps(config))
    versions = json.loads((folder / "versions.json").read_text())
    versions |= {MARKUP: MARKUP, "command": [MARKUP], "git_commit": MARKUP}
    (folder / "versions.json").write_text(json.dumps(versions))
    records = [
        json.loads(line) | {MARKUP: 1.0, f"test/{MARKUP}/return": 2.0}
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "error.txt").write_text(MARKUP)
    (folder / "git_diff.patch").write_text(MARKUP)
    (folder / "videos" / f"{MARKUP.replace('/', '')}.gif").write_bytes(GIF)
    return folder
