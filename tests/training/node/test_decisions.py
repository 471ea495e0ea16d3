"""The pure parts: grant, lifecycle, verdicts, log lines, metrics, notices, bundles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.node.service_double import HttpDouble
from training.node import lifecycle
from training.node.exits import RankExit, Verdict, classify
from training.node.grant import Grant
from training.node.lifecycle import Action, Bounds, Life, Stage, advance
from training.node.link import LinkDown
from training.node.logs import LineSplitter, RateBudget
from training.node.metrics import metric_name, parse_metrics
from training.node.notices import AzureReader, GceReader
from training.node.redaction import Redactor, clean_line
from training.node.watch import FIRST_TRIES, QUIET_SECONDS, NoticeWatch
from training.protocol.messages import ExitKind, MetricPoint, Notice

NOW = datetime(2031, 1, 1, tzinfo=UTC)

# --- grant


@given(
    st.lists(st.floats(0, 1000), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(1, 25), st.floats(0, 1000)), max_size=40),
)
def test_no_order_of_replies_gives_more_than_the_newest_answer(
    gaps: list[float], replies: list[tuple[int, float]]
) -> None:
    grant, now, sent = Grant(), 0.0, {}
    for seq, gap in enumerate(gaps, start=1):
        now += gap
        sent[seq] = now
        grant = grant.note_sent(seq, now)
    newest, expected = 0, None
    for answers_seq, seconds in replies:
        grant = grant.renew(answers_seq, seconds)
        if answers_seq in sent and answers_seq > newest:
            newest, expected = answers_seq, sent[answers_seq] + seconds
    assert grant.ends_at == expected
    assert grant.is_held == (expected is not None)


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(0, 1e4))
def test_a_grant_counts_from_the_sending_and_not_from_the_answer(sent_at: float, delay: float, seconds: float) -> None:
    grant = Grant().note_sent(1, sent_at).renew(1, seconds)
    assert grant.is_over(sent_at + delay) == (sent_at + delay >= sent_at + seconds)


def test_a_reply_to_a_heartbeat_never_sent_grants_nothing() -> None:
    assert not Grant().renew(7, 900).is_held


# --- lifecycle

EVENTS = st.one_of(
    st.sampled_from(
        [
            lifecycle.Granted(),
            lifecycle.RefusedByService(),
            lifecycle.DrainAsked(),
            lifecycle.StopAsked(),
            lifecycle.CheckpointAsked(),
            lifecycle.Prepared(),
            lifecycle.PreparationFailed(Verdict(kind=ExitKind.USER_ERROR, code=1)),
            lifecycle.Closed(True),
            lifecycle.Closed(False),
            lifecycle.Reported(),
            lifecycle.Tick(),
        ]
    ),
    st.builds(lifecycle.RankExited, st.integers(0, 1), st.sampled_from([0, 1, 75, 79, 80, -9, -15])),
)


def fresh_life() -> Life:
    return Life(bounds=Bounds(drain=10, boot=900), started_at=0.0, ranks=frozenset({0, 1}))


@given(st.lists(st.tuples(EVENTS, st.floats(0, 3)), max_size=40))
def test_whatever_happens_ranks_start_once_and_the_node_ends(happenings: list[tuple[lifecycle.Event, float]]) -> None:
    life, now, done = fresh_life(), 0.0, []
    for event, gap in happenings:
        now += gap
        before = life
        life, actions = advance(life, event, now)
        done += actions
        if before.stage is Stage.BOOTING:
            assert Action.START_RANKS not in actions, "never before the first grant"
        if Action.REPORT in actions:
            assert life.verdict is not None
    assert done.count(Action.START_RANKS) <= 1
    assert done.count(Action.CLOSE) <= 1
    if life.stage is Stage.RUNNING:
        return
    # A drain, once asked for, ends within its bound even if nobody ever answers again.
    life, actions = advance(life, lifecycle.DrainAsked(), now)
    done += actions
    for _ in range(8):
        now += 10
        life, actions = advance(life, lifecycle.Tick(), now)
        done += actions
    assert life.stage is Stage.OFF
    assert done.count(Action.POWER_OFF) == 1


def drive(*happenings: tuple[lifecycle.Event, float]) -> tuple[Life, list[Action]]:
    life, done = fresh_life(), []
    for event, now in ((lifecycle.Granted(), 1.0), (lifecycle.Prepared(), 2.0), *happenings):
        life, actions = advance(life, event, now)
        done += actions
    return life, done


def test_a_failure_before_the_drain_stays_a_failure() -> None:
    life, done = drive(
        (lifecycle.RankExited(0, 1), 3.0), (lifecycle.DrainAsked(), 3.1), (lifecycle.RankExited(1, -9), 3.2)
    )
    assert Action.KILL_RANKS in done
    assert life.verdict == Verdict(kind=ExitKind.USER_ERROR, code=1, rank=0)


def test_the_others_are_drained_when_one_rank_leaves_at_a_checkpoint() -> None:
    life, done = drive((lifecycle.RankExited(0, 75), 3.0), (lifecycle.RankExited(1, -15), 4.0))
    assert Action.TERMINATE_RANKS in done
    assert life.verdict is not None
    assert life.verdict.kind is ExitKind.DRAINED


def test_outputs_that_cannot_be_kept_make_no_completion() -> None:
    ended = ((lifecycle.RankExited(0, 0), 3.0), (lifecycle.RankExited(1, 0), 3.0))
    life, _ = drive(*ended, (lifecycle.Closed(False), 9.0))
    assert life.verdict is not None
    assert life.verdict.kind is ExitKind.INFRASTRUCTURE
    life, _ = drive(*ended, (lifecycle.DrainAsked(), 4.0), (lifecycle.Tick(), 13.5))
    assert life.verdict is not None
    assert life.verdict.kind is ExitKind.DRAINED


def test_a_node_that_nobody_answers_powers_off() -> None:
    life, actions = advance(fresh_life(), lifecycle.Tick(), 899.0)
    assert (life.stage, actions) == (Stage.BOOTING, ())
    life, actions = advance(life, lifecycle.Tick(), 900.0)
    assert (life.stage, actions) == (Stage.OFF, (Action.POWER_OFF,))


@pytest.mark.parametrize(
    ("exits", "kind", "rank"),
    [
        ([(0, 0, False), (1, 0, False)], ExitKind.COMPLETED, None),
        ([(0, 0, True), (1, 75, True)], ExitKind.DRAINED, 1),
        ([(0, -15, True)], ExitKind.DRAINED, 0),
        ([(0, 143, True)], ExitKind.DRAINED, 0),
        ([(0, 1, False)], ExitKind.USER_ERROR, 0),
        ([(0, 79, False), (1, 1, False)], ExitKind.USER_ERROR, 1),
        ([(0, 79, True)], ExitKind.INFRASTRUCTURE, 0),
        ([(0, 80, False), (1, 79, False)], ExitKind.NO_USABLE_CHECKPOINT, 0),
        ([(0, -15, False)], ExitKind.INFRASTRUCTURE, 0),
        ([(0, -9, False)], ExitKind.USER_ERROR, 0),
    ],
)
def test_exit_codes_add_up(exits: list[tuple[int, int, bool]], kind: ExitKind, rank: int | None) -> None:
    verdict = classify([RankExit(rank=rank, code=code, is_asked=is_asked) for rank, code, is_asked in exits])
    assert verdict.kind is kind
    assert kind is ExitKind.COMPLETED or verdict.rank == rank


# --- logs


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    splitter, lines = LineSplitter(), []
    for piece in pieces:
        lines += splitter.feed(piece)
    lines += splitter.flush()
    assert lines == [(line, False) for line in whole.replace(b"\r", b"\n").split(b"\n") if line]


def test_an_endless_line_is_cut_once_and_the_next_one_is_whole() -> None:
    splitter = LineSplitter()
    lines = [*splitter.feed(b"x" * 20_000), *splitter.feed(b"x" * 20_000), *splitter.feed(b"\nnext\n")]
    assert [(len(line), is_cut) for line, is_cut in lines] == [(16_384, True), (4, False)]


def test_half_a_line_beside_a_gap_is_never_shown() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"the secret is s3c") == []
    splitter.break_off(is_inside_line=True)
    assert [*splitter.feed(b"r3t\nwhole\n"), *splitter.flush()] == [(b"whole", False)]


def test_a_rate_budget_refills_with_time() -> None:
    budget = RateBudget(0.0, rate=10, burst=20)
    assert budget.take(20, 0.0)
    assert not budget.take(1, 0.0)
    assert budget.take(10, 1.0)


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.integers(0, 30))
def test_no_secret_survives_wherever_it_stands(around: str, place: int) -> None:
    secret = "k3y-1234\nsecond-line"  # noqa: S105 - of this test
    redactor = Redactor([secret])
    text = around[:place] + "k3y-1234" + around[place:] + "second-line"
    cleaned = clean_line(text.encode(), redactor, 2000)
    assert "k3y-1234" not in cleaned
    assert "second-line" not in cleaned


def test_a_cut_line_shows_no_beginning_of_a_secret() -> None:
    assert clean_line(b"key: abcdefg", Redactor(["abcdefgh"]), 2000, is_cut=True) == "key:"


# --- metrics


@pytest.mark.parametrize(
    ("raw", "name"),
    [("loss/train", "loss/train"), ("Loss/Train (mean)", "loss/train__mean_"), ("a//b", "a/b"), ("p@1/x", "p_1/x")],
)
def test_metric_names_are_mapped_to_what_is_allowed(raw: str, name: str) -> None:
    assert metric_name(raw) == name


@given(st.dictionaries(st.text(max_size=200), st.floats() | st.integers() | st.text() | st.none() | st.booleans()))
def test_any_json_object_becomes_a_valid_point(record: dict[str, object]) -> None:
    point = parse_metrics(json.dumps({**record, "step": 3}).encode(), NOW)
    assert MetricPoint.model_validate_json(point.model_dump_json()) == point


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"{}", b'{"step": -1}', b'{"step": 1.5}', b'{"step": true}', b"[" * 10_000, b"\xff"]
)
def test_bad_metric_lines_are_refused(line: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_metrics(line, NOW)


# --- notices


class Answers(HttpDouble):
    """Fixed answers by path."""

    def __init__(self, answers: dict[str, tuple[dict[str, str], str]]) -> None:
        self.answers = answers
        super().__init__()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:  # noqa: ARG002
        needed = {"metadata-flavor": "Google", "metadata": "true"}
        given_names = {name.lower(): value for name, value in headers.items()}
        if path not in self.answers or not any(given_names.get(name) == value for name, value in needed.items()):
            return 404, {}, b""
        extra, text = self.answers[path]
        return 200, extra, text.encode()


def read_gce(text: str) -> Notice | None:
    double = Answers({"/computeMetadata/v1/instance/preempted": ({"Metadata-Flavor": "Google"}, text)})
    try:
        return GceReader(double.url, lambda: NOW).read_notice()
    finally:
        double.close()


def test_gce_says_true_when_preempted() -> None:
    assert read_gce("FALSE") is None
    assert read_gce("TRUE") == Notice(seen_at=NOW)


EVENT = '{"Events": [{"EventId": "1", "EventType": "%s", "Resources": ["%s"], "NotBefore": "Wed, 01 Jan 2031 00:00:30 GMT"}]}'


@pytest.mark.parametrize(
    ("event_type", "resource", "has_notice"),
    [("Preempt", "vm-1", True), ("Reboot", "vm-1", False), ("Preempt", "vm-2", False)],
)
def test_azure_names_the_machines_that_go(event_type: str, resource: str, has_notice: bool) -> None:
    double = Answers(
        {
            "/metadata/scheduledevents?api-version=2020-07-01": ({}, EVENT % (event_type, resource)),
            "/metadata/instance/compute/name?api-version=2021-02-01&format=text": ({}, "vm-1"),
        }
    )
    notice = AzureReader(double.url, lambda: NOW).read_notice()
    double.close()
    assert (notice is not None) == has_notice
    assert notice is None or notice.terminate_at == datetime(2031, 1, 1, 0, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("reader", [GceReader, AzureReader])
def test_another_clouds_endpoint_is_quiet(reader: type[GceReader] | type[AzureReader]) -> None:
    double = Answers({})
    with pytest.raises(LinkDown):
        reader(double.url, lambda: NOW).read_notice()
    double.close()


class Scripted:
    """A reader that answers from a list; None in it is an endpoint that is away."""

    def __init__(self, answers: Sequence[Notice | str]) -> None:
        self.answers = list(answers)

    def read_notice(self) -> Notice | None:
        answer = self.answers.pop(0)
        if answer == "away":
            raise LinkDown("away")
        return answer if isinstance(answer, Notice) else None


def test_an_endpoint_that_never_answered_is_asked_seldom_and_one_that_did_is_not() -> None:
    absent = NoticeWatch(Scripted(["away"] * 20), 1.0, lambda _: None)
    delays = [absent.look() for _ in range(FIRST_TRIES + 1)]
    assert delays == [1.0] * (FIRST_TRIES - 1) + [QUIET_SECONDS] * 2
    there = NoticeWatch(Scripted(["none"] + ["away"] * 20), 1.0, lambda _: None)
    assert {there.look() for _ in range(FIRST_TRIES + 5)} == {1.0}


def test_each_notice_is_told_once_and_preemption_ends_the_watch() -> None:
    rebalance, preemption = Notice(kind="rebalance", seen_at=NOW), Notice(seen_at=NOW)
    told: list[Notice] = []
    watch = NoticeWatch(Scripted([rebalance, rebalance, preemption]), 1.0, told.append)
    assert [watch.look() for _ in range(3)] == [1.0, 1.0, None]
    assert told == [rebalance, preemption]


# --- bundle
