/* SPDX-License-Identifier: MIT
 *
 * poll_posix_test.c - poll_test.c over the poll(2) implementation: compiled in here, it takes the library's place.
 */
#define PCCL_USE_POLL 1
#include "../../csrc/channel/poll_posix.c"

#include "poll_test.c"
