"""A reader of a directory that another storage writes to sees a commit, and no damage."""

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest

from storages.persistent import DamageError, PersistenceError, read_state
from storages.persistent.replay.ring_manifest import RingManifest
from storages.transition import REW
from tests.support.directories import SIZE, Pair, made, small_segments


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("way", ["plain", "priority"])
def test_a_reader_beside_a_writer_sees_the_steps_of_a_commit(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_segments(3_000):
        pair = Pair(way, tmp_path, commit_every=3)
        step, number = pair._stream.step, itertools.count()
        # Each reward is the number of its step.
        monkeypatch.setattr(pair._stream, "step", lambda: step() | {REW: np.full((2, 1), next(number), np.float32)})
        pair.insert(9)
        pair.kept.flush()
        done, states, failures = threading.Event(), [], []

        def read() -> None:
            while not done.is_set():
                try:
                    states.append(read_state(tmp_path))
                except BaseException as error:
                    failures.append(error)
                    return

        reader = threading.Thread(target=read)
        reader.start()
        try:
            while len(states) < 40 and reader.is_alive():
                pair.insert(4)
                pair.update()
        finally:
            done.set()
            reader.join()
        assert not failures
        seen = [state["ring"]["steps"] for state in states]
        assert seen == sorted(seen)
        for state, steps in zip(states, seen, strict=True):
            read_again = made(way, None)
            read_again.load_state_dict(state)
            rewards = read_again.get_all_buffer_data()[REW]
            assert rewards[..., 0].tolist() == [[number, number] for number in range(max(0, steps - SIZE), steps)]
        pair.kept.flush()
        assert read_state(tmp_path)["ring"]["steps"] == pair.kept.ring.steps
        pair.close()


def test_a_manifest_that_is_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / RingManifest.name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PersistenceError, match=r"storage\.json is a symbolic link, which is not followed"):
        read_state(tmp_path)


def test_real_damage_is_reported_beside_a_writer(tmp_path: Path) -> None:
    pair = Pair("priority", tmp_path, commit_every=3)
    pair.insert(9)
    pair.kept.flush()
    path = max(tmp_path.glob("*.steps"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match=path.name):
        read_state(tmp_path)
    pair.close()


def test_reading_changes_no_files(tmp_path: Path) -> None:
    pair = Pair("priority", tmp_path, commit_every=3)
    pair.insert(9)
    pair.kept.flush()
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    read_state(tmp_path)
    with pytest.raises(PersistenceError, match="in use"):
        pair.open()
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
    pair.assert_same()
    pair.close()
