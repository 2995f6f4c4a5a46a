# SPDX-License-Identifier: MIT
# Each word sets up .venv by itself. Needed beforehand: Python 3.10 or later with venv, gcc, make; nothing else.
#
#   make build    the library and the Python package, editable, in .venv
#   make test     C tests, then Python tests: WORKERS at a time, but for those that want to be alone, which come last
#   make sim      the simulator: SEED=n replays one run, SEEDS=n tries so many
#   make matrix   every fault in every phase of every collective, with real processes; two hours
#   make heavy    counts above 2**31: 11 GB of memory, on a machine that does nothing else
#   make check    style, types, tidy, warnings as errors, a few seeds: what to run before a commit
#   make stress   peers, links and the master fail under load, in every scenario; half an hour
#   make fuzz     libFuzzer on every parser of the data plane, MINUTES=n for each of four targets, and about as long
#                 Hypothesis on those of the control plane and of files; needs clang (CLANG=clang-14). What was found
#                 before is kept in build/fuzz/corpus. Again with one input: build/fuzz/TARGET build/fuzz/crash-...
#   make test-torch
#                 PyTorch's own distributed tests, in both forms of the backend; an hour. `make test` has a few of them
#   make test-asan, make test-tsan
#                 C tests and process tests under AddressSanitizer and UBSan, or ThreadSanitizer; half an hour
#   make test-arm the C tests of kernels and codecs for 64-bit ARM, under qemu; needs gcc-aarch64-linux-gnu and
#                 qemu-user-static
#   make test-rdma
#                 RDMA between two true devices, in a virtual machine that VMRUN boots (soft-RoCE); five minutes
#   make demo     training that outlives a peer and the master; ends with a picture in demo-output/
#   make bench    all_reduce beside Gloo, 2 and 4 peers
PYTHON ?= python3
SEEDS ?= 200
MINUTES ?= 10
CLANG ?= clang
# Tests at a time. As many as there are processors may be too many: half a GB of memory for each.
WORKERS ?= 2
# Tests of what turns other processes' and files' bytes into objects, and of the cores that hear any of those objects.
PARSERS := $(addprefix tests/unit/test_,messages.py journal.py file.py stress_scenario.py relay_commands.py master.py \
	peer.py state_sync.py packing.py exchange.py)
VENV := .venv
RUN := $(VENV)/bin
SHARED := -n $(WORKERS) --dist worksteal
ORDINARY := not matrix and not heavy
NATIVE := CMakeLists.txt pyproject.toml $(shell find csrc bindings -type f -not -name '*.pyc')

# What has code of its own for each CPU, and what stands on that.
KERNEL_TESTS := kernel_test fold_test codec_test codec_wire_test indices_test sparse_test coding_test

VMRUN ?= ../shared/testbed/vmrun

.PHONY: build test sim matrix heavy check stress fuzz test-torch test-rdma test-asan test-tsan test-arm demo bench
.DEFAULT_GOAL := build

build: $(VENV)/installed-core

test: $(VENV)/installed-test
	$(RUN)/cmake -S csrc -B build/c -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(RUN)/ninja -DPCCL_TESTS=ON
	$(RUN)/cmake --build build/c
	$(RUN)/ctest --test-dir build/c --output-on-failure --parallel $(WORKERS)
	$(RUN)/python -m pytest $(SHARED) -m "not alone and $(ORDINARY)"; shared=$$?; \
		$(RUN)/python -m pytest -m "alone and $(ORDINARY)" && exit $$shared

sim: $(VENV)/installed-test
	$(RUN)/python -m tests.sim.run $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

matrix: $(VENV)/installed-test
	$(RUN)/python -m pytest -m matrix

heavy: $(VENV)/installed-test
	$(RUN)/python -m pytest -m heavy

check: $(VENV)/installed-test $(VENV)/installed-dev
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/python -m tests.tidy
	$(RUN)/cmake -S csrc -B build/check -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(RUN)/ninja -DPCCL_TESTS=ON \
		-DCMAKE_C_FLAGS=-Werror
	$(RUN)/cmake --build build/check
	$(RUN)/python -m pytest $(SHARED) tests/unit
	$(RUN)/python -m tests.sim.run --seeds 50

stress: $(VENV)/installed-stress $(VENV)/installed-bench
	for scenario in churn partition master-loss flaky-links; do $(RUN)/pccl stress $$scenario || exit 1; done
	$(RUN)/python stress/kill_one.py
	$(RUN)/python stress/in_place_kills.py
	$(RUN)/python stress/master_kill.py
	$(RUN)/python stress/leaks.py
	$(RUN)/python stress/bounds.py
	$(RUN)/python stress/idle.py
	$(RUN)/python stress/calls.py
	$(RUN)/python stress/streams.py
	for form in native python; do $(RUN)/python stress/torch_kills.py --form $$form || exit 1; done

fuzz: $(VENV)/installed-test
	CC=$(CLANG) $(RUN)/cmake -S csrc -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(RUN)/ninja -DPCCL_TESTS=ON \
		-DPCCL_FUZZ=ON -DPCCL_SANITIZE=address,undefined
	$(RUN)/cmake --build build/fuzz --target fuzz
	for target in build/fuzz/fuzz_*[a-z]; do mkdir -p build/fuzz/corpus/$$(basename $$target); \
		$$target build/fuzz/corpus/$$(basename $$target) -max_total_time=$$((60 * $(MINUTES))) -max_len=600 -len_control=0 \
			-timeout=60 -artifact_prefix=build/fuzz/ -print_final_stats=1 || exit 1; done
	$(RUN)/python -m pytest $(PARSERS) --examples $$((1000 * $(MINUTES))) --timeout=0

test-torch: $(VENV)/installed-test
	for form in native python; do $(RUN)/python -m tests.torch.suite --form $$form --jobs $(WORKERS) || exit 1; done

test-asan test-tsan: test-%san: $(VENV)/installed-test
	$(RUN)/python -m tests.sanitized $(if $(filter a,$*),address,thread)

test-arm: $(VENV)/installed-test
	$(RUN)/cmake -S csrc -B build/arm -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(RUN)/ninja -DPCCL_TESTS=ON \
		-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
		-DCMAKE_EXE_LINKER_FLAGS=-static
	$(RUN)/cmake --build build/arm --target $(KERNEL_TESTS)
	for test in $(KERNEL_TESTS); do qemu-aarch64-static build/arm/$$test || exit 1; done

# A machine that never started (125) is tried once more, and that is said.
test-rdma: $(VENV)/installed-test
	$(RUN)/cmake -S csrc -B build/c -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(RUN)/ninja -DPCCL_TESTS=ON
	$(RUN)/cmake --build build/c
	run() { $(VMRUN) --rxe --timeout 800 -- tests/rdma/in_vm.sh $(RUN)/python build/c; }; \
		run || { [ $$? -eq 125 ] && echo "the virtual machine did not start: once more" >&2 && run; }

demo: $(VENV)/installed-demo
	$(RUN)/pccl demo

bench: $(VENV)/installed-bench
	$(RUN)/pccl bench all_reduce --peers 2 --vs gloo,socket
	$(RUN)/pccl bench all_reduce --peers 4 --vs gloo

$(RUN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "pccl needs Python 3.10: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# One stamp per set of optional dependencies; `core` names no set, which pip takes for none.
$(VENV)/installed-%: $(RUN)/python $(NATIVE)
	$(RUN)/python -m pip install --quiet --editable '.$(if $(filter-out core,$*),[$*])'
	@touch $@
