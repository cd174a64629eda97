"""All simulations, by name."""

from tests.simulation.breakers import Breakers
from tests.simulation.charges import Charges
from tests.simulation.releases import Releases
from tests.simulation.rollouts import Rollouts
from tests.simulation.slots import Slots
from tests.simulation.wakings import Wakings
from tests.simulation.world import Simulation

SIMULATIONS: tuple[type[Simulation], ...] = (Charges, Breakers, Releases, Rollouts, Slots, Wakings)
BY_NAME = {simulation.name: simulation for simulation in SIMULATIONS}
