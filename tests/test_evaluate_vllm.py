"""The vLLM baseline: its configs fit the engine, and the script plays, continues and reports (without vLLM itself)."""

from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("rich", reason="needs the eval extra: pip install 'ticket-gym[eval]'")

from baselines import evaluate_vllm
from ticket_gym.engines import Completion, Request, Sampling, VllmOptions, style_for
from ticket_gym.engines.local_options import read_template
from ticket_gym.errors import ConfigurationError
from ticket_gym.journal import RunFolder

ROOT = Path(__file__).parents[1]
CONFIGS = ("gpt-oss", "llama-3", "mistral", "qwen2.5", "qwen3", "smollm2", "xlam-2")


def _config(name: str) -> Path:
    return ROOT / "baselines" / "configs" / f"{name}.toml"


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_fits_the_engine_and_its_models(name: str) -> None:
    config = evaluate_vllm.read_config(_config(name))
    options = dict(config["engine"])
    drawn = {option.name: options.pop(option.name) for option in fields(Sampling) if option.name in options}
    for model, size in config["models"].items():
        made = VllmOptions(model=model, sampling=Sampling(**drawn), **options)
        assert made.style == style_for(model)
        assert 0.1 < size < 1000
    if "chat_template" in options:
        assert "tools" in read_template(str(ROOT / options["chat_template"]))


def test_settings_on_the_command_line_win() -> None:
    base = {"temperature": 0.6, "chat_template_options": {"enable_thinking": True, "more": 1}}
    words = ["temperature=0", "chat_template_options.enable_thinking=false", "style=hermes", "top_k = 5"]
    assert evaluate_vllm.read_settings(words[:3], base) == {
        "temperature": 0,
        "chat_template_options": {"enable_thinking": False, "more": 1},
        "style": "hermes",
    }
    for setting, told in (
        ("temperature", "KEY=VALUE"),
        ("temperature.low=0", "temperature is no table"),
        ("model=m", "--model"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            evaluate_vllm.read_settings([setting], base)


def test_a_config_with_other_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('family = "X"\n[engin]\n', encoding="utf-8")
    with pytest.raises(ConfigurationError, match="engin"):
        evaluate_vllm.read_config(path)
    with pytest.raises(ConfigurationError, match="nowhere"):
        evaluate_vllm.read_config(tmp_path / "nowhere.toml")


class Refuser:
    """An engine that never calls a tool, and remembers what it was made with."""

    made: ClassVar[list[dict[str, Any]]] = []
    asked = 0

    def __init__(self, kind: str, **options: Any) -> None:
        self.made.append({"kind": kind, **options})
        self.name = str(options["model"])

    def describe(self) -> dict[str, Any]:
        """Nothing that matters."""
        return {"engine": "refuser"}

    async def complete(self, request: Request) -> Completion:
        """The same answer to everything."""
        type(self).asked += 1
        return Completion({"role": "assistant", "content": "Não."})

    async def aclose(self) -> None:
        """Nothing to let go of."""


def test_one_command_plays_the_benchmark_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate_vllm, "make_engine", Refuser)
    out = tmp_path / "run"
    words = [
        "--config",
        str(_config("qwen3")),
        "--model",
        "Qwen/Qwen3-8B",
        "--out",
        str(out),
        "--languages",
        "pt",
        "en",
    ]
    words += ["--count", "17", "--trials", "2", "--set", "tensor_parallel_size=2"]
    evaluate_vllm.main(words)
    assert "Qwen/Qwen3-8B" in capsys.readouterr().out
    assert Refuser.made[-1]["tensor_parallel_size"] == 2
    assert Refuser.made[-1]["chat_template_options"] == {"enable_thinking": True}
    folder = RunFolder.read(out)
    assert folder.config.model.size_b == 8.2
    assert len(list(folder.episodes())) == 17 * 2 * 2 == Refuser.asked

    evaluate_vllm.main(words)
    assert len(list(folder.episodes())) == Refuser.asked, "nothing is played twice"


def test_a_mistake_is_told_in_a_line(tmp_path: Path) -> None:
    words = ["--config", str(_config("qwen3")), "--model", "m", "--out", str(tmp_path), "--set", "tensor_size=2"]
    with pytest.raises(SystemExit, match=r"evaluate_vllm: .*tensor_size"):
        evaluate_vllm.main(words)
