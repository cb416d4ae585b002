import pytest

from g2c.ops import implementation


def test_it_names_what_serves_a_call():
    assert implementation() == implementation("chunkwise")
    assert implementation("chunkwise", "mps") == "chunkwise/aten"
    assert implementation("parallel") == "parallel/aten"
    assert implementation("recurrent", "meta") == "recurrent/meta"


def test_unknown_names():
    with pytest.raises(ValueError, match="chunkwise"):
        implementation("fast")
    with pytest.raises(ValueError, match="mps"):
        implementation("auto", "xla")
