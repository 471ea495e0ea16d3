"""The market is a function of (seed, time): prices, capacity drawn from the hazard figures, traces and profiles."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.offers import Market as MarketKind
from tests.worker.provision.clusters import make_profile
from worker.provision.local.hazards import draw_run_hours, mean_run_hours, scales_for
from worker.provision.local.market import draw_uniform, make_market
from worker.provision.local.profile import read_profile
from worker.provision.local.supply import RunSequence
from worker.provision.local.traces import read_traces

SPIKE = {"zone": "local-a-1", "starts_seconds": 600, "lasts_seconds": 600, "factor": 3, "every_seconds": 7200}
PROFILE = make_profile(supply={"kind": "drawn"}, spikes=[SPIKE])
DAY = 86_400


@given(seed=st.integers(), seconds=st.floats(min_value=-1e9, max_value=1e10), at=st.integers(0, 3))
def test_prices_are_positive_finite_and_the_same_for_seed_and_time(seed: int, seconds: float, at: int) -> None:
    market = make_market(PROFILE, seed)
    offer = list(market.offers.values())[at]
    price = market.price(offer, seconds)
    assert isinstance(price, int)
    factor = SPIKE["factor"] if offer.zone == SPIKE["zone"] else 1
    assert 0 < price <= offer.on_demand_hourly_nano * max(1, PROFILE.spot_highest * factor)
    assert price == make_market(PROFILE, seed).price(offer, seconds)
    assert price == market.price(offer, market.step_start(seconds))


def test_spot_moves_below_on_demand_which_never_moves() -> None:
    market = make_market(make_profile(), 1)
    for offer in market.offers.values():
        prices = [market.price(offer, step * 300) for step in range(2000)]
        if offer.market is MarketKind.ON_DEMAND:
            assert set(prices) == {offer.on_demand_hourly_nano}
            continue
        moves = [abs(after - before) / before for before, after in pairwise(prices)]
        assert len(set(prices)) > 100
        assert max(prices) <= 0.55 * offer.on_demand_hourly_nano
        assert min(prices) >= 0.25 * offer.on_demand_hourly_nano
        assert max(moves) < 0.35, "a step is no leap"


def test_a_spike_multiplies_one_zone_for_its_time_and_comes_again() -> None:
    calm, spiky = make_market(make_profile(), 1), make_market(make_profile(spikes=[SPIKE]), 1)
    for offer in (offer for offer in calm.offers.values() if offer.market is MarketKind.SPOT):
        for seconds in (0, 600, 900, 1200, 7200, 7800, 8400):
            is_spiking = offer.zone == "local-a-1" and 600 <= seconds % 7200 < 1200
            expected = calm.price(offer, seconds) * (3 if is_spiking else 1)
            assert spiky.price(offer, seconds) == pytest.approx(expected, abs=300_000)


@pytest.mark.parametrize(("start", "end", "hazard"), [(0.1, 0.25, 2.7), (1, 2, 0.47), (16, 60, 0.07)])
def test_drawn_runs_are_lost_at_the_measured_hazards(start: float, end: float, hazard: float) -> None:
    runs = [draw_run_hours(draw_uniform("hazard", i)) for i in range(40_000)]
    exposure = sum(min(run, end) - start for run in runs if run > start)
    losses = sum(start < run <= end for run in runs)
    assert losses / exposure == pytest.approx(hazard, rel=0.1)


def test_drawn_runs_have_the_measured_median_and_the_stated_mean() -> None:
    runs = sorted(draw_run_hours((i + 0.5) / 100_000) for i in range(100_000))
    assert runs[len(runs) // 2] == pytest.approx(0.56, abs=0.03)
    assert sum(runs) / len(runs) == pytest.approx(mean_run_hours(), rel=0.02)
    assert all(math.isfinite(run) and run > 0 for run in runs)


@pytest.mark.parametrize("availability", [0.17, 0.5, 0.91])
def test_a_drawn_zone_is_up_for_its_share_of_time(availability: float) -> None:
    sequence = RunSequence("share", scales_for(1.0, availability), availability, 4)
    samples = [sequence.instances_at(600.0 * i) for i in range(6 * 24 * 400)]
    assert sum(n > 0 for n in samples) / len(samples) == pytest.approx(availability, abs=0.06)
    assert set(samples) == {0, 1, 2, 3, 4}


@given(times=st.lists(st.floats(min_value=0, max_value=7 * DAY), min_size=1, max_size=20))
def test_capacity_does_not_depend_on_who_asked_before(times: list[float]) -> None:
    asked, fresh = make_market(PROFILE, 5), make_market(PROFILE, 5)
    offer = next(iter(asked.offers.values()))
    forward = {seconds: asked.stock(offer, seconds) for seconds in times}
    assert {seconds: fresh.stock(offer, seconds) for seconds in sorted(times)} == forward


def test_a_csv_trace_holds_each_row_until_the_next(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = ["0,local-a-1,3,,", "60,local-a-1,0,,true", "0,local-b-1,1,,", "30,local-b-1,2,sim.gpu1,false"]
    path.write_text("\n".join(["seconds,zone,instances,instance_type,has_notice", *rows]))
    market = make_market(make_profile(supply={"kind": "traced", "file": str(path)}), 0)
    a, b = market.offers["local/local-a-1/sim.gpu1/spot"], market.offers["local/local-b-1/sim.gpu1/spot"]
    assert [market.stock(a, t).instances for t in (0, 59.9, 60, 10_000)] == [3, 3, 0, 0]
    assert market.is_loss_noticed(a, "any", market.stock(a, 60)) is True
    assert market.is_loss_noticed(b, "any", market.stock(b, 60)) is False
    assert market.stock(b, 60).instances == 2
    on_demand = market.offers["local/local-a-1/sim.gpu1/on-demand"]
    assert market.stock(on_demand, 60).instances == 100


def test_an_npz_trace_gives_its_set_to_the_zones_in_order_and_repeats(tmp_path: Path) -> None:
    index = [
        {"name": "x", "set": "one", "zone": "?", "gap_seconds": 60},
        {"name": "y", "set": "two", "zone": "?", "gap_seconds": 10},
    ]
    path = tmp_path / "traces.npz"
    x, y = np.array([1, 2], np.uint8), np.array([5, 0, 7], np.uint8)
    np.savez(path, index=np.frombuffer(json.dumps(index).encode(), np.uint8), x=x, y=y)
    source = {"kind": "traced", "file": str(path), "series_set": "two", "is_repeating": True}
    market = make_market(make_profile(supply=source), 0)
    for offer in (offer for offer in market.offers.values() if offer.market is MarketKind.SPOT):
        assert [market.stock(offer, t).instances for t in (0, 10, 29, 30, 40)] == [5, 0, 7, 5, 0]
    with pytest.raises(ValueError, match="no set 'three'"):
        read_traces(str(path), ["local-a-1"], "three")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seconds,zone,instances\n", "no rows"),
        ("seconds,instances\n0,1\n", "zone"),
        ("seconds,zone,instances\n0,local-a-1,1\n", "no rows for local-b-1"),
        ("seconds,zone,instances\n0,local-a-1,-1\n0,local-b-1,1\n", "never negative"),
        ("seconds,zone,instances\nnan,local-a-1,1\n0,local-b-1,1\n", "bounded"),
        ("seconds,zone,instances\n0,local-a-1,many\n", "many"),
        ("seconds,zone,instances,has_notice\n0,local-a-1,1,perhaps\n", "perhaps"),
    ],
)
def test_a_bad_trace_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_traces(str(path), ["local-a-1", "local-b-1"])


@pytest.mark.parametrize("name", ["default", "demo", "stormy"])
def test_shipped_profiles_open_a_market_of_three_zones_in_two_regions(name: str) -> None:
    market = make_market(read_profile(name), 0)
    offers = list(market.offers.values())
    assert len({offer.zone for offer in offers}) >= 3
    assert len({offer.region for offer in offers}) == 2
    assert all(2e9 <= offer.on_demand_hourly_nano <= 3e10 for offer in offers)


def test_the_demo_market_always_has_the_cheapest_shape_in_three_zones_of_spot() -> None:
    market = make_market(read_profile("demo"), 0)
    small = [o for o in market.offers.values() if o.instance_type == "sim.gpu1" and o.market is MarketKind.SPOT]
    for seconds in range(0, 1200, 5):
        assert sum(market.stock(offer, seconds).instances > 0 for offer in small) >= 3
    assert {shock.has_notice for shock in market.profile.shocks} == {True, False}


@pytest.mark.parametrize("name", ["no-such", "../etc/passwd", "/nowhere/profile.json"])
def test_a_missing_profile_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="no market profile"):
        read_profile(name)


@pytest.mark.parametrize(
    "change",
    [
        {"time_scale": 0},
        {"spot_lowest": 0.9},
        {"unknown": 1},
        {"zones": []},
        {"shocks": [{"after_up_seconds": 1, "has_notice": True, "zone": "moon-1"}]},
        {"zones": [{"name": "../up", "region": "r"}]},
    ],
)
def test_a_malformed_profile_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        make_profile(**change)
