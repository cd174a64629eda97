"""Set-up of `make test`: downloads what these tests run."""

from tests.monitoring.operator_crds import operator_crds
from tests.monitoring.programs import programs

if __name__ == "__main__":
    programs()
    operator_crds()
