"""All planted defects."""

from collections.abc import Sequence

from tests.chaos.light.schedules import SCHEDULES
from tests.chaos.planted.admission_defects import DEFECTS as ADMISSION
from tests.chaos.planted.breaker_defects import DEFECTS as BREAKER
from tests.chaos.planted.cluster_defects import DEFECTS as CLUSTER
from tests.chaos.planted.controller_defects import DEFECTS as CONTROLLER
from tests.chaos.planted.defect import Defect
from tests.chaos.planted.etcd_defects import DEFECTS as ETCD
from tests.chaos.planted.fallback_defects import DEFECTS as FALLBACK
from tests.chaos.planted.store_defects import DEFECTS as STORE

DEFECTS: Sequence[Defect] = (*STORE, *FALLBACK, *BREAKER, *ADMISSION, *CONTROLLER, *ETCD, *CLUSTER)


def is_light(defect: Defect) -> bool:
    """Return whether a defect shows in the light stage; else it shows in a virtual one."""
    return defect.stage in SCHEDULES
