"""All pages that compare what algorithms learn, by the names of their files in ``docs``."""

from collections.abc import Mapping

from learning_task import Page
from values_compositions import VALUES

PAGES: Mapping[str, Page] = {"values": VALUES}
