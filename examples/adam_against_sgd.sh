#!/bin/sh
# Is AdamW better than SGD here, each at its own best batch size and learning rate, and by how much?
#
#   sh examples/adam_against_sgd.sh [TASK] [OPTIONS of batchlab study]     default: examples/tabular_model.py
#
# An optimizer at the learning rate of another one loses by construction, so each has its own study with the same
# tokens, data and seeds. The verdict comes with an interval, and compare.html draws both on the same axes.
set -eu
task=${1:-examples/tabular_model.py}
[ $# -gt 0 ] && shift
out=${OUT:-studies/adam_against_sgd}
batchlab study "$task" --set optimizer.name=adamw --out "$out/adamw" "$@"
batchlab study "$task" --set optimizer.name=sgd --set optimizer.momentum=0.9 --learning-rates 1e-4:1e-1 --out "$out/sgd" "$@"
batchlab compare "$out/adamw" "$out/sgd" --page "$out/compare.html"
