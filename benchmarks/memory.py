"""Memory of the chunkwise form, forward and backward, against T: peak resident bytes per token.

    .venv/bin/python benchmarks/memory.py [--heads 8 --dim 64 --form chunkwise]

Each length runs in a fresh process. The peak is that of the process from before its inputs were
made to after the backward pass; the bytes of q, k, v, out and their gradients are part of it.
Before it measures, it compares the form with a float64 loop over tokens. About a minute.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from g2c.ops import linear_attention
from tests.reference import relative_error, token_loop

LENGTHS = [4096, 8192, 16384, 32768, 65536]
UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def run(tokens: int, heads: int, dim: int, form: str) -> None:
    q, k, v = (torch.randn(1, tokens, heads, dim, requires_grad=True) for _ in range(3))
    decay = torch.full((heads,), 0.99, requires_grad=True)
    out, _ = linear_attention(q, k, v, decay, form=form)
    out.sum().backward()


def check(form: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 300, 2, 16) for _ in range(3))
    decay = torch.tensor([0.99, 0.5])
    expected = token_loop(*(x.double() for x in (q, k, v, decay)))[0]
    error = relative_error(linear_attention(q, k, v, decay, form=form)[0], expected)
    if error > 1e-5:
        sys.exit(f"not measured: {form} is off by {error:.1e}")


def peak(arguments: argparse.Namespace, tokens: int) -> int:
    command = [sys.executable, __file__, "--tokens", str(tokens), "--form", arguments.form]
    command += ["--heads", str(arguments.heads), "--dim", str(arguments.dim)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--form", default="chunkwise", choices=["chunkwise", "parallel"])
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tokens:
        # Warm-up: libraries and thread pools are not the form's memory.
        run(64, arguments.heads, arguments.dim, arguments.form)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(arguments.tokens, arguments.heads, arguments.dim, arguments.form)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * UNIT)
        return
    check(arguments.form)
    lengths = LENGTHS if arguments.form == "chunkwise" else LENGTHS[:1]
    print(f"{arguments.form}, float32, B=1, H={arguments.heads}, d={arguments.dim}: forward + backward")
    print("| tokens | peak MB | bytes per token | against 4k |\n|---|---|---|---|")
    first = 0.0
    for tokens in lengths:
        per_token = peak(arguments, tokens) / tokens
        first = first or per_token
        print(
            f"| {tokens:,} | {per_token * tokens / 1e6:,.0f} | {per_token:,.0f} | {per_token / first:.2f} |"
        )


if __name__ == "__main__":
    main()
