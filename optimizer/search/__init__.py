"""Ways to search. A new strategy is one module and one line here."""

from optimizer.search.base import Strategy
from optimizer.search.baselines import Reflexion, Sampling
from optimizer.search.islands import Islands
from optimizer.search.scientist import Scientist
from optimizer.search.stark import Stark
from optimizer.search.tune import Tune

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (Tune(), Scientist(), Stark(), Islands(), Sampling(), Reflexion())
}
