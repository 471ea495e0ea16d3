"""The catalogue of events: every type that there is, and when it happens. Nothing else can be emitted or subscribed to."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

EVENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "job.queued": "The job was submitted, retried or resumed, or found no capacity; it waits for its next attempt.",
        "job.provisioning": "An offer was chosen, its money is set aside and its cluster is being launched.",
        "job.starting": "The nodes are up and prepare: set-up, download, resuming.",
        "job.running": "The ranks train.",
        "job.recovering": "The attempt was lost; the job goes on from its verified checkpoint on another one.",
        "job.pausing": "A hold was put on the job; its attempt drains and its nodes are given back.",
        "job.paused": "The hold is in force and no node is left.",
        "job.stopping": "The job ends, for the `end_reason` given; its nodes are being given back.",
        "job.succeeded": "The job completed.",
        "job.failed": "The job ended without completing; `end_reason` says why.",
        "job.cancelled": "The job ended because a user cancelled it.",
        "job.pause_requested": "A user asked for a pause.",
        "job.resume_requested": "A user let go of a paused job.",
        "job.cancel_requested": "A user cancelled the job, or added `--now` to a cancel.",
        "job.retry_requested": "A user asked to run a failed job again; `changed` names the fields that differ.",
        "job.checkpoint_requested": "A user asked for a checkpoint now.",
        "job.deadline_missed": "The deadline passed before the job ended.",
        "attempt.intended": "A launch was decided and its money set aside; nothing is launched yet.",
        "attempt.notice_received": "The provider announced that it will take a node.",
        "attempt.first_step": "The attempt made its first training step.",
        "attempt.preempted": "The provider took a node; `has_notice` says whether it had warned.",
        "attempt.lost": "The attempt was lost by a fault of a machine or by silence, not by a preemption.",
        "attempt.termination_unconfirmed": "The provider has not confirmed a termination in time. It costs until it does.",
        "attempt.gone": "The provider confirmed that every node is gone; `cost_usd` is what the attempt cost.",
        "checkpoint.registered": "A checkpoint was read again, verified and registered: the job can resume from it.",
        "checkpoint.corrupt": "A registered checkpoint no longer verifies. `latest_step` is what the job resumes from now.",
        "budget.created": "The project was given its budget.",
        "budget.changed": "A cap was changed; jobs that waited for money go on if it rose.",
        "budget.threshold_reached": "Spending passed 50 or 80 % of a cap; at 100 % what is left fits no further grant.",
        "budget.exceeded": "Spending passed a cap, for one of the reasons that the promise names; `excess_usd` is by how much.",
        "price.rejected": "A quote of an offer that the job runs on was not believed; nothing more is admitted by it.",
        "orphan.reaped": "A cluster that no attempt accounts for was found and terminated; its cost was entered.",
        "training_error": "The job's own code failed: which rank, its last log lines, and what to do.",
        "drill.requested": "A user asked for a preemption on purpose.",
        "webhook.test": "A user asked for a test message to one webhook.",
        "webhook.gave_up": "A delivery failed to the end of its schedule and is now a dead letter.",
        "webhook.disabled": "A receiver answered 410 Gone; its webhook is disabled.",
    }
)

EVENT_FILTERS: tuple[str, ...] = (
    *EVENT_TYPES,
    *sorted({f"{name.split('.')[0]}.*" for name in EVENT_TYPES if "." in name}),
)
"""What a webhook may subscribe to: a type, or a group such as `job.*`."""


def find_nearest_filter(wanted: str) -> str | None:
    """The filter that `wanted` was most likely meant to be; None when nothing resembles it."""
    return next(iter(get_close_matches(wanted, EVENT_FILTERS, n=1, cutoff=0.6)), None)
