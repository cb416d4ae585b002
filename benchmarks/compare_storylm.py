"""Train the three StoryLM-1M variants on one corpus and print the table: parameters, losses, speed.

    ./datasets.sh --from TRAIN.txt --validation VALID.txt --name NAME
    .venv/bin/python benchmarks/compare_storylm.py NAME --out runs/NAME

About 4 minutes a variant on two cores. Stopped runs are gone on with, finished ones loaded.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from g2c import storylm
from g2c.artifacts import load_tokenized_corpus_artifact
from g2c.artifacts.files import replacing
from g2c.training import TrainingConfig, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", help="name of a tokenized corpus")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()

    corpus = load_tokenized_corpus_artifact(arguments.corpus)
    if corpus.validation is None:
        parser.error(f"{arguments.corpus} has no validation text: make it with --validation FILE")
    bytes_per_token = corpus.validation_num_bytes / len(corpus.validation)
    config = TrainingConfig(steps=arguments.steps)
    rows = []
    for pattern in ("full", "linear", "LLLF"):
        torch.manual_seed(0)
        model = storylm.build("storylm-1m", pattern)
        run = train(
            model,
            corpus.ids,
            corpus.validation,
            config,
            run_dir=arguments.out / pattern,
            corpus_name=corpus.name,
            corpus_digest=corpus.digest,
        )
        rows.append(
            {
                "pattern": pattern,
                "parameters": run.parameters,
                "nats_per_token": run.val_loss,
                "nats_per_byte": run.val_loss / bytes_per_token,
                "seconds": run.seconds,
                "tokens_per_s": run.tokens_per_s,
            }
        )
    with replacing(arguments.out / "compare.json") as path:
        path.write_text(json.dumps({"corpus": corpus.name, "steps": config.steps, "rows": rows}, indent=1))
    print(f"{corpus.name}: {config.steps} steps, validation on {len(corpus.validation):,} tokens")
    print("| pattern | parameters | nats/token | nats/byte | seconds | tokens/s |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['pattern']} | {row['parameters']:,} | {row['nats_per_token']:.3f} "
            f"| {row['nats_per_byte']:.3f} | {row['seconds']:.0f} | {row['tokens_per_s']:,.0f} |"
        )


if __name__ == "__main__":
    main()
