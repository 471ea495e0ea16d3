"""The bundled runtime with a tiny model: what a loss leaves behind equals, bit by bit, what an undisturbed run does."""

from __future__ import annotations

from service.client.models import Job
from tests.e2e.runs import Run, check_promises, submit_spec
from tests.e2e.stack import Stack

STEPS = 800
MODEL = {"d_model": 32, "num_layers": 2, "num_heads": 2, "context_length": 32, "vocab_size": 300, "dropout": 0.1}


def submit_training(stack: Stack, *, num_nodes: int = 1, steps: int = STEPS) -> Run:
    train = {
        "recipe": "nano_gpt",
        "steps": steps,
        "model": MODEL,
        "data": {"source": "stdlib", "max_bytes": 200_000},
        "micro_batch_size": 4,
        "eval_interval": 200,
        "eval_batches": 1,
    }
    return submit_spec(
        stack,
        {
            "name": "tiny-gpt",
            "train": train,
            "checkpoint": {"every_steps": 50},
            "resources": {"num_nodes": num_nodes},
            "budget": {"cap_usd": "20.00"},
        },
    )


def wait_for_checkpoint(run: Run, *, fence: int) -> None:
    """Until that attempt has one registered and has told of a step beyond it: its metrics up to there are safe too."""

    def is_there(job: Job) -> bool:
        steps = [checkpoint.step for checkpoint in run.stack.api.checkpoints(run.id) if checkpoint.fence == fence]
        return bool(steps) and job.step > max(steps)

    run.follow(is_there, f"a checkpoint of attempt {fence}")


def read_losses(run: Run, steps: int = STEPS) -> list[float | None]:
    points = run.stack.api.metrics(run.id, ["loss/train"], max_points=steps)
    missing = sorted(set(range(1, steps + 1)) - {point.step for point in points})
    assert missing == []
    return [point.values["loss/train"] for point in points]


def test_losses_across_preemptions_equal_those_of_an_undisturbed_run(stack: Stack) -> None:
    """With dropout, after a loss with notice and one without, `==` for every step."""
    disturbed = submit_training(stack)
    disturbed.follow(lambda job: job.step >= 60, "step 60")
    disturbed.take_node(has_notice=True)
    wait_for_checkpoint(disturbed, fence=2)
    disturbed.take_node(has_notice=False)
    undisturbed = submit_training(stack)
    for run in (disturbed, undisturbed):
        assert run.reach("succeeded", timeout_seconds=150).step == STEPS
    noticed, killed = disturbed.preemptions()
    assert noticed.steps_lost == 0
    assert killed.steps_lost is not None
    assert undisturbed.fences() == [1]
    assert read_losses(disturbed) == read_losses(undisturbed)
    check_promises(stack)


def test_a_gang_of_two_nodes_loses_one_and_is_relaunched_whole(stack: Stack) -> None:
    """Two nodes train data-parallel; the loss of the second ends the attempt, not the job, and is nobody's error."""
    run = submit_training(stack, num_nodes=2, steps=400)
    wait_for_checkpoint(run, fence=1)
    run.take_node(has_notice=False, node_rank=1)
    job = run.reach("succeeded", timeout_seconds=150)
    assert (job.step, job.checkpoint_step) == (400, 400)
    assert [attempt.cause for attempt in stack.api.attempts(run.id)] == ["preempted", "completed"]
    assert [attempt.num_nodes for attempt in stack.api.attempts(run.id)] == [2, 2]
    assert (job.preemption_count, job.fault_count) == (1, 0)
    check_promises(stack)
