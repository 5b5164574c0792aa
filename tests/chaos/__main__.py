"""Run the whole site under faults.

    python -m tests.chaos --seed 1                            # short: 100 jobs, 20 faults
    python -m tests.chaos --seed 1 --jobs 1000 --faults 200   # long
    python -m tests.chaos --seed 1 --real                     # with a run whose jobs are compiled and timed
    python -m tests.chaos --campaign                          # a campaign, undisturbed and under faults
    python -m tests.chaos --campaign --seeds 3 --bench 3 --kernelbench DIR   # ten problems, tune and replayed agents

PostgreSQL, Redis, Daphne, timer, agents, build worker, measuring workers of two targets, a spool with its worker and
its exchange, under the product's own supervisor; runs that tune, runs that ask a model server which is in trouble of
its own, runs through the spool. The seed decides which fault comes when; the machine decides what it meets.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import installation

LEASE_S = "8"


def main() -> int:
    """Run, print the report; 1 where an invariant is broken or too little was done."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=100, help="at least so many (default %(default)s)")
    parser.add_argument("--faults", type=int, default=20, help="at least so many (default %(default)s)")
    parser.add_argument("--evaluations", type=int, default=20, help="of each run (default %(default)s)")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two faults (default %(default)s)")
    parser.add_argument("--bench", type=int, default=2, help="measuring workers for the processor")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds that runs have after the faults")
    parser.add_argument("--real", action="store_true", help="with a run whose jobs are compiled and timed")
    parser.add_argument("--port", type=int, default=8250)
    parser.add_argument("--keep-logs", metavar="DIR", help="copy the parts' logs there")
    parser.add_argument("--deploy", action="store_true", help="rehearse a deploy instead; takes a minute")
    parser.add_argument("--campaign", action="store_true", help="compare a campaign under faults with a calm one")
    parser.add_argument("--seeds", type=int, default=12, help="of the campaign: four runs each")
    parser.add_argument("--kernelbench", metavar="DIR", type=Path,
                        help="of ten problems of this checkout, with `tune` and replayed agents")  # fmt: skip
    options = parser.parse_args()
    calm = options.deploy or options.campaign
    with installation.folder(environment(real=options.real, trouble=not calm)) as var:
        if options.deploy:
            from tests.chaos.deploy import rehearse

            return rehearse(var, options.port)
        if options.campaign:
            from tests.chaos import campaign

            return campaign.rehearse(var, options)
        from tests.chaos.play import play

        return play(var, options)


def environment(*, real: bool, trouble: bool) -> dict[str, str]:
    """Return an environment with a short lease, so that recovery takes seconds, and with an evaluation that sleeps."""
    chosen = {"KERNELSCI_LEASE_S": LEASE_S, "KERNELSCI_EVALUATE": "tests.chaos.backend.evaluate"}
    chosen |= {"KERNELSCI_CHAOS_REAL": "layernorm_residual"} if real else {}
    return chosen | ({} if trouble else {"KERNELSCI_CHAOS_TROUBLE": "0"})


if __name__ == "__main__":
    sys.exit(main())
