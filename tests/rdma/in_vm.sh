#!/bin/sh
# SPDX-License-Identifier: MIT
# What `make test-rdma` runs in a machine with the devices rxe0 and rxe1: tests/rdma/in_vm.sh PYTHON BUILD
set -eu
python=$1 build=$2
ibv_devinfo -l
timeout 300 "$build/tcp_fabric_test" --devices rxe0 rxe1
timeout 400 "$python" -m tests.rdma.collectives rxe0 rxe1
