/* SPDX-License-Identifier: MIT
 *
 * shared_memory.h - an allocator that says no when told to, and counts what is out. The linker puts it between the
 * library and the C library's (csrc/CMakeLists.txt: --wrap), so the library knows nothing of it.
 */
#ifndef PCCL_TESTS_SHARED_MEMORY_H
#define PCCL_TESTS_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Can allocations be refused here? */
bool memory_supported(void);
/* From now on the `nth` allocation (1 is the next) and `count` - 1 after it find no memory. 0 for `nth`: none. */
void memory_refuse(uint64_t nth, uint64_t count);
/* From now on each allocation finds none with this chance in a million, drawn from `seed`. */
void memory_refuse_some(uint64_t seed, uint32_t ppm);
/* How many allocations were refused since the start. */
uint64_t memory_refused(void);
/* Blocks allocated and not freed. */
int64_t memory_blocks(void);

#endif
