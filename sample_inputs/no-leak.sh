#!/usr/bin/env bash
# Fail when saved attention looks into the future: no-leak.sh FILE
# For continuous integration: exit code 1 and the worst place where a token gives a later one more than a millionth.
set -euo pipefail

attnviz heads --layer all --format csv --attention "$1" |
  LC_ALL=C awk -F, 'NR > 1 && $4 + 0 > $3 + 0 && $NF + 0 > worst { worst = $NF + 0; where = $1 "." $2 " from " $3 " to " $4 }
    END { if (worst > 1e-6) { print "leak: head " where " has weight " worst; exit 1 } print "no leak" }'
