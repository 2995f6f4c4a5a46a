/* SPDX-License-Identifier: MIT
 *
 * dtype.c - sizes and names (numpy's, for what it lacks torch's) of dtypes, names of reduce operations.
 */
#include "pccl.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[PCCL_DTYPE_COUNT] = {
    [PCCL_INT8] = {"int8", 1},
    [PCCL_UINT8] = {"uint8", 1},
    [PCCL_INT16] = {"int16", 2},
    [PCCL_UINT16] = {"uint16", 2},
    [PCCL_INT32] = {"int32", 4},
    [PCCL_UINT32] = {"uint32", 4},
    [PCCL_INT64] = {"int64", 8},
    [PCCL_UINT64] = {"uint64", 8},
    [PCCL_FLOAT16] = {"float16", 2},
    [PCCL_BFLOAT16] = {"bfloat16", 2},
    [PCCL_FLOAT32] = {"float32", 4},
    [PCCL_FLOAT64] = {"float64", 8},
    [PCCL_BOOL] = {"bool", 1},
    [PCCL_COMPLEX64] = {"complex64", 8},
    [PCCL_COMPLEX128] = {"complex128", 16},
    [PCCL_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [PCCL_FLOAT8_E5M2] = {"float8_e5m2", 1},
};

static const char *const reduce_ops[PCCL_REDUCE_OP_COUNT] = {
    [PCCL_SUM] = "sum", [PCCL_AVG] = "avg",   [PCCL_PROD] = "prod",
    [PCCL_MIN] = "min", [PCCL_MAX] = "max",   [PCCL_BAND] = "band",
    [PCCL_BOR] = "bor", [PCCL_BXOR] = "bxor", [PCCL_PREMUL_SUM] = "premul_sum",
};

/* Enums may arrive from the wire: any number is allowed. */
size_t pccl_dtype_bytes(pccl_dtype dtype) { return (unsigned)dtype < PCCL_DTYPE_COUNT ? dtypes[dtype].bytes : 0; }

const char *pccl_dtype_name(pccl_dtype dtype) { return (unsigned)dtype < PCCL_DTYPE_COUNT ? dtypes[dtype].name : "?"; }

const char *pccl_reduce_op_name(pccl_reduce_op op) {
    return (unsigned)op < PCCL_REDUCE_OP_COUNT ? reduce_ops[op] : "?";
}
