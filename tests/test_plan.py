"""What a run plays: the same every time, with everything named that could change a score."""

from typing import Any

import pytest

from ticket_gym.agents import ScriptedAgent
from ticket_gym.errors import ConfigurationError, UnknownTaskError
from ticket_gym.plan import make_config, plan_run, trial_seed


def test_a_plan_is_a_pure_function_and_every_trial_has_its_own_seed() -> None:
    """Seeds are pinned: a run is continued, and repeated, by other versions too."""
    config = make_config(ScriptedAgent("oracle"), trials=10, seed=3)
    plan = plan_run(config)
    assert plan == plan_run(config)
    assert len(plan) == 6 * 170 * 10 == len({planned.cell for planned in plan})
    for query in config.queries:
        seeds = {planned.seed for planned in plan if planned.cell[:2] == ("fr", query)}
        assert len(seeds) == 10
    assert len({planned.seed for planned in plan}) > 0.999 * len(plan)
    assert all(0 <= planned.seed < 2**31 for planned in plan)
    assert [trial_seed(0, "fr", "t07-03", trial) for trial in range(3)] == [1770484456, 129952921, 636905034]


def test_seeds_depend_on_nothing_but_base_language_query_and_trial() -> None:
    """More languages, queries or trials leave the seeds of the others alone; another base changes them."""
    agent = ScriptedAgent("oracle")
    large = {planned.cell: planned.seed for planned in plan_run(make_config(agent, trials=4))}
    small = make_config(agent, languages=["it", "fr"], count=17, trials=2)
    assert small.languages == ("fr", "it")
    assert all(large[planned.cell] == planned.seed for planned in plan_run(small))
    other = plan_run(small.model_copy(update={"seed": 1}))
    assert not {planned.seed for planned in other} & {planned.seed for planned in plan_run(small)}


def test_a_count_takes_the_templates_in_turn() -> None:
    """So that a short run is a fair picture."""
    agent = ScriptedAgent("oracle")
    assert len({query[:3] for query in make_config(agent, count=17).queries}) == 17
    assert make_config(agent, count=3, templates=["t05"]).queries == ("t05-01", "t05-02", "t05-03")
    streamed = make_config(agent, split="validation", stream_seed=4, count=18).queries
    assert streamed[0] == "validation-4-0" and len(set(streamed)) == 18


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": ["fr", "xx"]}, "unknown 'xx'"),
        ({"languages": ["fr", "fr"]}, "none twice"),
        ({"languages": []}, "at least one"),
        ({"queries": ["t07-03", "t07-03"]}, "none twice"),
        ({"queries": ["t07-03"], "count": 3}, "not both"),
        ({"queries": ["t99-03"]}, "t01-01 to t17-10"),
        ({"queries": ["t07-03"], "templates": ["t01"]}, "only the templates t01"),
        ({"templates": ["t18"]}, "t01 to t17"),
        ({"split": "train"}, "say how many queries with count"),
        ({"count": 171}, "only 170"),
        ({"count": 0}, "count=0"),
        ({"trials": 0}, "trials=0: must be an integer from 1"),
        ({"trials": True}, "trials=True"),
        ({"seed": -1}, "seed=-1"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"tool_language": "xx"}, "tool_language='xx'"),
        ({"league": "xx"}, "league='xx'"),
        ({"split": "other"}, "split='other'"),
        ({"stream_seed": 1}, "test split is frozen"),
    ],
)
def test_options_that_cannot_be_used_are_named(options: dict[str, Any], message: str) -> None:
    """With what would be right."""
    with pytest.raises((ConfigurationError, UnknownTaskError), match=message):
        make_config(ScriptedAgent("oracle"), **options)


def test_the_prompt_digest_changes_with_what_agents_are_shown() -> None:
    """And with nothing else."""
    agent = ScriptedAgent("oracle")
    digests = {
        make_config(agent, **options).prompt_digest
        for options in (
            {"languages": ["fr"]},
            {"languages": ["fr"], "trials": 5, "seed": 2},
            {"languages": ["de"]},
            {"languages": ["fr"], "tool_language": "en"},
            {"languages": ["fr"], "league": "en"},
            {"languages": ["fr"], "count": 3},
        )
    }
    assert len(digests) == 5
