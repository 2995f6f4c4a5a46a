# SPDX-License-Identifier: MIT
# Built from csrc/pccl.h by bindings/cffi/build.py; only pccl/_native.py imports it.
from typing import Any

ffi: Any
lib: Any
