"""Re-rank runs that ended under the rules of an older version."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from optimizer.models import Kernel, Run, RunState, VerdictChoice
from optimizer.runs.best import rerank_best
from optimizer.runs.locking import lock_run


def do_rerank_leaders() -> int:
    """Re-rank ended runs where the rules of this version may choose another leader. Return how many were examined.

    These are runs whose best kernel has an unconfirmed claim or was proven slower than its parent, and runs without a
    best kernel though a kernel could lead. Live runs need no repair, as their next evaluation re-ranks them. May be
    repeated; each run has its own transaction.
    """
    ended = Run.objects.filter(state__in=[state for state in RunState if state.is_terminal])
    may_lead = Exists(Kernel.objects.rankable().filter(run=OuterRef("pk")))
    beaten = Q(best_kernel__evaluation__parent_verdict=VerdictChoice.SLOWER)
    unconfirmed = Q(best_kernel__evaluation__unconfirmed=True)
    doubtful = ended.filter(unconfirmed | beaten | Q(best_kernel=None) & Q(may_lead))
    found = list(doubtful.order_by("pk").values_list("pk", flat=True))
    for run_id in found:
        # One transaction per run keeps the locks short during an upgrade.
        with transaction.atomic():
            rerank_best(lock_run(run_id))
    return len(found)
