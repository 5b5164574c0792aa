"""Leaders of runs that ended under an older version, ranked by the rules of this one."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from optimizer.loop.best import mend_best
from optimizer.loop.locking import lock_run
from optimizer.models import Kernel, Run, RunState


def do_mend_leaders() -> int:
    """Look again at the ended runs whose best kernel makes a claim that was not confirmed, and at those that have no
    best kernel though one may lead; how many there are. For a run that goes on its next evaluation does it. May be
    repeated; each run has a transaction of its own."""
    ended = Run.objects.filter(state__in=[state for state in RunState if state.is_terminal])
    may_lead = Exists(Kernel.objects.rankable().filter(run=OuterRef("pk")))
    doubtful = ended.filter(Q(best_kernel__evaluation__unconfirmed=True) | Q(best_kernel=None) & Q(may_lead))
    found = list(doubtful.order_by("pk").values_list("pk", flat=True))
    for run_id in found:
        with transaction.atomic():
            mend_best(lock_run(run_id))
    return len(found)
