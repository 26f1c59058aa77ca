#!/usr/bin/env bash
# The heads that have most of a measure over all sentences of a file: rank-heads.sh SENTENCES [MEASURE] [HOW MANY]
# Prints layer.head and the measure.
set -euo pipefail

measure=${2:-previous}
attnviz metrics - --by "$measure" --format csv <"$1" |
  LC_ALL=C awk -F, -v measure="$measure" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == measure) column = i; next }
    $column != "" { printf "%s.%s %.4f\n", $3, $4, $column }' |
  LC_ALL=C sort -s -k2,2nr | LC_ALL=C awk -v most="${3:-10}" 'NR <= most'
