#!/bin/sh
# Does TF32 change the loss, and how much faster is it? Needs an NVIDIA card of the Ampere generation or later.
#
#   sh examples/tf32_on_off.sh [TASK] [OPTIONS of batchlab study]          default: tinystories --quick-test
#
# The budget is given, so that both studies train on the same tokens; --exit-code makes the answer a gate: it fails if
# the loss with TF32 is worse by more than noise. The reports have the tokens/s of both.
set -eu
task=${1:-tinystories}
[ $# -gt 0 ] && shift || set -- --quick-test
out=${OUT:-studies/tf32_on_off}
batchlab study "$task" --device cuda --precision fp32 --out "$out/fp32" "$@"
batchlab study "$task" --device cuda --precision tf32 --out "$out/tf32" "$@"
batchlab compare "$out/fp32" "$out/tf32" --page "$out/compare.html" --exit-code
