#!/usr/bin/env bash
# The simulator's transfers from a new random start; see test_sim.sh.
exec bash "$(dirname "${BASH_SOURCE[0]}")/test_sim.sh" --rdma
