"""What operators order by a `user_config`: read strictly, refused with the value and the fix."""

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.config import limits_from_user_config
from deployments.config_file import problems_of, read_config_file
from deployments.orders import Moment, Orders, orders_at_reload, orders_at_start
from dflash.config import EngineLimits
from dflash.errors import ConfigError
from policy.arms import Arm
from policy.limits import Limits, MemoryLimits
from policy.pins import Pin, pin_in_force
from tests.rigs.policy_world import LADDER

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
NOW = Moment(NOON, 1000.0)
REPLICAS = ("k3f9", "w7x2")


def pin(**changes: object) -> dict[str, Any]:
    order = {
        "arm": "dflash2:7",
        "replicas": ["k3f9"],
        "author": "ana",
        "reason": "comparing with last week",
        "expires": "2026-12-01T13:00:00Z",
    }
    return {key: value for key, value in {**order, **changes}.items() if value != "left out"}


def at_reload(user_config: Any) -> Orders:
    return orders_at_reload(user_config, LADDER, REPLICAS, NOW)


def test_bounds_and_pins_become_the_policys_own():
    orders = at_reload(
        {
            "policy": {
                "max_concurrency": {"dflash2": 8, "mtp": 32},
                "max_draft_length": 5,
                "dwell_s": 3,
                "memory": {"amber_occupancy": 0.95, "restore_s": 90},
            },
            "pins": [pin(), pin(arm="plain", replicas=["*"])],
        }
    )
    assert orders.limits == Limits(
        max_concurrency={"dflash2": 8, "mtp": 32},
        max_draft_length=5,
        dwell_s=3.0,
        memory=MemoryLimits(amber_occupancy=0.95, restore_s=90.0),
    )
    assert orders.pins == (
        Pin(Arm("dflash2", 7), ("k3f9",), "ana", "comparing with last week", 4600.0),
        Pin(Arm(), ("*",), "ana", "comparing with last week", 4600.0),
    )
    assert pin_in_force(orders.pins, "k3f9", 4599.0) is orders.pins[1]
    assert pin_in_force(orders.pins, "k3f9", 4600.0) is None


@pytest.mark.parametrize("nothing", [None, {}, {"policy": None, "pins": None}, {"limits": {}}])
def test_nothing_ordered_is_the_defaults(nothing):
    assert at_reload(nothing) == Orders(Limits())
    assert orders_at_start(nothing, LADDER, NOW) == Orders(Limits())


def test_an_hour_is_an_hour_in_any_zone():
    orders = at_reload({"pins": [pin(expires="2026-12-01T15:00:00+02:00")]})
    assert orders.pins[0].expires_s == 4600.0


@pytest.mark.parametrize(
    ("policy", "place", "fix"),
    [
        ({"max_concurency": {}}, "policy.max_concurency", "Did you mean max_concurrency?"),
        ({"max_concurrency": {"dflash2": -1}}, "policy.max_concurrency.dflash2 = -1", "0 or more"),
        ({"max_concurrency": {"mtp": "8"}}, "policy.max_concurrency.mtp = 8", "valid integer"),
        ({"max_concurrency": {"eagle": 4}}, "policy.max_concurrency = {'eagle': 4}", "there are"),
        (
            {"max_concurrency": {"dflash2": 8, "mtp": 4}},
            "policy.max_concurrency = ",
            "raise it to 8 or more",
        ),
        ({"max_concurrency": 8}, "policy.max_concurrency = 8", "an object"),
        ({"max_draft_length": -2}, "policy.max_draft_length = -2", "0 never drafts"),
        ({"dwell_s": 0}, "policy.dwell_s = 0", "over 0"),
        ({"dwell_s": float("nan")}, "policy.dwell_s = nan", "over 0"),
        ({"exploration_share": True}, "policy.exploration_share = True", "valid number"),
        ({"probe_gap_s": 90}, "policy.probe_gap_max_s", "raise the first or lower the second"),
        (
            {"memory": {"amber_occupancy": 0.5}},
            "policy.memory.green_occupancy",
            "green_occupancy must be the smaller",
        ),
        (
            {"memory": {"red_free_fraction": 0.1}},
            "policy.memory.red_free_fraction = 0.1",
            "smaller",
        ),
        ({"memory": {"amber_free_fraction": 0.6}}, "amber_free_fraction = 0.6", "at most 0.4"),
        ({"memory": {"amber": 0.5}}, "policy.memory.amber", "amber_"),
        ({"memory": 0.5}, "policy.memory = 0.5", "mapping"),
    ],
)
def test_bounds_that_cannot_work_are_refused_with_place_value_and_fix(policy, place, fix):
    for read in (at_reload, lambda config: orders_at_start(config, LADDER, NOW)):
        with pytest.raises(ConfigError) as refused:
            read({"policy": policy})
        assert place in str(refused.value)
        assert fix in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "place", "fix"),
    [
        ({"arm": "left out"}, "pins[0].arm", "say 'plain', or a drafter and a draft length"),
        ({"arm": "dflash2"}, "pins[0].arm = dflash2", "such as 'dflash2:7'"),
        ({"arm": "plain:3"}, "pins[0].arm = plain:3", "goes with 0"),
        ({"arm": "mtp:0"}, "pins[0].arm = mtp:0", "say 'plain'"),
        ({"arm": "eagle:3"}, "pins[0].arm = eagle:3", "there are ['dflash2', 'mtp', 'plain']"),
        ({"arm": "mtp:4"}, "pins[0].arm = mtp:4", "mtp has (1, 2, 3, 5)"),
        ({"replicas": "left out"}, "pins[0].replicas", "say which by their names, or '*'"),
        ({"replicas": []}, "pins[0].replicas", "say which by their names, or '*'"),
        ({"replicas": "k3f9"}, "pins[0].replicas = k3f9", "valid array"),
        ({"replicas": ["k3 f9"]}, "pins[0].replicas", "'k3 f9', which is no replica's name"),
        ({"author": "left out"}, "pins[0].author", "say who is answerable for it"),
        ({"author": "  "}, "pins[0].author", "say who is answerable for it"),
        ({"reason": "left out"}, "pins[0].reason", "say why, for whoever reads the log"),
        ({"expires": "left out"}, "pins[0].expires", "such as '2027-01-31T18:00:00Z'"),
        ({"expires": "tomorrow"}, "pins[0].expires = tomorrow", "no time with a zone"),
        ({"expires": "2026-12-01T13:00:00"}, "pins[0].expires = 2026", "no time with a zone"),
        ({"expires": 1796130000}, "pins[0].expires = 1796130000", "valid string"),
        ({"expires": NOON}, "pins[0].expires = 2026", "quote it"),
        ({"replicas": [NOON]}, "pins[0].replicas[0] = 2026", "quote it"),
        ({"author": "an\ud800a"}, "pins[0].author = an\\ud800a", "half of a character"),
        ({"author": b"ana"}, "pins[0].author", "must be text"),
        ({"until": "noon"}, "pins[0].until", "Keys here: arm, author, expires"),
    ],
)
def test_a_pin_that_can_never_work_is_refused_with_place_value_and_fix(changes, place, fix):
    user_config = {"pins": [pin(**changes)]}
    for read in (at_reload, lambda config: orders_at_start(config, LADDER, NOW)):
        with pytest.raises(ConfigError) as refused:
            read(user_config)
        assert place in str(refused.value)
        assert fix in str(refused.value)


def test_a_pin_for_a_replica_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError) as refused:
        at_reload({"pins": [pin(), pin(replicas=["k3f9", "gone"])]})
    assert "pins[1].replicas = gone: No such replica. There are k3f9, w7x2" in str(refused.value)


def test_a_pin_that_is_over_is_refused_where_it_is_written_and_left_out_where_it_has_lapsed():
    over = {"policy": {"max_concurrency": {"dflash2": 8}}, "pins": [pin(), pin(author="bo")]}
    over["pins"][1]["expires"] = "2026-12-01T12:00:00Z"
    with pytest.raises(ConfigError) as refused:
        at_reload(over)
    assert "pins[1].expires = 2026-12-01T12:00:00Z: It is over already" in str(refused.value)
    orders = orders_at_start(over, LADDER, NOW)
    assert [each.author for each in orders.pins] == ["ana"]
    assert orders.lapsed == (
        "the pin of dflash2:7 by bo ended at 2026-12-01T12:00:00Z and is left out",
    )
    # What stands beside it is in force.
    assert orders.limits.max_concurrency == {"dflash2": 8}


def test_a_replica_that_starts_after_another_has_gone_takes_what_concerns_it():
    orders = orders_at_start({"pins": [pin(replicas=["gone"])]}, LADDER, NOW)
    assert pin_in_force(orders.pins, "k3f9", 1000.0) is None
    assert pin_in_force(orders.pins, "gone", 1000.0) is not None


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as refused:
        at_reload({"pins": [pin(arm="eagle:3", replicas=["gone"]), pin(expires="2001-01-01T00Z")]})
    told = str(refused.value)
    for place in ("pins[0].arm", "pins[0].replicas", "pins[1].expires"):
        assert place in told


def test_limits_of_the_engine_are_its_own_beside_orders_to_the_policy():
    configured = EngineLimits(max_num_seqs=4)
    beside = {"policy": {"dwell_s": 3}, "pins": [pin()]}
    assert limits_from_user_config(beside, configured) == configured
    assert limits_from_user_config({"limits": None, **beside}, configured) == configured
    given = limits_from_user_config({"limits": {"max_num_seqs": 2}, **beside}, configured)
    assert given.max_num_seqs == 2


def test_a_file_is_checked_with_its_lines(tmp_path):
    config = copy.deepcopy(yaml.safe_load((ROOT / "serve_config.yaml").read_text()))
    engine = config["applications"][0]["deployments"][1]
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    engine["user_config"]["policy"] = {"max_concurrency": {"dflash2": 8, "mtp": 32}}
    engine["user_config"]["pins"] = [pin(expires=soon)]
    assert problems_of(config) == []
    del engine["user_config"]["pins"][0]["author"]
    engine["user_config"]["policy"]["memory"] = {"amber_occupancy": 2.0}
    path = tmp_path / "serve_config.yaml"
    path.write_text(yaml.safe_dump(config))
    problems = read_config_file(path).problems
    assert [problem.path[-1] for problem in problems] == ["author", "amber_occupancy"]
    lines = path.read_text().splitlines()
    assert "arm: dflash2:7" in lines[problems[0].line - 1]
    assert "amber_occupancy: 2.0" in lines[problems[1].line - 1]


def test_an_unquoted_time_is_told_before_serve_fails_on_it(tmp_path):
    text = (ROOT / "serve_config.yaml").read_text()
    at = "        user_config:\n"
    assert text.count(at) == 1
    order = (
        "          pins:\n            - {arm: plain, replicas: ['*'], author: ana, reason: why, "
        "expires: 2027-01-31T18:00:00Z}\n"
    )
    path = tmp_path / "serve_config.yaml"
    path.write_text(text.replace(at, at + order))
    (problem,) = read_config_file(path).problems
    assert problem.path[-1] == "expires"
    assert "quote it" in problem.message
