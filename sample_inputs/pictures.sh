#!/usr/bin/env bash
# A picture of every layer and head for each sentence of a file: pictures.sh SENTENCES FOLDER
set -euo pipefail

sentences=$1 folder=$2
mkdir -p "$folder"
n=0
while IFS= read -r sentence; do
  [ -n "$sentence" ] || continue
  n=$((n + 1))
  attnviz heads --layer all -o "$folder/$n.png" -- "$sentence"
done <"$sentences"
echo "$n pictures in $folder"
