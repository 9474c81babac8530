"""Plans: global step -> global batch -> a rank's part, and back."""

from detdata.plans.batch import Batch
from detdata.plans.plan import Plan

__all__ = ["Batch", "Plan"]
