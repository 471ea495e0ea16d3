"""The tick. It may stop at any line, for good, and the next one goes on from what was committed."""

from __future__ import annotations

from functools import partial

import structlog

from service.context import Context
from service.db.session import run_in_transaction, session_scope
from service.domain.decide import decide
from service.domain.decision import Decision
from worker.provision.protocol import Provisioner
from worker.reconcile.act import Intended, Outcome, act
from worker.reconcile.hold import keep_claim
from worker.reconcile.intend import intend, to_intended
from worker.reconcile.load import Loaded, load_job
from worker.reconcile.observe import observe_job
from worker.reconcile.record import record

log = structlog.get_logger()

MAX_TICKS = 12
"""Ticks in a row for one wake-up. A job that is due again after these is left to the sweep, behind the others."""


def reconcile_job(context: Context, provisioner: Provisioner, job_id: str) -> int:
    """Tick a job until it has nothing more to do now; the number of ticks."""
    for count in range(MAX_TICKS):
        if not tick_job(context, provisioner, job_id):
            return count + 1
    return MAX_TICKS


def tick_job(context: Context, provisioner: Provisioner, job_id: str) -> bool:
    """One tick; True when the job is due again at once."""
    load = partial(load_job, job_id=job_id, settings=context.settings, now=context.clock())
    loaded = run_in_transaction(context.sessions, load)
    if loaded is None:
        return False
    with keep_claim(context, loaded.claim):
        return _tick_claimed(context, provisioner, loaded)


def _tick_claimed(context: Context, provisioner: Provisioner, loaded: Loaded) -> bool:
    terms = context.settings.terms
    observed = observe_job(
        loaded, provisioner=provisioner, bucket=lambda: context.bucket, terms=terms, now=context.clock()
    )
    snapshot = observed.snapshot
    decision = decide(snapshot)
    intended = run_in_transaction(
        context.sessions,
        partial(intend, loaded=loaded, decision=decision, snapshot=snapshot, found=observed.found),
    )
    if intended is False:
        log.info("claim_lost", job_id=loaded.job_id)
        return False
    outcomes = _act_all(context, provisioner, loaded, decision, intended if isinstance(intended, Intended) else None)
    write = partial(
        record,
        claim=loaded.claim,
        outcomes=outcomes,
        requeue_after=decision.requeue_after,
        terms=terms,
        now=context.clock(),
    )
    return run_in_transaction(context.sessions, write)


def _act_all(
    context: Context, provisioner: Provisioner, loaded: Loaded, decision: Decision, new: Intended | None
) -> tuple[Outcome, ...]:
    new_fence = decision.new_attempt.fence if decision.new_attempt else None
    is_refused = new_fence is not None and new is None
    actions = [action for action in decision.actions if not (is_refused and action.fence == new_fence)]

    def find(fence: int) -> Intended:
        if new is not None and fence == new.fence:
            return new
        with session_scope(context.sessions, is_reader=True) as session:
            return to_intended(session, loaded, fence)

    return tuple(
        act(action, loaded=loaded, intended=find, context=context, provisioner=provisioner) for action in actions
    )
