/* SPDX-License-Identifier: MIT
 *
 * shared_conform.h - what every channel must do, one case per rule of channel.h. A transport passes when all cases hold
 * under its driver; sim and tcp run the same ones.
 */
#ifndef PCCL_TESTS_SHARED_CONFORM_H
#define PCCL_TESTS_SHARED_CONFORM_H

#include "shared_pair.h"

enum {
    CONFORM_QUICK = 0, /* leaves out the cases that move tens of megabytes */
    CONFORM_THOROUGH = 1
};

/* Runs every case; a failed one ends the program and names itself. Returns how many expectations held. */
unsigned long conform_run(struct pair_driver *driver, uint64_t seed, int thoroughness);

#endif
