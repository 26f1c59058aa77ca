#!/usr/bin/env bash
# The strongest links between words: strongest.sh SENTENCE [HOW MANY]
# Prints weight, layer.head, and which token attends to which; special tokens and a token itself are left aside.
set -euo pipefail

attnviz heads --layer all --hide-special --format csv -- "$1" |
  sed -e 's/,",",/,comma,/' -e 's/,",",/,comma,/' | # a quoted comma would be taken for two columns
  LC_ALL=C awk -F, 'NR > 1 && $3 != $4 { printf "%.4f %s.%s %s -> %s\n", $NF, $1, $2, $5, $6 }' |
  LC_ALL=C sort -s -k1,1nr | LC_ALL=C awk -v most="${2:-10}" 'NR <= most'
