"""Plans: global step -> global batch -> a rank's part, and back."""

from detdata.plans.batch import Batch
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.pack_plan import PackPlan
from detdata.plans.per_source import per_source
from detdata.plans.phases import Phases
from detdata.plans.plan import Plan
from detdata.plans.plan_mixture import PlanMixture
from detdata.plans.ramps import linear_ramp, ramped
from detdata.plans.rebuilt import from_spec
from detdata.plans.views import EveryEpoch

__all__ = [
    "Batch",
    "BucketPlan",
    "EveryEpoch",
    "PackPlan",
    "Phases",
    "Plan",
    "PlanMixture",
    "from_spec",
    "linear_ramp",
    "per_source",
    "ramped",
]
