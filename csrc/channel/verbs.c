/* SPDX-License-Identifier: MIT
 *
 * verbs.c - see verbs.h.
 */
#include "channel/verbs.h"

#include <stdio.h>
#include <string.h>

#ifdef __linux__

#include <dlfcn.h>

static bool find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found); /* an object's address made a function's, which C has no cast for */
    return found;
}

bool pccl__verbs_load(struct verbs *verbs, const char *path, char why[VERBS_WHY_BYTES]) {
    *verbs = (struct verbs){0};
    void *library = dlopen(path ? path : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool whole = library;
#define X(type, name, arguments) whole = whole && find(library, "ibv_" #name, &verbs->name);
    VERBS_FUNCTIONS(X)
#undef X
    if (whole)
        (void)find(library, "_ibv_query_gid_ex", &verbs->query_gid_ex);
    else
        snprintf(why, VERBS_WHY_BYTES, "%s", dlerror());
    if (library) dlclose(library);
    return whole;
}

#else

bool pccl__verbs_load(struct verbs *verbs, const char *path, char why[VERBS_WHY_BYTES]) {
    (void)path;
    *verbs = (struct verbs){0};
    snprintf(why, VERBS_WHY_BYTES, "there is none for this system");
    return false;
}

#endif
