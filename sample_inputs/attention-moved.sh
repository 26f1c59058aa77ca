#!/usr/bin/env bash
# A guard for continuous integration: attention-moved.sh BASELINE SENTENCE [OPTION...]
# The first run writes the baseline; later ones exit with 1 when a weight moved by more than a thousandth.
# Options go to attnviz, such as --model path/to/folder.
set -euo pipefail

baseline=$1 sentence=$2
shift 2
if [ ! -e "$baseline" ]; then
  attnviz heads --layer all -o "$baseline" "$@" -- "$sentence"
  echo "baseline written to $baseline"
else
  attnviz compare --tolerance 0.001 "$@" -- "$baseline" "$sentence"
fi
