"""``python -m pytorchrl ls``: where it looks for runs."""

import sys
from pathlib import Path

import pytest

from pytorchrl.__main__ import main


def test_only_the_default_folder_of_runs_need_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls"])
    main()
    assert capsys.readouterr().out == "There is no run in runs.\n"
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls", "nothing"])
    with pytest.raises(SystemExit, match=r"^error: nothing does not exist; ls lists the runs in a folder"):
        main()
    Path("a-file").touch()
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "ls", "a-file"])
    with pytest.raises(SystemExit, match=r"^error: a-file is no folder; ls lists the runs in a folder"):
        main()
