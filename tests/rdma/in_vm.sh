#!/bin/sh
# SPDX-License-Identifier: MIT
# What `make test-rdma` runs in a machine with the devices rxe0 and rxe1: tests/rdma/in_vm.sh PYTHON BUILD. Its clock may
# run faster than the world's, so limits are wide.
set -eu
python=$1 build=$2
perftest() {
    timeout 300 "$1" -d rxe1 -x 1 -F "$2" "$3" >/dev/null & server=$!
    while [ -z "$(ss -Hltn 'sport = 18515')" ]; do sleep 0.2; done
    timeout 300 "$1" -d rxe0 -x 1 -F "$2" "$3" 10.77.0.2 | grep -A1 '#bytes'
    wait $server
}
echo "what the devices do by themselves:"
perftest ib_write_bw -s 262144
perftest ib_write_lat -s 8
timeout 900 "$build/tcp_fabric_test" --devices rxe0 rxe1
timeout 900 "$python" -m tests.rdma.collectives rxe0 rxe1
