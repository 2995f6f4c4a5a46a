/* SPDX-License-Identifier: MIT
 *
 * verbs_test.c - the library is found, or it is said what is missing; and the sizes that its interface fixes.
 */
#include "channel/verbs.h"

#include <string.h>

#include "check.h"

int main(void) {
    struct verbs verbs;
    char why[VERBS_WHY_BYTES];
    EXPECT(pccl__verbs_load(&verbs, FAKE_VERBS, why), "%s", why);
    EXPECT(verbs.get_device_list && verbs.destroy_qp && verbs.query_gid_ex);
    EXPECT(!pccl__verbs_load(&verbs, "/nowhere/libibverbs.so.1", why) && strstr(why, "/nowhere/"), "%s", why);
    EXPECT(!pccl__verbs_load(&verbs, "libm.so.6", why) && strstr(why, "ibv_"), "a library without them: %s", why);
    EXPECT(sizeof(struct verbs_send) == 128 && sizeof(struct verbs_completion) == 48);
    EXPECT(sizeof(struct verbs_pair_attributes) == 144 && sizeof(struct verbs_pair_options) == 64);
    EXPECT(sizeof(struct verbs_path) == 32 && sizeof(struct verbs_gid) == 32 && sizeof(struct verbs_piece) == 16);
    EXPECT(offsetof(struct verbs_context, own.poll) == 8 + 11 * sizeof(void *));
    EXPECT(offsetof(struct verbs_context, command_fd) == 8 + 32 * sizeof(void *));
    FINISH();
}
