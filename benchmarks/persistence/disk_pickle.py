"""A pickled list of transitions, the common way without a storage on disk, whose size ours is compared with."""

import pickle
from pathlib import Path

from benchmarks.storages.replay_content import Content


class PickledList:
    """A dict for each transition with the environment's arrays; pickle writes each shared observation once."""

    name = "pickled list"
    share_of_filling = 1

    def fill(self, content: Content, folder: Path) -> None:
        """Write the file."""
        assert content.environments == 1
        assert content.transitions == len(content.observation)
        transitions = []
        observation = content.observation[0, 0]
        for step in range(content.transitions):
            following = content.next_observation[step, 0]
            transitions.append(
                {
                    "observation": observation,
                    "action": content.action[step, 0, 0],
                    "reward": float(content.reward[step, 0, 0]),
                    "next_observation": following,
                    "terminated": bool(content.terminated[step, 0, 0]),
                    "truncated": bool(content.truncated[step, 0, 0]),
                }
            )
            ended = content.done[step, 0, 0] and step + 1 < content.transitions
            observation = content.observation[step + 1, 0] if ended else following
        folder.mkdir()
        (folder / "transitions.pickle").write_bytes(pickle.dumps(transitions))
