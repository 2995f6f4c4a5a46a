/* SPDX-License-Identifier: MIT
 *
 * names.c - collectives and algorithms by name, as users and logs see them.
 */
#include "pccl.h"

static const char *const collectives[PCCL_COLLECTIVE_COUNT] = {
    [PCCL_ALL_REDUCE] = "all_reduce",
    [PCCL_REDUCE_SCATTER] = "reduce_scatter",
    [PCCL_ALL_GATHER] = "all_gather",
    [PCCL_BROADCAST] = "broadcast",
    [PCCL_BARRIER] = "barrier",
    [PCCL_COMMIT] = "commit",
    [PCCL_REDUCE] = "reduce",
    [PCCL_GATHER] = "gather",
    [PCCL_SCATTER] = "scatter",
    [PCCL_ALL_TO_ALL] = "all_to_all",
    [PCCL_SCAN] = "scan",
    [PCCL_EXSCAN] = "exscan",
    [PCCL_SEND] = "send",
    [PCCL_RECV] = "recv",
};

static const char *const algorithms[PCCL_ALGORITHM_COUNT] = {
    [PCCL_AUTO] = "auto",
    [PCCL_RING] = "ring",
    [PCCL_DOUBLING] = "doubling",
    [PCCL_BINOMIAL] = "binomial",
    [PCCL_CHAIN] = "chain",
    [PCCL_DISSEMINATION] = "dissemination",
    [PCCL_TREE] = "tree",
    [PCCL_STAR] = "star",
    [PCCL_PAIRWISE] = "pairwise",
    [PCCL_BRUCK] = "bruck",
    [PCCL_HALVING] = "halving",
    [PCCL_LINE] = "line",
    [PCCL_HIERARCHICAL] = "hierarchical",
    [PCCL_LEADERS] = "leaders",
    [PCCL_DIRECT] = "direct",
};

const char *pccl_collective_name(pccl_collective collective) {
    return (size_t)collective < PCCL_COLLECTIVE_COUNT ? collectives[collective] : "?";
}

const char *pccl_algorithm_name(pccl_algorithm algorithm) {
    return (size_t)algorithm < PCCL_ALGORITHM_COUNT ? algorithms[algorithm] : "?";
}
