import pytest

from g2c import storylm
from g2c.transformer import TransformerLM


def count(model):
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts():
    assert count(storylm.build("storylm-1m", "full")) == 1_354_496
    assert count(storylm.build("storylm-5m", "full")) == 5_857_280
    assert count(storylm.build("storylm-1m", "linear")) == 1_354_496 + 4 * 4
    assert count(storylm.build("storylm-5m")) == 5_857_280 + 5 * 8
    assert count(TransformerLM(4096, 128, 4, 4, 256)) == 1_354_496


def test_patterns():
    assert storylm.parse_pattern("LLF") == ["linear", "linear", "full"]
    assert storylm.parse_pattern("(LF)x2F") == ["linear", "full"] * 2 + ["full"]
    assert storylm.parse_pattern("linear", 3) == ["linear"] * 3
    assert storylm.parse_pattern(["full"]) == ["full"]
    for bad in ("", "LXF", "(LF", "(LF)x0", [], ["sparse"], "lf", "(L)x9999"):
        with pytest.raises(ValueError, match="pattern"):
            storylm.parse_pattern(bad)
    with pytest.raises(ValueError, match="layers"):
        storylm.build("storylm-1m", "LLL")
    with pytest.raises(ValueError, match="storylm-5m"):
        storylm.build("storylm-2m")
