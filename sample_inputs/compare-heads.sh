#!/usr/bin/env bash
# Which heads treat two sentences most differently: compare-heads.sh SENTENCE SENTENCE [LAYER]
# The sentences must have equally many tokens. Prints layer.head and the mean absolute difference of its weights.
set -euo pipefail

one=$(mktemp) two=$(mktemp)
trap 'rm -f "$one" "$two"' EXIT
attnviz heads --layer "${3:-all}" --format csv -- "$1" >"$one"
attnviz heads --layer "${3:-all}" --format csv -- "$2" >"$two"
if [ "$(wc -l <"$one")" -ne "$(wc -l <"$two")" ]; then
  echo "the sentences have different numbers of tokens" >&2
  exit 2
fi

# The first four columns are layer, head, query and key; the last is the weight; texts with commas stand between them.
LC_ALL=C awk -F, 'FNR == 1 { next }
  NR == FNR { weight[$1, $2, $3, $4] = $NF; next }
  { gap = weight[$1, $2, $3, $4] - $NF; sum[$1 "." $2] += gap < 0 ? -gap : gap; n[$1 "." $2]++ }
  END { for (head in sum) printf "%s %.4f\n", head, sum[head] / n[head] }' "$one" "$two" |
  LC_ALL=C sort -k2,2nr -k1,1V
