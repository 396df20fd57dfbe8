"""All pages that compare what algorithms learn, by the names of their files in ``docs``."""

from collections.abc import Mapping

from learning_task import Page
from mujoco_compositions import MUJOCO
from policies_compositions import POLICIES
from values_compositions import VALUES

PAGES: Mapping[str, Page] = {"mujoco": MUJOCO, "policy-learning": POLICIES, "values": VALUES}
