#!/bin/sh
# The packaged model learns a text of yours: sh examples/fine_tune.sh my.txt runs/fine-tuned
set -e
gfrnn eval --data "$1" --unknown replace
gfrnn train modern-gated-lstm --init gf-lstm-enwik8 --data "$1" --learning-rate 1e-3 --updates "${3:-500}" --out "$2"
gfrnn eval "$2" --data "$1"
gfrnn generate "$2" --prompt "The " --chars 200 --seed 1
