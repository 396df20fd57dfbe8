"""All pages that compare the returns of algorithms, by the names of their files in ``docs``."""

from collections.abc import Mapping

from benchmarks.learning.learning_task import Page
from benchmarks.learning.mujoco_compositions import MUJOCO
from benchmarks.learning.policies_compositions import POLICIES
from benchmarks.learning.strategies_compositions import STRATEGIES_PAGE
from benchmarks.learning.values_compositions import VALUES

PAGES: Mapping[str, Page] = {
    "mujoco": MUJOCO,
    "policy-learning": POLICIES,
    "replay-strategies": STRATEGIES_PAGE,
    "values": VALUES,
}
