"""The attention of a public project is taken out of its files, and checked."""

import subprocess
from pathlib import Path

import pytest
from benchmarks.public import PROJECTS, Project, make, measure_public

LAYER = """
raise RuntimeError("only the named parts may run")

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (self.n_head, -1)).transpose(1, 2)
            for each in self.c_attn(x).chunk(3, dim=-1)
        )
        heads = F.scaled_dot_product_attention(q, k, v)
        return self.c_proj(heads.transpose(1, 2).flatten(2))
"""


def test_a_slip_in_a_checkout_is_found(tmp_path: Path) -> None:
    checkout = tmp_path / "nanoGPT"
    checkout.mkdir()
    (checkout / "model.py").write_text(LAYER)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.org", "-C", str(checkout)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    (found,) = measure_public(tmp_path).values()
    assert found["state"] == "wrong"
    assert "leak" in found["failed"]
    assert "no-causal-mask" in found["likely"]
    assert len(found["commit"].split()) == 2


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def f(): pass")
    with pytest.raises(ValueError, match=r"model.py has no Head$"):
        make(Project({"model.py": ("f", "Head")}), tmp_path)


@pytest.mark.parametrize("folder", [None, Path("/nowhere")])
def test_without_checkouts_there_is_nothing_to_check(folder: Path | None) -> None:
    with pytest.raises(ValueError, match="--projects"):
        measure_public(folder)
    assert "karpathy/nanoGPT" in PROJECTS
