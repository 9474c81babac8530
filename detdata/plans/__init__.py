"""Plans: global step -> global batch -> a rank's part, and back."""

from detdata.plans.batch import Batch
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.pack_plan import PackPlan
from detdata.plans.per_source import per_source
from detdata.plans.plan import Plan
from detdata.plans.rebuilt import from_spec

__all__ = ["Batch", "BucketPlan", "PackPlan", "Plan", "from_spec", "per_source"]
